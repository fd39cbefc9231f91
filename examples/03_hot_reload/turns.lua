-- Engines take turns; an engine serves its longest wait first.
local policy = { api = 1, name = "turns" }

function policy.select_engine(_, engines) return engines.next end

function policy.order_queue(queue)
    for i = 0, queue.n - 1 do queue.key[i] = -queue.wait_ns[i] end
end

return policy
