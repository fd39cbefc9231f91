/* Which engine takes a request: the policy's answer when it is one, else the built-in's. Moves the rotating cursor. */
#ifndef GB_SERVE_SELECT_H
#define GB_SERVE_SELECT_H

#include "core/serve/builtin.h"
#include "core/serve/server.h"

/* An engine that is up, or GB_POLICY_NIL when none is. tables->request and the engine columns are current. */
int gb_select_engine(const gb_policy *policy, const gb_policy *builtin, gb_hook_stats *stats, gb_tables *tables, gb_time now);

#endif
