-- The engine with the most free KV cache takes the request.
local policy = { api = 1, name = "emptiest" }

function policy.select_engine(_, engines)
    local best
    for i = 0, engines.n - 1 do
        if engines.healthy[i] == 1 and (not best or engines.kv_free_tokens[i] > engines.kv_free_tokens[best]) then best = i end
    end
    return best
end

return policy
