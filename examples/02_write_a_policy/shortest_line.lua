-- Sends a request to the engine with the shortest line, and serves first what has the least left to compute.
local policy = {
    api = 1,
    name = "shortest_line",
    params = {
        w_kv = 100, -- a full KV cache counts like so many waiting requests
    },
}

local params = policy.params

local function cost(engines, i) return engines.waiting[i] + params.w_kv * engines.kv_used_ratio[i] end

function policy.select_engine(_, engines)
    local best, best_cost
    for i = 0, engines.n - 1 do
        if engines.healthy[i] == 1 then
            local here = cost(engines, i)
            if not best or here < best_cost then best, best_cost = i, here end
        end
    end
    return best -- nil when every engine is down: the built-in decides
end

function policy.order_queue(queue)
    for i = 0, queue.n - 1 do
        queue.key[i] = queue.prefill_tokens[i] - queue.cached_tokens[i]
    end
end

return policy
