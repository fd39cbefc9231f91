/* What a client asked, as it enters the serving core. */
#ifndef GB_FLOW_REQUEST_H
#define GB_FLOW_REQUEST_H

#include "core/base/time.h"
#include "core/flow/ids.h"
#include "core/flow/sampling.h"

typedef struct gb_request {
    const int32_t *tokens;    /* [n_tokens] prompt; borrowed for the call that submits it */
    uint32_t n_tokens;        /* >= 1 */
    int32_t priority;         /* lower is more urgent, as in vLLM; 0 by default */
    uint32_t session;         /* affinity hash of the caller's session; 0 = none */
    gb_time deadline;         /* GB_NEVER = none */
    uint64_t tag;             /* the caller's own; comes back in every event */
    const gb_sampling *sampling;
} gb_request;

#endif
