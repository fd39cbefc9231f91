-- Gimbal's parts side by side: selection, order and placement as by gimbal, but the selection does not know of expert pressure.
-- One of the four configurations that tell what each part is worth; "Gimbal-All (No Collaboration)" of the paper's ablation.
local policy = gimbal.shipped("gimbal")
policy.name = "gimbal_nocollab"
policy.params.w_moe = 0
return policy
