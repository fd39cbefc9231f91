-- After Sem-MoE, as an oracle: experts are placed once, from the first window, and requests go where most of their experts live, as
-- if their expert use were known in advance. The knowledge comes from an earlier run of the same requests; what is replayed is a map
-- from sessions to engines. Requests that it does not know are left to the built-in.
--     local oracle = gimbal.shipped("semmoe_oracle")
--     oracle.replay({ [7131071] = 0, [9221120] = 1 })    -- or oracle.replay(oracle.assign(profile, 2))
--     return oracle
-- Source: Li et al., Semantic Parallelism (Sem-MoE, arXiv 2503.04398), and how the paper of Gimbal measures it: static placement
-- after MoETuner, then for each request the engine that owns most of what it uses, under equal budgets of tokens.
local policy = { api = 1, name = "semmoe_oracle" }

local tuned = gimbal.shipped("moetuner").placement_cost
local engine_of, kept = {}, {}

function policy.replay(assignment) engine_of = assignment end

-- The engine with room of which the request uses most, and how much more than of the next best.
local function choose(request, left)
    local best, most, second = nil, -math.huge, -math.huge
    for engine = 1, #left do
        local use = left[engine] > 0 and request.use[engine] or -math.huge
        if use > most then
            best, most, second = engine, use, most
        elseif use > second then
            second = use
        end
    end
    return best, second > -math.huge and most - second or math.huge
end

-- profile: a list of {session, tokens, use}, where use[engine + 1] counts the request's tokens for experts that live with an engine.
-- Who loses most by another engine chooses first; an engine takes requests until it has its share of all tokens.
function policy.assign(profile, engines)
    local total, left, waiting, assignment = 0, {}, {}, {}
    for i, request in ipairs(profile) do total, waiting[i] = total + request.tokens, request end
    for engine = 1, engines do left[engine] = total / engines end
    while #waiting > 0 do
        local first, first_best, highest = 1, 1, -math.huge
        for i, request in ipairs(waiting) do
            local best, regret = choose(request, left)
            if best and regret > highest then first, first_best, highest = i, best, regret end
        end
        local request = table.remove(waiting, first)
        assignment[request.session] = first_best - 1
        left[first_best] = left[first_best] - request.tokens
    end
    return assignment
end

function policy.select_engine(request, engines)
    local engine = engine_of[request.session]
    return engine and engine < engines.n and engines.healthy[engine] ~= 0 and engine or nil
end

function policy.placement_cost(layer, window, out)
    local slots = kept[layer]
    if slots and #slots == out.slots then
        for i = 1, #slots do out.expert_of_slot[i - 1] = slots[i] end
        return
    end
    tuned(layer, window, out)
    kept[layer] = {}
    for i = 1, out.slots do kept[layer][i] = out.expert_of_slot[i - 1] end
end

return policy
