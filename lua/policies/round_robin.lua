-- Ordered dispatch: engines take turns, whatever their load. The core keeps the turn in engines.next and moves it after every
-- dispatch; an engine that is down is passed over.
local policy = { api = 1, name = "round_robin" }

local function first_healthy(engines, from, to)
    for i = from, to do
        if engines.healthy[i] ~= 0 then return i end
    end
    return nil
end

function policy.select_engine(_, engines)
    return first_healthy(engines, engines.next, engines.n - 1) or first_healthy(engines, 0, engines.next - 1)
end

return policy
