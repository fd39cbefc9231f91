-- After MoETuner: balanced ranks in every layer, and tokens that stay on their rank from one MoE layer to the next.
-- Source: Go and Mahajan, MoETuner (arXiv 2502.06643). Its integer program and formulas are not public beyond the abstract, so this
-- is ours after its idea. Windows hold no transitions between layers; they are estimated from the sources,
--     T[i][j] = sum_s A[l-1][s][i] A[l][s][j] / N[l-1][s].
-- Layer by layer: hottest expert first, to the rank of least (tokens that have to move there + w_load * the fullest rank); then
-- exchanges of two experts while they gain. It knows no current placement: offline, like the original.
local policy = { api = 1, name = "moetuner", params = { w_load = 4, passes = 2 } }

local params = policy.params
local max, huge, sort = math.max, math.huge, table.sort

-- Scratch, 0-based and reused. share[s * ranks + r]: the part of a source's tokens that sits on rank r after the layer before.
local order, load, cost, rank_of, rank_load, held, share = {}, {}, {}, {}, {}, {}, {}

local function hotter(a, b)
    if load[a] ~= load[b] then return load[a] > load[b] end
    return a < b
end

-- load[e] in mean experts, cost[r * E + e]: what of it has to come from other ranks. The first layer's tokens come from nowhere.
local function fill_numbers(window, layer)
    local E, R, S = window.experts, window.ranks, window.sources
    local total = 0
    for e = 0, E - 1 do total = total + window.expert_tokens[layer * E + e] end
    local per_mean = total > 0 and E / total or 0
    for e = 0, E - 1 do load[e] = per_mean * window.expert_tokens[layer * E + e] end
    for i = 0, R * E - 1 do cost[i] = 0 end
    if layer == 0 then return end
    for s = 0, S - 1 do
        for r = 0, R - 1 do
            local elsewhere = per_mean * (1 - share[s * R + r])
            for e = 0, E - 1 do cost[r * E + e] = cost[r * E + e] + elsewhere * window.tokens[(layer * S + s) * E + e] end
        end
    end
end

local function fullest(R)
    local most = 0
    for r = 0, R - 1 do most = max(most, rank_load[r]) end
    return most
end

local function cheapest_rank(window, e)
    local most, best, lowest = fullest(window.ranks), nil, huge
    for r = 0, window.ranks - 1 do
        local c = cost[r * window.experts + e] + params.w_load * (max(most, rank_load[r] + load[e]) - most)
        if held[r] < window.capacity and (c < lowest or c == lowest and rank_load[r] < rank_load[best]) then best, lowest = r, c end
    end
    return best
end

local function place_greedily(window)
    for i = 1, #order do order[i] = nil end
    for e = 0, window.experts - 1 do order[e + 1] = e end
    sort(order, hotter)
    for r = 0, window.ranks - 1 do rank_load[r], held[r] = 0, 0 end
    for k = 1, window.experts do
        local e = order[k]
        local r = cheapest_rank(window, e)
        rank_of[e], rank_load[r], held[r] = r, rank_load[r] + load[e], held[r] + 1
    end
end

-- What an exchange of two experts of different ranks saves: in tokens that move, and on the fullest rank.
local function gain_in_cost(E, i, j)
    local a, b = rank_of[i] * E, rank_of[j] * E
    return cost[a + i] + cost[b + j] - cost[b + i] - cost[a + j]
end

local top = {} -- the three fullest ranks: whichever two an exchange touches, one of them is the fullest of the rest

local function find_top(ranks)
    top[1], top[2], top[3] = nil, nil, nil
    for r = 0, ranks - 1 do
        if not top[1] or rank_load[r] > rank_load[top[1]] then
            top[1], top[2], top[3] = r, top[1], top[2]
        elseif not top[2] or rank_load[r] > rank_load[top[2]] then
            top[2], top[3] = r, top[2]
        elseif not top[3] or rank_load[r] > rank_load[top[3]] then
            top[3] = r
        end
    end
end

local function fullest_but(a, b)
    for k = 1, 3 do
        local r = top[k]
        if r and r ~= a and r ~= b then return rank_load[r] end
    end
    return 0
end

local function gain_in_load(i, j)
    local a, b, more = rank_of[i], rank_of[j], load[j] - load[i]
    return params.w_load * (rank_load[top[1]] - max(rank_load[a] + more, rank_load[b] - more, fullest_but(a, b)))
end

local function exchange(i, j)
    local a, b, more = rank_of[i], rank_of[j], load[j] - load[i]
    rank_of[i], rank_of[j] = b, a
    rank_load[a], rank_load[b] = rank_load[a] + more, rank_load[b] - more
end

-- No exchange brings the fullest rank below the mean: that bounds what a pair can save before its loads are looked at.
local function improve(window)
    local E, gained = window.experts, false
    local mean = E / window.ranks
    find_top(window.ranks)
    for i = 0, E - 2 do
        for j = i + 1, E - 1 do
            local saved = rank_of[i] ~= rank_of[j] and gain_in_cost(E, i, j) or -huge
            if saved + params.w_load * (rank_load[top[1]] - mean) > 1e-9 and saved + gain_in_load(i, j) > 1e-9 then
                exchange(i, j)
                find_top(window.ranks)
                gained = true
            end
        end
    end
    return gained
end

local function find_shares(window, layer)
    local E, R = window.experts, window.ranks
    for s = 0, window.sources - 1 do
        local first, total = (layer * window.sources + s) * E, 0
        for r = 0, R - 1 do share[s * R + r] = 0 end
        for e = 0, E - 1 do
            local tokens = window.tokens[first + e]
            share[s * R + rank_of[e]], total = share[s * R + rank_of[e]] + tokens, total + tokens
        end
        for r = 0, R - 1 do share[s * R + r] = total > 0 and share[s * R + r] / total or 0 end
    end
end

local function write(window, out)
    local per_rank = out.slots / window.ranks
    for r = 0, window.ranks - 1 do held[r] = 0 end
    for slot = 0, out.slots - 1 do out.expert_of_slot[slot] = -1 end
    for e = 0, window.experts - 1 do
        local r = rank_of[e]
        out.expert_of_slot[r * per_rank + held[r]] = e
        held[r] = held[r] + 1
    end
end

-- Layers are asked for in order, so the shares are those of the layer before.
function policy.placement_cost(layer, window, out)
    fill_numbers(window, layer)
    place_greedily(window)
    local passes = 1
    while improve(window) and passes < params.passes do passes = passes + 1 end
    find_shares(window, layer)
    write(window, out)
end

return policy
