/* Inside the policy host: lua_host.c keeps versions, lua_swap.c says which of them decide, lua_keep.c remembers both over restarts,
   lua_shadow.c lets a version watch, lua_record.c keeps a journal,
   lua_idle.c does what may wait. All on the host's thread. Internal to bindings/lua. */
#ifndef GB_LUA_HOST_PARTS_H
#define GB_LUA_HOST_PARTS_H

#include "bindings/lua/lua_host.h"
#include "bindings/lua/lua_policy.h"
#include "bindings/lua/lua_shadow.h"
#include "bindings/lua/lua_store.h"

enum {
    GB_LUA_CHUNK_BYTES = 256,       /* of the name that errors give a file */
    GB_LUA_STRIKES = 3,             /* faults of one hook */
    GB_LUA_STRIKES_WITHIN_S = 10,   /* within so long: quarantine */
    GB_LUA_HEALTHY_AFTER_S = 60,    /* without quarantine: worth going back to */
    GB_LUA_SETTINGS_MAX = 32,       /* params of one version that were changed at run time */
    GB_LUA_PACE_BLOCK = 100,        /* decisions after which is told that most were slow: single ones may have waited for a CPU */
    GB_LUA_SLOW_PART = 10,          /* slow: over this part of the budget */
    GB_LUA_SLOW_EVERY_S = 60,       /* told at most so often */
};

typedef struct gb_lua_version {
    uint32_t number;
    uint64_t put;                /* seq of the store's record of it; 0: the store does not know it */
    char name[GB_LUA_NAME_MAX + 1];
    char chunk[GB_LUA_CHUNK_BYTES];
    char sha256[GB_SHA256_HEX + 1];
    bool hooks[GB_HOOKS];        /* kept by the load */
    bool builtin;
    bool windows_stopped;        /* its on_window failed too often */
    char *source;
    size_t bytes;
    gb_lua_policy *policy;       /* NULL: retired */
    uint64_t last_used;          /* by host->uses; the coldest VM goes first */
    gb_lua_counts counts;
    uint32_t n_settings, window_faults;
    gb_lua_setting settings[GB_LUA_SETTINGS_MAX];
} gb_lua_version;

/* Who decides for one hook, and who did before. */
typedef struct gb_lua_seat {
    gb_lua_version *active;          /* NULL: the C built-in */
    gb_lua_version *standby;         /* keeps its VM, so that going back is instant; NULL: the C built-in */
    bool has_standby;                /* something decided before */
    bool standby_is_healthy;
    gb_time since;                   /* when active took over; GB_NEVER: before anyone told the time */
    gb_time strikes[GB_LUA_STRIKES]; /* of active; the oldest is overwritten */
    uint32_t n_strikes;
    uint32_t timed, slow;            /* decisions of the running block, and those over a tenth of the budget */
    gb_time no_warning_before;
} gb_lua_seat;

typedef struct gb_lua_watcher gb_lua_watcher;

struct gb_lua_host {
    gb_server *server;
    gb_lua_budgets budgets;
    gb_policy builtin;                                /* the server's own */
    gb_lua_journal *journal;                          /* NULL: nothing is recorded */
    const gb_lua_version *asked;                      /* of the running decision; NULL: the built-in */
    gb_lua_watcher *watcher;                          /* in shadow now or before; NULL: none was */
    uint64_t seed, uses, generation;
    gb_time now;                                      /* the latest that was told */
    uint32_t next_number;
    uint32_t n_versions;
    gb_lua_version *versions[GB_LUA_VERSIONS_MAX];    /* in order of number */
    gb_lua_seat seats[GB_HOOKS];
    gb_lua_log *log;
    gb_lua_store *store;                              /* NULL: nothing outlives the process */
    uint64_t unrecorded;                              /* changes that the store could not take */
    uint64_t inputs;                                  /* digest of what the running decision sees */
    gb_rng rng_before;                                /* of the running decision */
    uint32_t n_quarantined;
    char quarantined[GB_LUA_QUARANTINE_MAX][GB_SHA256_HEX + 1];    /* digests; the oldest is overwritten */
    gb_lua_carry carry;                               /* scratch of a swap */
    uint64_t window_id;                               /* the latest that scripts were shown */
    gb_window_table window;
    double *window_block;                             /* its columns */
    size_t window_rows;                               /* that the block has room for */
};

