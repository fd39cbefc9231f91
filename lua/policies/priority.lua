-- The lowest priority number first, then by arrival (the core's order among equal keys).
-- Source: the scheduling policy `priority` of vllm-project/vllm. The core still promotes what has waited longer than the aging
-- threshold (--aging-ms), so that no class starves.
local policy = { api = 1, name = "priority" }

function policy.order_queue(queue)
    for i = 0, queue.n - 1 do
        queue.key[i] = queue.priority[i]
    end
end

return policy
