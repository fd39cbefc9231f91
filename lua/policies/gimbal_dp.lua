-- Gimbal without its placement: engines are selected and queues ordered as by gimbal, experts stay where they are, and no expert
-- pressure is fed back. One of the four configurations that tell what each part is worth; "Gimbal-DP" of the paper's ablation.
local policy = gimbal.shipped("gimbal")
policy.name = "gimbal_dp"
policy.params.w_moe = 0

function policy.score_expert(_, _, ranks)
    for r = 0, ranks.n - 1 do
        ranks.score[r] = r == ranks.home and 0 or 1
    end
end

return policy
