/* In which order a waiting line is served: keys from the policy when all are numbers, else from the built-in. */
#ifndef GB_SERVE_ORDER_H
#define GB_SERVE_ORDER_H

#include "core/serve/engine.h"
#include "core/serve/server.h"

/* Sorts a line that changed or aged since it was sorted; a clean one is left alone and no policy is asked. */
void gb_order_queue(gb_engine *engine, const gb_policy *policy, const gb_policy *builtin, gb_hook_stats *stats,
                    gb_queue_table *table, gb_time now);

#endif
