-- NVIDIA Dynamo's KV router: the lowest cost in KV blocks wins,
--     prefill_load_scale * max(0, prefill - overlap) + decode + active_request_weight * requests
--     prefill    prompt tokens that the engine has yet to compute, this prompt included
--     overlap    overlap_credit * cached blocks of this prompt; with overlap_decay > 0 less where others have less prefill
--     decode     blocks of the requests that the engine has
-- or, with temperature > 0, a draw by softmax of the costs over their range.
-- Source: DefaultWorkerSelector in lib/kv-router/src/scheduling/selector.rs of ai-dynamo/dynamo and its default configuration.
-- The decode term leaves this request's own blocks out: they are the same on every engine. Host and disk tiers do not exist here.
local policy = {
    api = 1,
    name = "dynamo_kv",
    params = {
        block_tokens = 16,
        overlap_credit = 1, -- blocks saved by a cached block
        overlap_decay = 0,
        prefill_load_scale = 1,
        active_request_weight = 0, -- blocks that a request is charged
        temperature = 0,
    },
}

local params = policy.params
local ceil, exp, max, min, huge = math.ceil, math.exp, math.max, math.min, math.huge

local function active_prefill(engines, i)
    return engines.running_prefill_tokens[i] + engines.waiting_prefill_tokens[i] + engines.pending_tokens[i]
end

-- Waiting requests hold no blocks yet and are counted as if they did.
local function active_tokens(engines, i)
    return engines.kv_used_tokens[i] + engines.waiting_prefill_tokens[i] + engines.pending_tokens[i]
end

local function requests(engines, i) return engines.running[i] + engines.waiting[i] + engines.pending[i] end

local function least_prefill(engines)
    local least = huge
    for i = 0, engines.n - 1 do
        if engines.healthy[i] ~= 0 then least = min(least, active_prefill(engines, i)) end
    end
    return least
end

local function cost(request, engines, i, least)
    local block = params.block_tokens
    local excess = (active_prefill(engines, i) - least) / block / ceil(request.prompt_tokens / block)
    local credit = params.overlap_credit / (1 + params.overlap_decay * excess)
    local prefill = (active_prefill(engines, i) + request.prompt_tokens) / block - credit * engines.cached_tokens[i] / block
    return params.prefill_load_scale * max(0, prefill) + active_tokens(engines, i) / block
        + params.active_request_weight * requests(engines, i)
end

local function cost_range(request, engines, least)
    local best, lowest, highest = nil, huge, -huge
    for step = 0, engines.n - 1 do
        local i = (engines.next + step) % engines.n
        if engines.healthy[i] ~= 0 then
            local c = cost(request, engines, i, least)
            if c < lowest then best, lowest = i, c end
            highest = max(highest, c)
        end
    end
    return best, lowest, highest
end

-- Between equal costs every weight is 1.
local function weight(request, engines, i, least, lowest, highest)
    if engines.healthy[i] == 0 then return 0 end
    if highest == lowest then return 1 end
    return exp((lowest - cost(request, engines, i, least)) / ((highest - lowest) * params.temperature))
end

local function draw(request, engines, least, lowest, highest)
    local total = 0
    for i = 0, engines.n - 1 do total = total + weight(request, engines, i, least, lowest, highest) end
    local left, last = gimbal.random() * total, nil
    for i = 0, engines.n - 1 do
        local w = weight(request, engines, i, least, lowest, highest)
        if w > 0 then
            if left < w then return i end
            left, last = left - w, i
        end
    end
    return last -- what rounding left over
end

function policy.select_engine(request, engines)
    local least = least_prefill(engines)
    local best, lowest, highest = cost_range(request, engines, least)
    if not best or params.temperature <= 0 then return best end
    return draw(request, engines, least, lowest, highest)
end

return policy
