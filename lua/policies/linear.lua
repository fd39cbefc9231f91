-- Consecutive experts on a rank, whatever the traffic: how every engine starts, and the yardstick for all others.
-- Source: the default layout of vllm-project/vllm and sgl-project/sglang.
local policy = { api = 1, name = "linear" }

-- Hottest first, but every expert finds room: only its own neighbours want that rank.
function policy.score_expert(_, expert, ranks)
    local capacity = ranks.window.capacity
    for r = 0, ranks.n - 1 do
        ranks.score[r] = expert - expert % capacity == r * capacity and 0 or 1
    end
end

return policy
