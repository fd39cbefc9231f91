-- Wrong on purpose: there is no column kv_used. Loading tries the hook on made-up tables and refuses the file.
local policy = { api = 1, name = "broken" }

function policy.select_engine(_, engines)
    return engines.kv_used[0] < engines.kv_used[engines.n - 1] and 0 or engines.n - 1
end

return policy
