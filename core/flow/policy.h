/* The policy seam: functions that read the live tables and return an answer. The core checks every answer; a missing
   hook, GB_POLICY_NIL or a bad answer is decided by the built-in policy, for that decision only. Hooks run on the loop
   thread, get the time, and must not keep pointers. */
#ifndef GB_FLOW_POLICY_H
#define GB_FLOW_POLICY_H

#include "core/base/time.h"
#include "core/flow/table.h"

enum {
    GB_POLICY_NIL = -1,      /* no opinion */
    GB_POLICY_FAULT = -2,    /* the policy failed; whoever runs it has recorded why */
};

/* The last two decide placements; whoever rearranges experts asks them (core/moe/rearrange.h), not the serving core. */
typedef enum gb_hook { GB_HOOK_SELECT, GB_HOOK_ORDER, GB_HOOK_SCORE, GB_HOOK_COST, GB_HOOKS } gb_hook;

#define GB_HOOK_CHOICES "select_engine, order_queue, score_expert or placement_cost"    /* where one is named */

const char *gb_hook_name(gb_hook hook);    /* "select_engine", "order_queue", "score_expert", "placement_cost" */

enum { GB_HOOK_NAMES_BYTES = 128 };
void gb_hook_names(char out[GB_HOOK_NAMES_BYTES]);    /* all of them for a sentence: "select_engine, ... and placement_cost" */

typedef struct gb_policy {
    const char *name;
    uint32_t version;    /* 0 for built-ins */
    void *self;
    /* Returns an engine 0..n-1, or GB_POLICY_*. May be NULL. */
    int (*select_engine)(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now);
    /* Fills queue->key[0..n-1] with finite numbers and returns 0, or GB_POLICY_*. May be NULL. */
    int (*order_queue)(void *self, gb_queue_table *queue, gb_time now);
} gb_policy;

#endif
