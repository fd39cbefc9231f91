/* A number for what a decision saw, so that two entries of the decision log, or an entry and a recorded table, can be told to be of the
   same inputs: the same columns give the same digest, others hardly ever. It costs about half a nanosecond a value, so only the first
   GB_LUA_DIGEST_ROWS rows count (and how many there are). The time and the keys that order_queue writes are no inputs. Pure. */
#ifndef GB_LUA_DIGEST_H
#define GB_LUA_DIGEST_H

#include "core/flow/table.h"

enum { GB_LUA_DIGEST_ROWS = 16 };

uint64_t gb_lua_digest_select(const gb_request_row *request, const gb_engine_table *engines);
uint64_t gb_lua_digest_order(const gb_queue_table *queue);

#endif
