-- vLLM's data-parallel balancer since July 2026: the fewest requests in flight, with a charge on engines whose line waits for
-- KV memory, 6 * waiting * (kv - 0.5) above half of the cache. Scans begin one engine further each time, so that equals take
-- turns.
-- Source: DPLBAsyncMPClient in vllm/v1/engine/core_client.py of vllm-project/vllm, pull requests 49204 and 47420.
-- The original takes the larger of its own requests in flight and the published waiting + running, because a publication may
-- not know the latest dispatches. Here `pending` holds exactly those, so waiting + pending + running is that larger one.
local policy = {
    api = 1,
    name = "vllm",
    params = {
        w_kv = 6, -- a waiting request's charge for a whole cache above kv_soft
        kv_soft = 0.5, -- below this a line is passing, not stuck
    },
}

local params = policy.params
local max, huge = math.max, math.huge
local start = 0

local function score(engines, i)
    local waiting = engines.waiting[i] + engines.pending[i]
    return waiting + engines.running[i] + params.w_kv * waiting * max(0, engines.kv_used_ratio[i] - params.kv_soft)
end

function policy.select_engine(_, engines)
    local best, lowest = nil, huge
    for step = 0, engines.n - 1 do
        local i = (start + step) % engines.n
        if engines.healthy[i] ~= 0 and score(engines, i) < lowest then best, lowest = i, score(engines, i) end
    end
    start = (start + 1) % engines.n
    return best
end

function policy.export() return { start = start } end

function policy.import(state) start = type(state.start) == "number" and state.start or 0 end

return policy
