-- Longest prefix first: the request with the most cached tokens is served before their blocks are given to others. Waiting
-- earns tokens too, so that a request without any hit overtakes the stream of hits after a while; and the core promotes
-- whoever has waited longer than the aging threshold.
local policy = {
    api = 1,
    name = "lpm",
    params = {
        wait_tokens_per_second = 1024, -- what a second of waiting is worth, in cached tokens
    },
}

local params = policy.params

function policy.order_queue(queue)
    local tokens_per_ns = params.wait_tokens_per_second / 1e9
    for i = 0, queue.n - 1 do
        queue.key[i] = -(queue.cached_tokens[i] + tokens_per_ns * queue.wait_ns[i])
    end
end

return policy
