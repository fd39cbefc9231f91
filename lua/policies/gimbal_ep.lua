-- Gimbal's placement alone: experts are placed as by gimbal, requests are dispatched by count and served first come, first served,
-- as vLLM did. One of the four configurations that tell what each part is worth; "Gimbal-EP" of the paper's ablation.
local policy = gimbal.shipped("gimbal")
policy.name = "gimbal_ep"
policy.select_engine = gimbal.shipped("vllm_legacy").select_engine
policy.order_queue = gimbal.shipped("fcfs").order_queue
return policy
