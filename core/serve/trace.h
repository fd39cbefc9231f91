/* What an engine reports: a row of scalars taken at one moment and published into the engine table at the same or a later
   one. A trace carries the number of the last dispatch it has seen, so whoever publishes it knows which dispatches still have
   to be compensated; an older trace never replaces a newer one. */
#ifndef GB_SERVE_TRACE_H
#define GB_SERVE_TRACE_H

#include "core/flow/table.h"
#include "core/serve/engine.h"

/* Takes the trace number `seq` of an engine. */
void gb_trace_take(gb_trace *trace, const gb_engine *engine, uint64_t seq, gb_time round_time, double moe_pressure, gb_time now);

/* Makes it the engine's latest and recomputes pending and pending_tokens. False when a newer one is there already. */
bool gb_trace_publish(gb_engine *engine, gb_engine_table *table, const gb_trace *trace, const gb_pool *pool);

/* A request was dispatched to the engine, or ended before a trace saw it. */
void gb_trace_note_dispatch(gb_engine *engine, gb_engine_table *table, gb_live *live);
void gb_trace_note_withdrawal(gb_engine *engine, gb_engine_table *table, const gb_live *live);

/* Refreshes the ages: the time since a trace was taken; 0 while the engine has nothing in flight. */
void gb_trace_refresh_age(const gb_engine *engine, gb_engine_table *table, gb_time now);

#endif
