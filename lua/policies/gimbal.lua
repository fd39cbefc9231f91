-- Gimbal's own policy, after Algorithms 1 and 2 of the paper and its placement score. The built-in rules in C
-- (core/serve/builtin.c, core/moe/greedy.c) give the same answers, and a test compares the two.
local policy = {
    api = 1,
    name = "gimbal",
    params = {
        w_wait = 1, -- a waiting prompt token, in tokens
        w_pending = 1, -- a dispatched prompt token that no trace has seen yet
        w_kv = 8192, -- all of the KV cache above kv_soft
        kv_soft = 0.70,
        w_moe = 2048, -- expert load of one average above the average
        near_tie_tokens = 64, -- scores this close to the lowest are a tie,
        near_tie_ratio = 0.05, -- or within this share of it
        kv_high = 0.90, -- an engine this full,
        kv_gap = 0.10, -- and this much fuller than another: the emptiest takes the request
        affinity_lead = 8, -- an engine ahead of a near-tie by more requests attracts nobody
        stale_after_ns = 1e9, -- an older trace says nothing
        alpha = 1, -- placement: tokens that leave their engine, in a mean expert's tokens
        beta = 0.0025, -- ranks that are fuller than others, by the square of a mean expert's load
        gamma = 1, -- an expert that moves
    },
}

local params = policy.params
local max, min, huge = math.max, math.min, math.huge

-- The work an engine has before it, in prefill tokens.
local function pressure(engines, i)
    return engines.running_prefill_tokens[i] + params.w_wait * engines.waiting_prefill_tokens[i]
        + params.w_pending * engines.pending_tokens[i]
        + params.w_kv * max(0, engines.kv_used_ratio[i] - params.kv_soft)
        + params.w_moe * max(0, engines.moe_pressure[i] - 1)
end

local function requests_on(engines, i) return engines.running[i] + engines.waiting[i] end

-- The next engine in turn. An engine that is down has no turn.
local function next_in_turn(engines)
    for step = 0, engines.n - 1 do
        local i = (engines.next + step) % engines.n
        if engines.healthy[i] ~= 0 then return i end
    end
    return nil
end

local cost = {} -- [engine] what the decision at hand compares; below no limit where an engine is down
local down = 0 / 0

-- Of the engines whose cost is at most limit: the fewest requests on one, and the most that a cache has of the prompt.
local function survey(engines, limit)
    local fewest, cached = huge, 0
    for i = 0, engines.n - 1 do
        if cost[i] <= limit then
            fewest, cached = min(fewest, requests_on(engines, i)), max(cached, engines.cached_tokens[i])
        end
    end
    return fewest, cached
end

-- Of the engines whose cost is at most limit the one whose cache has most of the prompt, else the session's own engine or the next
-- one after it, else the next in turn. An engine that is far ahead in requests comes last when one of the first two speaks, so
-- that an affinity draws no crowd.
local function choose_near(request, engines, limit)
    local n, fewest, cached = engines.n, survey(engines, limit)
    local session = request.session ~= 0
    local enough = (session or cached > 0) and fewest + params.affinity_lead or huge
    local i = session and request.session % n or engines.next
    local best, most = nil, -2
    for _ = 1, n do
        if cost[i] <= limit then
            if enough == huge then return i end -- nothing draws: the first in turn
            local draw = requests_on(engines, i) > enough and -1 or engines.cached_tokens[i]
            if draw > most then best, most = i, draw end
        end
        i = i + 1
        if i == n then i = 0 end
    end
    return best
end

local function choose_emptiest(request, engines, kv_lowest)
    for i = 0, engines.n - 1 do cost[i] = engines.healthy[i] ~= 0 and engines.kv_used_ratio[i] or down end
    return choose_near(request, engines, kv_lowest)
end

-- Algorithm 1: turns while a trace is missing, else the emptiest KV cache when one is in danger, else the lowest pressure.
function policy.select_engine(request, engines)
    local kv_lowest, kv_highest, lowest = huge, -huge, huge
    for i = 0, engines.n - 1 do
        if engines.healthy[i] == 0 then
            cost[i] = down
        else
            if engines.valid[i] == 0 or engines.age_ns[i] > params.stale_after_ns then return next_in_turn(engines) end
            local work, kv = pressure(engines, i), engines.kv_used_ratio[i]
            cost[i], lowest = work, min(lowest, work)
            kv_lowest, kv_highest = min(kv_lowest, kv), max(kv_highest, kv)
        end
    end
    if kv_highest > params.kv_high and kv_highest - kv_lowest > params.kv_gap then
        return choose_emptiest(request, engines, kv_lowest)
    end
    return choose_near(request, engines, lowest + max(params.near_tie_tokens, params.near_tie_ratio * lowest))
end

-- Algorithm 2: the shortest prefill first; what the prefix cache has is not computed again. The core promotes what has waited
-- longer than the aging threshold.
function policy.order_queue(queue)
    for i = 0, queue.n - 1 do
        queue.key[i] = queue.prefill_tokens[i] - queue.cached_tokens[i]
    end
end

-- Placement: communication, what the expert adds to the sum of squared loads, and its move. The core takes the hottest expert
-- first, and the lowest score among the ranks that have a free slot.
function policy.score_expert(_, _, ranks)
    local load, home, alpha, beta, gamma = ranks.expert_load, ranks.home, params.alpha, params.beta, params.gamma
    for r = 0, ranks.n - 1 do
        local move = r == home and 0 or gamma
        ranks.score[r] = alpha * ranks.traffic[r] + move + beta * load * (2 * ranks.load[r] + load)
    end
end

return policy
