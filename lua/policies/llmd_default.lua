-- llm-d's default profile: 2 * queue + 2 * kv + 3 * prefix, each from 0 to 1, the highest wins and equals are drawn at random.
--     queue    (longest line - this line) / (longest - shortest), 1 when all are equal
--     kv       the free share of the KV cache
--     prefix   the cached share of the prompt
-- Source: queue-scorer, kv-cache-utilization-scorer, prefix-cache-scorer and max-score-picker of llm-d/llm-d-inference-scheduler
-- with its default weights. It looks at what engines report and adds nothing for its own dispatches.
local policy = { api = 1, name = "llmd_default", params = { w_queue = 2, w_kv = 2, w_prefix = 3 } }

local params = policy.params
local max, min, huge = math.max, math.min, math.huge

local function line_bounds(engines)
    local shortest, longest = huge, -huge
    for i = 0, engines.n - 1 do
        if engines.healthy[i] ~= 0 then
            shortest, longest = min(shortest, engines.waiting[i]), max(longest, engines.waiting[i])
        end
    end
    return shortest, longest
end

local function score(request, engines, i, shortest, longest)
    local queue = longest > shortest and (longest - engines.waiting[i]) / (longest - shortest) or 1
    return params.w_queue * queue + params.w_kv * (1 - engines.kv_used_ratio[i])
        + params.w_prefix * engines.cached_tokens[i] / request.prompt_tokens
end

function policy.select_engine(request, engines)
    local shortest, longest = line_bounds(engines)
    local best, highest, equals = nil, -huge, 0
    for i = 0, engines.n - 1 do
        local total = engines.healthy[i] ~= 0 and score(request, engines, i, shortest, longest) or -huge
        if total > highest then
            best, highest, equals = i, total, 1
        elseif total == highest and best then
            equals = equals + 1
            if gimbal.random(equals) == 0 then best = i end -- each of them with the same chance
        end
    end
    return best
end

return policy
