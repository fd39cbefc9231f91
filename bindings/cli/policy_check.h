/* gimbal policy check FILE: everything that can be said of a policy without a server. */
#ifndef GB_CLI_POLICY_CHECK_H
#define GB_CLI_POLICY_CHECK_H

#include <stdbool.h>

#include "bindings/lua/lua_desk.h"
#include "bindings/lua/lua_globals.h"

enum {
    GB_CHECK_SHARES = 6,           /* of the budget that a call used: see gb_check_share_limits */
    GB_CHECK_OUTCOMES_MAX = 40,
    GB_CHECK_RECORDED_MAX = 64 * 1024 * 1024,    /* bytes of recorded snapshots */
};

extern const double gb_check_share_limits[GB_CHECK_SHARES - 1];    /* 0.001 ... 1 of the budget; the last share is over it */

/* What the calls of one function over one kind of table came to. */
typedef struct gb_check_outcome {
    const char *call;                  /* "select_engine", "on_window", "export" */
    char tables[64];                   /* "8 engines, busy" */
    double budget_us;                  /* CPU time that a server gives a call */
    double p50_us, p99_us, max_us;     /* CPU time, but not more than the clock on the wall says */
    uint32_t calls, nils, faults;
    uint32_t shares[GB_CHECK_SHARES];  /* calls by their share of the budget */
    size_t allocated_bytes;            /* of a middling decision */
    char fault[GB_LUA_FAULT_BYTES];    /* the first */
} gb_check_outcome;

typedef struct gb_check {
    const char *label;                 /* how errors name the policy */
    gb_error refusal;                  /* what a server would say; "" when it would take it */
    char name[256], sha256[GB_SHA256_HEX + 1];
    gb_lua_budgets budgets;
    uint32_t engines;                  /* of the server it is for; 0 = any number */
    uint32_t n_globals, n;             /* n outcomes */
    gb_lua_global globals[GB_LUA_GLOBALS_MAX];
    gb_check_outcome outcomes[GB_CHECK_OUTCOMES_MAX];
} gb_check;

/* Those of a server with this environment (GIMBAL_POLICY_SELECT_MS and so on), which is how a server tells its own to the checks that it
   starts. GB_EINVAL, GB_ENOMEM. */
int gb_check_budgets(gb_lua_budgets *budgets, gb_error *err);

/* recorded: a file with one snapshot a line, or NULL; those of servers with another number of engines are left out when engines is
   not 0. path "-" reads standard input, and label names it. GB_EFORMAT and what reading
   says when the recorded snapshots cannot be used; anything wrong with the policy is in check. */
int gb_check_run(gb_check *check, const char *path, const char *label, const char *recorded, uint32_t engines, const gb_lua_budgets *budgets,
                 gb_error *err);
bool gb_check_is_good(const gb_check *check);

/* policy_report.c: to standard output */
void gb_check_print(const gb_check *check);
void gb_check_print_json(const gb_check *check);

/* The verb. Returns the exit code: 0, 1 when the policy would be refused or failed, 65 when the snapshots cannot be used. */
int gb_policy_check(const char *path, const char *label, const char *recorded, uint32_t engines, bool json);

#endif
