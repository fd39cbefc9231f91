-- DeepSeek's expert parallelism load balancer: it looks at loads only, at neither sources nor where experts are now.
--     1. with groups that divide over the nodes: pack groups to nodes, by load
--     2. on each node: the expert with the most load per copy gets one more copy, until the slots are used up
--     3. pack copies to the node's ranks
-- To pack is: heaviest first, into the lightest pack with room. Where the original leaves ties open, the lower index wins.
-- Source: eplb.py of deepseek-ai/EPLB (rebalance_experts). A second copy on one rank would serve nobody: its slot stays empty.
local policy = { api = 1, name = "eplb", params = { groups = 1, nodes = 1 } }

local params = policy.params
local sort = table.sort

-- Scratch, 0-based and reused from layer to layer, so that a rearrangement makes no garbage.
local order, weight = {}, {}
local pack_of, place_in, pack_weight, pack_held = {}, {}, {}, {}

local function heavier(a, b)
    if weight[a] ~= weight[b] then return weight[a] > weight[b] end
    return a < b
end

local function lightest_with_room(packs, room)
    local best
    for p = 0, packs - 1 do
        if pack_held[p] < room and (not best or pack_weight[p] < pack_weight[best]) then best = p end
    end
    return best
end

-- Items 0 .. n-1 of weight[] into packs of n / packs each: fills pack_of and place_in. One item a pack: as they are.
local function pack(n, packs)
    for i = 1, #order do order[i] = nil end
    for i = 0, n - 1 do order[i + 1], pack_of[i], place_in[i] = i, i, 0 end
    if n == packs then return end
    sort(order, heavier)
    for p = 0, packs - 1 do pack_weight[p], pack_held[p] = 0, 0 end
    for k = 1, n do
        local item = order[k]
        local p = lightest_with_room(packs, n / packs)
        pack_of[item], place_in[item] = p, pack_held[p]
        pack_weight[p], pack_held[p] = pack_weight[p] + weight[item], pack_held[p] + 1
    end
end

local node_major = {} -- experts as they stand when groups stand by node

local function order_by_node(window, layer, groups, nodes)
    local experts = window.experts
    local size, groups_per_node = experts / groups, groups / nodes
    for g = 0, groups - 1 do weight[g] = 0 end
    for e = 0, experts - 1 do
        local g = (e - e % size) / size
        weight[g] = weight[g] + window.expert_tokens[layer * experts + e]
    end
    pack(groups, nodes)
    for e = 0, experts - 1 do
        local g = (e - e % size) / size
        node_major[(pack_of[g] * groups_per_node + place_in[g]) * size + e % size] = e
    end
end

local load, copies, expert_of = {}, {}, {}

-- expert_of[0 .. slots-1]: every expert once, then again and again the one with the most load per copy.
local function replicate(experts, slots)
    for e = 0, experts - 1 do expert_of[e], copies[e] = e, 1 end
    for i = experts, slots - 1 do
        local hottest = 0
        for e = 1, experts - 1 do
            if load[e] / copies[e] > load[hottest] / copies[hottest] then hottest = e end
        end
        expert_of[i], copies[hottest] = hottest, copies[hottest] + 1
    end
end

local function put(out, first, last, slot, expert)
    for i = first, last do
        if out.expert_of_slot[i] == expert then expert = -1 end
    end
    out.expert_of_slot[slot] = expert
end

local function place_node(window, layer, node, nodes, out)
    local experts, slots, ranks = window.experts / nodes, out.slots / nodes, window.ranks / nodes
    local per_rank = slots / ranks
    for e = 0, experts - 1 do load[e] = window.expert_tokens[layer * window.experts + node_major[node * experts + e]] end
    replicate(experts, slots)
    for i = 0, slots - 1 do weight[i] = load[expert_of[i]] / copies[expert_of[i]] end
    pack(slots, ranks)
    for i = 0, slots - 1 do
        local first = node * slots + pack_of[i] * per_rank
        put(out, first, first + place_in[i] - 1, first + place_in[i], node_major[node * experts + expert_of[i]])
    end
end

local function check_shape(window, groups, nodes)
    if window.experts % groups ~= 0 or window.ranks % nodes ~= 0 then
        error("eplb: experts must divide over params.groups, ranks over params.nodes")
    end
end

function policy.placement_cost(layer, window, out)
    local groups, nodes = params.groups, params.nodes
    check_shape(window, groups, nodes)
    if groups % nodes ~= 0 then groups, nodes = 1, 1 end -- as published: then without a hierarchy
    order_by_node(window, layer, groups, nodes)
    for node = 0, nodes - 1 do place_node(window, layer, node, nodes, out) end
end

return policy
