-- Highest response ratio next: (wait + service) / service. Short requests go first, and a long one overtakes them once it has
-- waited as many times its own service: no fixed threshold, and nobody starves.
-- Source: Brinch Hansen, Short-Term Scheduling in Multiprogramming Systems (SOSP 1971). Service is the prefill that is not
-- cached, at the rate below; while nothing changes, the order is the same for every rate.
local policy = {
    api = 1,
    name = "hrrn",
    params = {
        prefill_tokens_per_second = 10000,
    },
}

local params = policy.params
local max = math.max

function policy.order_queue(queue)
    local ns_per_token = 1e9 / params.prefill_tokens_per_second
    for i = 0, queue.n - 1 do
        local service_ns = ns_per_token * max(1, queue.prefill_tokens[i] - queue.cached_tokens[i])
        queue.key[i] = -(queue.wait_ns[i] + service_ns) / service_ns
    end
end

return policy
