/* The columns a policy sees: the only source of their names, units and meaning. The C layout (table.h), the FFI text for
   Lua, the documentation and the api_info answer are made from these lists. Every column is an array of double, so that
   Lua sees one element type; counts stay exact up to 2^53. Add a column at the end of its list. X(name, unit, meaning); in lists with W, that is for what a hook writes. */
#ifndef GB_FLOW_COLUMNS_H
#define GB_FLOW_COLUMNS_H

/* One row per engine: its latest trace. Read-only. */
#define GB_ENGINE_COUNTS(X) \
    X(n, "engines", "engines") \
    X(next, "engine", "the engine whose turn it is in rotating order")
#define GB_ENGINE_COLUMNS(X) \
    X(running_prefill_tokens, "tokens", "unfinished prompt tokens of running requests") \
    X(waiting_prefill_tokens, "tokens", "prompt tokens of waiting requests, cached or not") \
    X(pending_tokens, "tokens", "prompt tokens dispatched to the engine that its latest trace has not seen") \
    X(kv_used_ratio, "0..1", "KV blocks held by requests over all KV blocks; what only the prefix cache keeps is not in use") \
    X(kv_free_tokens, "tokens", "positions that fit into KV blocks that no request holds") \
    X(moe_pressure, "1 = average", "recent expert tokens on the engine's ranks over the mean of all engines") \
    X(running, "requests", "requests being served") \
    X(waiting, "requests", "requests waiting") \
    X(oldest_wait_ns, "ns", "how long the oldest waiting request has waited") \
    X(preemptions, "count", "preemptions since start") \
    X(round_time_ns, "ns", "duration of the engine's latest round") \
    X(age_ns, "ns", "age of the trace; 0 while nothing is in flight") \
    X(valid, "0 or 1", "1 once a trace exists") \
    X(healthy, "0 or 1", "0 when the engine is down") \
    X(cached_tokens, "tokens", "leading tokens of the request's prompt that are in the engine's prefix cache") \
    X(pending, "requests", "requests dispatched to the engine that its latest trace has not seen") \
    X(kv_used_tokens, "tokens", "positions in KV blocks that requests hold")

/* The request that select_engine decides about: one row of scalars. Read-only. */
#define GB_REQUEST_COLUMNS(X) \
    X(prompt_tokens, "tokens", "length of the prompt") \
    X(max_tokens, "tokens", "most tokens it may generate") \
    X(priority, "class", "lower is more urgent") \
    X(session, "hash", "affinity hash of the caller's session; 0 = none") \
    X(deadline_ns, "ns", "time left to its deadline; inf = none")

/* One row per waiting request of one engine. Read-only, but for `key`, which order_queue fills: lower is served first. */
#define GB_QUEUE_COUNTS(X) \
    X(n, "requests", "waiting requests of the engine") \
    X(engine, "engine", "the engine whose queue it is")
#define GB_QUEUE_COLUMNS_OF(X, W) \
    X(prefill_tokens, "tokens", "tokens before the first new token, cached or not") \
    X(prompt_tokens, "tokens", "length of the prompt") \
    X(generated_tokens, "tokens", "tokens generated before a preemption") \
    X(max_tokens, "tokens", "most tokens it may generate") \
    X(wait_ns, "ns", "time since arrival") \
    X(priority, "class", "lower is more urgent") \
    X(deadline_ns, "ns", "time left to its deadline; inf = none") \
    X(preemptions, "count", "how often it was preempted") \
    X(promoted, "0 or 1", "1 when it waited longer than the aging threshold and precedes all unpromoted requests") \
    W(key, "any", "written by order_queue; lower is served first") \
    X(cached_tokens, "tokens", "leading tokens of the request that are in the engine's prefix cache and need not be computed")
#define GB_QUEUE_COLUMNS(X) GB_QUEUE_COLUMNS_OF(X, X)

/* A profiling window: the closed one for on_window, what to expect of the next one for placement hooks. Scalars, and columns of three
   lengths. Read-only. */
#define GB_WINDOW_SCALARS(X) \
    X(n, "rows", "layers * sources * experts") \
    X(id, "count", "number of the window since start") \
    X(layers, "layers", "MoE layers") \
    X(sources, "engines", "engines whose tokens were routed") \
    X(experts, "experts", "experts of a layer") \
    X(duration_ns, "ns", "from its first round handed out to its last round back; 0 for placement hooks") \
    X(ranks, "ranks", "ranks that hold the experts") \
    X(capacity, "experts", "experts that a placement gives to each rank: experts / ranks") \
    X(expert_rows, "rows", "layers * experts") \
    X(link_rows, "rows", "sources * ranks")
/* n rows, at (layer * sources + source) * experts + expert */
#define GB_WINDOW_COLUMNS(X) X(tokens, "tokens", "tokens of the source that the layer's router gave to the expert")
/* expert_rows rows, at layer * experts + expert */
#define GB_WINDOW_EXPERT_COLUMNS(X) \
    X(expert_tokens, "tokens", "tokens that the layer's router gave to the expert, of all sources") \
    X(home, "rank", "the rank that holds the expert now")
/* link_rows rows, at source * ranks + rank */
#define GB_WINDOW_LINK_COLUMNS(X) X(link_cost, "0 = own rank", "what one token of the source costs on the rank; 1 = across nodes")

/* The ranks while experts are placed one after the other, hottest first, as they look to the expert that score_expert decides about. One
   row per rank. Read-only, but for `score`, which score_expert fills: the free rank of the lowest takes the expert. */
#define GB_RANK_COUNTS(X) X(n, "ranks", "ranks")
#define GB_RANK_SCALARS(X) \
    X(expert_load, "mean experts", "tokens of the expert over those of a mean expert of its layer") \
    X(home, "rank", "the rank that holds the expert now")
#define GB_RANK_COLUMNS_OF(X, W) \
    X(load, "mean experts", "load of the experts that are placed on the rank so far") \
    X(free, "slots", "experts that still fit on the rank") \
    X(traffic, "mean experts", "the expert's tokens times what they cost on the rank, over the tokens of a mean expert") \
    W(score, "any", "written by score_expert; the lowest takes the expert")
#define GB_RANK_COLUMNS(X) GB_RANK_COLUMNS_OF(X, X)

/* What placement_cost fills for one layer; all of it can be written, and read back: numbers for the search, or whole slots. */
#define GB_COST_SCALARS(X) \
    X(n, "rows", "ranks * experts") \
    X(ranks, "ranks", "ranks that hold the experts") \
    X(experts, "experts", "experts of the layer") \
    X(slots, "slots", "places for experts: ranks times the slots of a rank, which are neighbours")
/* n rows, at rank * experts + expert */
#define GB_COST_COLUMNS(X) X(cost, "any", "written by placement_cost: what the expert costs on the rank")
/* experts rows, at expert */
#define GB_COST_EXPERT_COLUMNS(X) X(load, "mean experts", "written by placement_cost: the expert's share in the load of its rank")
/* slots rows, at slot */
#define GB_COST_SLOT_COLUMNS(X) \
    X(expert_of_slot, "expert", "written by placement_cost instead of cost and load: what lives there, -1 = nothing; no search follows")

#endif
