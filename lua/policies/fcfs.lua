-- First come, first served: the longest wait goes first.
local policy = { api = 1, name = "fcfs" }

function policy.order_queue(queue)
    local key, wait_ns = queue.key, queue.wait_ns
    for i = 0, queue.n - 1 do
        key[i] = -wait_ns[i]
    end
end

return policy
