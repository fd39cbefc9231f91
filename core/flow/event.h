/* What goes back out. Per request: GB_EVENT_TOKENs in order, then exactly one of
   GB_EVENT_DONE, GB_EVENT_FAILED, GB_EVENT_ABORTED. Pointers are the server's and live until the next poll. */
#ifndef GB_FLOW_EVENT_H
#define GB_FLOW_EVENT_H

#include <stddef.h>

#include "core/base/time.h"
#include "core/flow/ids.h"
#include "core/flow/sampling.h"

typedef enum gb_event_kind { GB_EVENT_TOKEN, GB_EVENT_DONE, GB_EVENT_FAILED, GB_EVENT_ABORTED } gb_event_kind;
typedef enum gb_finish { GB_FINISH_NONE, GB_FINISH_STOP, GB_FINISH_LENGTH } gb_finish;

typedef struct gb_logprobs {
    float chosen;                               /* natural log of the chosen token's probability, before any filter */
    uint32_t n;                                 /* most likely tokens, best first */
    int32_t ids[GB_TOP_LOGPROBS_MAX];
    float values[GB_TOP_LOGPROBS_MAX];
} gb_logprobs;

typedef struct gb_usage {
    uint32_t prompt_tokens, completion_tokens;
    uint32_t cached_tokens;                     /* prompt tokens not computed again thanks to the prefix cache */
} gb_usage;

typedef struct gb_timings {                     /* ns between the named moments; 0 when the second never came */
    gb_time queued, prefill, decode, total;     /* arrival-first scheduled, scheduled-first token, first-last token, arrival-end */
} gb_timings;

typedef struct gb_event {
    gb_event_kind kind;
    gb_request_id id;
    uint64_t tag;
    uint32_t engine;
    gb_time at;
    /* TOKEN: one token; text may be empty (held back for UTF-8 or a stop string). DONE: text that was held back. */
    uint32_t index;                             /* 0-based position in the completion */
    int32_t token;
    const char *text;
    size_t text_bytes;                          /* valid UTF-8 */
    const gb_logprobs *logprobs;                /* NULL unless asked for */
    /* the end */
    gb_finish finish;
    int status;                                 /* FAILED: why */
    int32_t stop_token;                         /* DONE by a stop id or end token; -1 otherwise */
    int32_t stop_string;                        /* DONE by a stop string: its index; -1 otherwise */
    gb_usage usage;
    gb_timings timings;
} gb_event;

#endif