/* lua_host.c */
gb_lua_version *gb_lua_host_find_version(const gb_lua_host *host, uint32_t number);    /* NULL */
int  gb_lua_host_parse_hook(int *hook, const char *name, gb_error *err);               /* GB_HOOKS stands for all of them */
int  gb_lua_host_unknown(uint32_t number, gb_error *err);
int  gb_lua_host_wake(gb_lua_host *host, gb_lua_version *v, gb_error *err);            /* builds its VM when it has none */
void gb_lua_host_forget_from(gb_lua_host *host, uint32_t first);    /* every version with this number or a higher one; none may decide */
void gb_lua_host_chunk(char out[GB_LUA_CHUNK_BYTES], const char *chunk);    /* the end of a path, which tells more than its beginning */
void gb_lua_host_retire(gb_lua_host *host);    /* keeps the VMs that decide or stand by, and the GB_LUA_WARM_MAX most recent others */
/* A VM for v; counts and chunk are borrowed for its life. */
int  gb_lua_host_build(gb_lua_host *host, const gb_lua_version *v, const char *chunk, gb_lua_counts *counts, gb_lua_policy **out, gb_error *err);
int  gb_lua_host_lacks(const gb_lua_version *v, int hook, gb_error *err);
void gb_lua_host_forget(gb_lua_host *host, gb_lua_version *v);
/* Adds a version as it was kept, unbuilt: its VM is made when it is needed. */
int  gb_lua_host_shelve(gb_lua_host *host, gb_lua_version **out, const gb_lua_record *put, const gb_lua_text *text, gb_error *err);

/* lua_swap.c */
bool gb_lua_host_holds(const gb_lua_host *host, const gb_lua_version *v);    /* it decides or stands by */
bool gb_lua_host_decides(const gb_lua_host *host, const gb_lua_version *v);
bool gb_lua_host_is_quarantined(const gb_lua_host *host, const gb_lua_version *v);
void gb_lua_host_remember_quarantine(gb_lua_host *host, const char *sha256);
void gb_lua_host_lift_quarantine(gb_lua_host *host, const char *sha256);
void gb_lua_host_sit_down(gb_lua_host *host);    /* at start: the built-in decides, and the host is asked */
void gb_lua_host_reseat(gb_lua_host *host, gb_hook hook, gb_lua_version *v);         /* untold; it has a VM, or is NULL */
gb_lua_setting *gb_lua_host_setting(gb_lua_version *v, const char *name);              /* the one of that name, or the next free; NULL: full */
/* Logs a change, and remembers it. change may be NULL. */
void gb_lua_host_tell(gb_lua_host *host, gb_lua_event_kind kind, const gb_lua_version *v, const gb_lua_change *change, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Says and records who decides the hooks that have moved: one line for those that moved to one decider. */
void gb_lua_host_tell_moved(gb_lua_host *host, gb_lua_event_kind kind, const bool moved[GB_HOOKS], const gb_lua_change *change);

/* lua_shadow.c: after a decision, answer as it was given and ns that it took; nothing of it changes. */
bool gb_lua_host_shadows(const gb_lua_host *host, const gb_lua_version *v);
bool gb_lua_host_watches(const gb_lua_host *host, gb_hook hook);
void gb_lua_host_shadow_select(gb_lua_host *host, const gb_request_row *request, const gb_engine_table *engines, int answer, uint64_t ns, gb_time now);
void gb_lua_host_shadow_order(gb_lua_host *host, const gb_queue_table *queue, int answer, uint64_t ns, gb_time now);
void gb_lua_host_shadow_decides(gb_lua_host *host, const gb_lua_version *v, const gb_lua_change *change);    /* its time as a shadow is over */
void gb_lua_watcher_free(gb_lua_watcher *watcher);

/* lua_record.c: after a decision, as a shadow sees it. */
void gb_lua_host_record_select(gb_lua_host *host, const gb_request_row *request, const gb_engine_table *engines, int answer, uint64_t ns, gb_time now);
void gb_lua_host_record_order(gb_lua_host *host, const gb_queue_table *queue, int answer, uint64_t ns, gb_time now);

/* lua_keep.c: into the store, when there is one. What is done at start is not recorded: it is done at the next start again. A change
   that the store cannot take is done all the same, with a warning. */
bool gb_lua_host_records(const gb_lua_host *host, const gb_lua_change *change);
int  gb_lua_host_keep(gb_lua_host *host, gb_lua_version *v, const char *who, gb_error *err);    /* its source and its put */
void gb_lua_host_record_seats(gb_lua_host *host, gb_lua_event_kind kind, const gb_lua_version *v, const bool hooks[GB_HOOKS], const gb_lua_change *change);
void gb_lua_host_record_quarantine(gb_lua_host *host, const gb_lua_version *v, gb_hook hook, const gb_lua_change *change);
void gb_lua_host_record_set(gb_lua_host *host, const gb_lua_version *v, const gb_lua_setting *setting, const gb_lua_change *change);

#endif
