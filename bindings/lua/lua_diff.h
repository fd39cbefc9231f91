/* Two policies on the decisions of a journal, one after the other in the order in which they were made: each keeps its own state. */
#ifndef GB_LUA_DIFF_H
#define GB_LUA_DIFF_H

#include "bindings/lua/lua_compare.h"
#include "bindings/lua/lua_desk.h"
#include "bindings/lua/lua_journal.h"

enum { GB_LUA_DIFFERENCES_KEPT = 32 };

/* A decision on which they differ. Engines of select_engine; of order_queue, who would be served first (a row of the queue). */
typedef struct gb_lua_difference {
    uint64_t decision;        /* 1, 2 ... in the journal */
    gb_hook hook;
    gb_time at;
    int answers[2];
    int live;                 /* what was answered then */
    uint64_t inputs;          /* digest of what the hook saw, as decision_log has it */
} gb_lua_difference;

typedef struct gb_lua_diff {
    uint64_t decisions;                          /* in the journal, or looked at */
    uint64_t left_out;                           /* of hooks that neither has */
    bool cut;                                    /* the journal's last line was not whole */
    bool out_of_time;                            /* there was more */
    gb_lua_comparison comparisons[GB_HOOKS];     /* of select_engine and order_queue */
    uint64_t n_differences;
    gb_lua_difference differences[GB_LUA_DIFFERENCES_KEPT];    /* the first */
} gb_lua_diff;

/* desks: the two policies; NULL is the built-in. Stops when budget_ns of CPU time are used; 0 = never. What gb_lua_journal_next
   says, GB_ENOMEM. */
int gb_lua_diff_run(gb_lua_diff *diff, gb_lua_desk *const desks[2], gb_lua_journal_reader *reader, const gb_lua_journal_header *header,
                    uint64_t budget_ns, gb_error *err);

#endif
