---@meta
-- What a policy sees, for editors with the Lua language server: put this folder into "workspace.library". No policy runs it.

--- A column of a view, counted from 0. Only reading is allowed.
---@alias gimbal.column table<integer, number>

--- A column that the hook writes; reading it back is allowed.
---@alias gimbal.output table<integer, number>

-- columns: made from core/flow/columns.h, see tests/flow/columns_doc_test.c

--- The latest trace of each engine; `i` in `0 .. engines.n - 1`.
---@class gimbal.engines
---@field n number engines: engines
---@field next number engine: the engine whose turn it is in rotating order
---@field running_prefill_tokens gimbal.column tokens: unfinished prompt tokens of running requests; at i
---@field waiting_prefill_tokens gimbal.column tokens: prompt tokens of waiting requests, cached or not; at i
---@field pending_tokens gimbal.column tokens: prompt tokens dispatched to the engine that its latest trace has not seen; at i
---@field kv_used_ratio gimbal.column 0..1: KV blocks held by requests over all KV blocks; what only the prefix cache keeps is not in use; at i
---@field kv_free_tokens gimbal.column tokens: positions that fit into KV blocks that no request holds; at i
---@field moe_pressure gimbal.column 1 = average: recent expert tokens on the engine's ranks over the mean of all engines; at i
---@field running gimbal.column requests: requests being served; at i
---@field waiting gimbal.column requests: requests waiting; at i
---@field oldest_wait_ns gimbal.column ns: how long the oldest waiting request has waited; at i
---@field preemptions gimbal.column count: preemptions since start; at i
---@field round_time_ns gimbal.column ns: duration of the engine's latest round; at i
---@field age_ns gimbal.column ns: age of the trace; 0 while nothing is in flight; at i
---@field valid gimbal.column 0 or 1: 1 once a trace exists; at i
---@field healthy gimbal.column 0 or 1: 0 when the engine is down; at i
---@field cached_tokens gimbal.column tokens: leading tokens of the request's prompt that are in the engine's prefix cache; at i
---@field pending gimbal.column requests: requests dispatched to the engine that its latest trace has not seen; at i
---@field kv_used_tokens gimbal.column tokens: positions in KV blocks that requests hold; at i

--- The request that select_engine decides about: numbers.
---@class gimbal.request
---@field prompt_tokens number tokens: length of the prompt
---@field max_tokens number tokens: most tokens it may generate
---@field priority number class: lower is more urgent
---@field session number hash: affinity hash of the caller's session; 0 = none
---@field deadline_ns number ns: time left to its deadline; inf = none

--- The waiting requests of one engine; `i` in `0 .. queue.n - 1`.
---@class gimbal.queue
---@field n number requests: waiting requests of the engine
---@field engine number engine: the engine whose queue it is
---@field prefill_tokens gimbal.column tokens: tokens before the first new token, cached or not; at i
---@field prompt_tokens gimbal.column tokens: length of the prompt; at i
---@field generated_tokens gimbal.column tokens: tokens generated before a preemption; at i
---@field max_tokens gimbal.column tokens: most tokens it may generate; at i
---@field wait_ns gimbal.column ns: time since arrival; at i
---@field priority gimbal.column class: lower is more urgent; at i
---@field deadline_ns gimbal.column ns: time left to its deadline; inf = none; at i
---@field preemptions gimbal.column count: how often it was preempted; at i
---@field promoted gimbal.column 0 or 1: 1 when it waited longer than the aging threshold and precedes all unpromoted requests; at i
---@field key gimbal.output any: written by order_queue; lower is served first; at i
---@field cached_tokens gimbal.column tokens: leading tokens of the request that are in the engine's prefix cache and need not be computed; at i

--- A profiling window: numbers, and columns of three lengths.
---@class gimbal.window
---@field n number rows: layers * sources * experts
---@field id number count: number of the window since start
---@field layers number layers: MoE layers
---@field sources number engines: engines whose tokens were routed
---@field experts number experts: experts of a layer
---@field duration_ns number ns: from its first round handed out to its last round back; 0 for placement hooks
---@field ranks number ranks: ranks that hold the experts
---@field capacity number experts: experts that a placement gives to each rank: experts / ranks
---@field expert_rows number rows: layers * experts
---@field link_rows number rows: sources * ranks
---@field tokens gimbal.column tokens: tokens of the source that the layer's router gave to the expert; at (layer * window.sources + source) * window.experts + expert
---@field expert_tokens gimbal.column tokens: tokens that the layer's router gave to the expert, of all sources; at layer * window.experts + expert
---@field home gimbal.column rank: the rank that holds the expert now; at layer * window.experts + expert
---@field link_cost gimbal.column 0 = own rank: what one token of the source costs on the rank; 1 = across nodes; at source * window.ranks + rank

--- The ranks as they look to one expert; `r` in `0 .. ranks.n - 1`, and the window in `ranks.window`.
---@class gimbal.ranks
---@field n number ranks: ranks
---@field expert_load number mean experts: tokens of the expert over those of a mean expert of its layer
---@field home number rank: the rank that holds the expert now
---@field load gimbal.column mean experts: load of the experts that are placed on the rank so far; at r
---@field free gimbal.column slots: experts that still fit on the rank; at r
---@field traffic gimbal.column mean experts: the expert's tokens times what they cost on the rank, over the tokens of a mean expert; at r
---@field score gimbal.output any: written by score_expert; the lowest takes the expert; at r
---@field window gimbal.window the window whose experts are placed

--- What placement_cost fills: one layer.
---@class gimbal.out
---@field n number rows: ranks * experts
---@field ranks number ranks: ranks that hold the experts
---@field experts number experts: experts of the layer
---@field slots number slots: places for experts: ranks times the slots of a rank, which are neighbours
---@field cost gimbal.output any: written by placement_cost: what the expert costs on the rank; at rank * out.experts + expert
---@field load gimbal.output mean experts: written by placement_cost: the expert's share in the load of its rank; at expert
---@field expert_of_slot gimbal.output expert: written by placement_cost instead of cost and load: what lives there, -1 = nothing; no search follows; at slot

-- end of columns

--- A policy file returns one. Any hook may be missing; a nil answer leaves the decision to the built-in.
---@class gimbal.policy
---@field api 1
---@field name string?
---@field params table<string, number|string|boolean>? settings with their defaults; `gimbal policy set` changes them while it runs
---@field select_engine (fun(request: gimbal.request, engines: gimbal.engines): integer?)? 0 .. engines.n - 1
---@field order_queue fun(queue: gimbal.queue)? writes queue.key[i]; lower is served first
---@field score_expert fun(layer: integer, expert: integer, ranks: gimbal.ranks)? writes ranks.score[r]; the lowest free rank takes the expert
---@field placement_cost fun(layer: integer, window: gimbal.window, out: gimbal.out)? writes out.cost and out.load, or out.expert_of_slot
---@field on_window fun(window: gimbal.window)? between decisions; may allocate
---@field export (fun(): any)? plain data for the policy that takes over
---@field import fun(state: any, from_version: integer)? of the policy that took over

gimbal = {}

--- The time of this decision in ns, on the server's clock.
---@return number
function gimbal.now() end

--- Seeded: in [0, 1), or a whole number of 0 .. n - 1.
---@param n integer?
---@return number
function gimbal.random(n) end

--- A line in the server's log, at most ten a second.
---@param text string|number
function gimbal.log(text) end

--- The table of a shipped policy, fresh: change a param or a hook of it and return it, or take a hook.
---@param name string
---@return gimbal.policy
function gimbal.shipped(name) end
