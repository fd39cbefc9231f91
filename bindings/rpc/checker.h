/* The seam between the service and who checks a policy script away from the loop: bindings/uv starts a process, tests answer by
   themselves. All calls are on the loop's thread. */
#ifndef GB_RPC_CHECKER_H
#define GB_RPC_CHECKER_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/time.h"

enum {
    GB_CHECK_REPORT_MAX = 1 << 20,      /* bytes of a report; a longer one is refused */
    GB_CHECKS_MAX = 4,                  /* at a time; the next call is OVERLOADED */
};

/* What is checked. snapshots: recorded decisions, one a line; may be empty. Borrowed until start returns. */
typedef struct gb_check_script {
    const char *name;                   /* how errors call it */
    const char *source, *snapshots;
    size_t source_bytes, snapshot_bytes;
    uint32_t engines;                   /* of this server */
} gb_check_script;

/* The end of a check: status 0 and the report of `gimbal policy check --json`, or why there is none. The text is borrowed. */
typedef void gb_check_done(void *self, int status, const char *report, size_t bytes, const gb_error *err, gb_time now);

typedef struct gb_checker_seam {
    void *self;
    /* done is called once, later, unless the job is cancelled. GB_EUNSUPPORTED when nobody can check here, GB_ENOMEM. */
    int (*start)(void *self, uint64_t *job, const gb_check_script *script, gb_check_done *done, void *done_self, gb_error *err);
    void (*cancel)(void *self, uint64_t job);
} gb_checker_seam;

#endif
