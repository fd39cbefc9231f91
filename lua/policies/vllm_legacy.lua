-- vLLM's data-parallel balancer until July 2026: 4 * waiting + running, the lowest wins, and the first of equals counted from
-- a fixed engine. It counts requests, so a long prompt weighs as much as a short one.
-- Source: DPLBAsyncMPClient in vllm/v1/engine/core_client.py of vllm-project/vllm, before pull request 49204.
-- There a dispatch raises the client's own copy of `waiting`, which the next publication overwrites; here that is `pending`,
-- which a trace acknowledges by sequence, so that a burst is never forgotten half-way.
local policy = {
    api = 1,
    name = "vllm_legacy",
    params = {
        first = 0, -- where each scan begins: engines * client / clients in vLLM, 0 for its only client
    },
}

local params = policy.params
local huge = math.huge

local function score(engines, i) return 4 * (engines.waiting[i] + engines.pending[i]) + engines.running[i] end

function policy.select_engine(_, engines)
    local best, lowest = nil, huge
    for step = 0, engines.n - 1 do
        local i = (params.first + step) % engines.n
        if engines.healthy[i] ~= 0 and score(engines, i) < lowest then best, lowest = i, score(engines, i) end
    end
    return best
end

return policy
