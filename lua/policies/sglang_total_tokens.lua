-- SGLang's total_tokens: the engine with the fewest tokens, in its KV cache and in its line together; among equals the fewest
-- requests, then the lowest number.
-- Source: DPBudget in python/sglang/srt/managers/data_parallel_controller.py of sgl-project/sglang (load_balance_method
-- total_tokens, the name since pull request 16258). There a dispatch adds a request and its tokens until the next report; here
-- that is `pending` and `pending_tokens`. KV use counts whole blocks.
local policy = { api = 1, name = "sglang_total_tokens" }

local huge = math.huge

local function tokens(engines, i)
    return engines.kv_used_tokens[i] + engines.waiting_prefill_tokens[i] + engines.pending_tokens[i]
end

local function requests(engines, i) return engines.running[i] + engines.waiting[i] + engines.pending[i] end

function policy.select_engine(_, engines)
    local best, fewest_tokens, fewest_requests = nil, huge, huge
    for i = 0, engines.n - 1 do
        local t, r = tokens(engines, i), requests(engines, i)
        if engines.healthy[i] ~= 0 and (t < fewest_tokens or t == fewest_tokens and r < fewest_requests) then
            best, fewest_tokens, fewest_requests = i, t, r
        end
    end
    return best
end

return policy
