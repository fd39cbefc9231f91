-- Placement baselines with known answers.
local testing = require("gimbal.testing")

local function shipped(name, params) return testing.load("lua/policies/" .. name .. ".lua", { params = params }) end

-- The two layers of the example in the README of deepseek-ai/EPLB.
local README = {
    { { 90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86 } }, { { 20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27 } },
}

local function ranks_of(slots, ranks)
    local rank_of = {}
    for i = #slots, 1, -1 do
        if slots[i] >= 0 then rank_of[slots[i] + 1] = math.floor((i - 1) * ranks / #slots) end
    end
    return rank_of
end

-- tokens[layer][source][expert], from count(layer, source, expert) in C's counting.
local function windows_of(layers, sources, experts, count)
    local tokens = {}
    for l = 1, layers do
        tokens[l] = {}
        for s = 1, sources do
            tokens[l][s] = {}
            for e = 1, experts do tokens[l][s][e] = count(l - 1, s - 1, e - 1) end
        end
    end
    return tokens
end

describe("eplb", function()
    it("gives both vectors of EPLB's README, slot by slot", function()
        local window = testing.window({ tokens = README, ranks = 8, slots_per_rank = 2 })
        assert.same({
            { 5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1 }, { 7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1 },
        }, testing.slots(shipped("eplb", { groups = 4, nodes = 2 }), window))
    end)

    it("leaves the slot of a second copy on one rank empty", function()
        local window = testing.window({ tokens = { README[1] }, ranks = 8, slots_per_rank = 2 })
        assert.same({ { 10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, -1 } }, testing.slots(shipped("eplb"), window))
    end)

    it("packs the heaviest first into the lightest rank with room when there are no spare slots", function()
        local window = testing.window({ tokens = { README[1] }, ranks = 4 })
        assert.same({ { 10, 3, 7, 5, 8, 6, 1, 11, 2, 4, 0, 9 } }, testing.slots(shipped("eplb"), window))
    end)

    it("does without a hierarchy when groups do not divide over nodes", function()
        local window = testing.window({ tokens = { README[1] }, ranks = 4 })
        assert.same(testing.slots(shipped("eplb"), window), testing.slots(shipped("eplb", { groups = 3, nodes = 2 }), window))
    end)

    it("refuses groups that cut experts and nodes that cut ranks", function()
        local window = testing.window({ tokens = { README[1] }, ranks = 4 })
        for _, params in ipairs({ { groups = 5 }, { nodes = 3 } }) do
            assert.error_matches(function() testing.slots(shipped("eplb", params), window) end, "experts must divide over params.groups")
        end
    end)

    it("looks at loads only: sources and homes change nothing", function()
        local a = testing.window({ tokens = { { { 9, 0, 3, 0 }, { 0, 5, 0, 1 } } }, ranks = 2 })
        local b = testing.window({ tokens = { { { 0, 5, 3, 0 }, { 9, 0, 0, 1 } } }, ranks = 2, home = { 1, 1, 0, 0 } })
        assert.same(testing.slots(shipped("eplb"), a), testing.slots(shipped("eplb"), b))
    end)

    it("forgets the layer before: every layer is placed as if it were alone", function()
        local policy, random = shipped("eplb"), testing.random(48)
        local tokens = windows_of(5, 2, 24, function() return random(1000) end)
        local together = testing.slots(policy, testing.window({ tokens = tokens, ranks = 4, spare = 2 }))
        for l = 1, 5 do
            assert.same({ together[l] }, testing.slots(policy, testing.window({ tokens = { tokens[l] }, ranks = 4, spare = 2 })))
        end
    end)
end)

describe("linear", function()
    it("puts consecutive experts on a rank, whatever the traffic and the homes", function()
        local random = testing.random(49)
        local home = {}
        for i = 1, 24 do home[i] = i % 4 end
        local window = testing.window({ tokens = windows_of(3, 2, 8, function() return random(100) end), ranks = 4, home = home })
        local expected = { 0, 0, 1, 1, 2, 2, 3, 3 }
        assert.same({ expected, expected, expected }, testing.place(shipped("linear"), window))
    end)
end)

describe("moetuner", function()
    -- Each source has experts of its own in every layer, at another place each time: all its tokens could stay on one rank.
    local function apart() return windows_of(6, 4, 8, function(l, s, e) return (e + 3 * l) % 4 == s and 100 or 0 end) end

    local function leaving(tokens, before, here, l)
        local moved = 0
        for s = 1, #tokens[l] do
            for i = 1, #before do
                for j = 1, #here do
                    if before[i] ~= here[j] then moved = moved + tokens[l - 1][s][i] * tokens[l][s][j] / 200 end
                end
            end
        end
        return moved
    end

    it("lets tokens stay on their rank from layer to layer", function()
        local tokens = apart()
        local placed = testing.slots(shipped("moetuner"), testing.window({ tokens = tokens, ranks = 4 }))
        for l = 3, 6 do -- the first layer was packed by load alone, so its sources may be spread
            assert.is_true(leaving(tokens, ranks_of(placed[l - 1], 4), ranks_of(placed[l], 4), l) <= 1e-9)
        end
    end)

    it("balances the ranks of a layer whose tokens come from nowhere in particular", function()
        local tokens = windows_of(2, 1, 16, function(_, _, e) return 100 / (e + 1) end)
        local placed = testing.slots(shipped("moetuner"), testing.window({ tokens = tokens, ranks = 4 }))
        local load, total = { 0, 0, 0, 0 }, 0
        for e, rank in ipairs(ranks_of(placed[2], 4)) do
            load[rank + 1], total = load[rank + 1] + tokens[2][1][e], total + tokens[2][1][e]
        end
        for r = 1, 4 do assert.is_true(load[r] <= 1.5 * total / 4) end
    end)

    it("uses no spare slots", function()
        for _, slots in ipairs(testing.slots(shipped("moetuner"), testing.window({ tokens = apart(), ranks = 4, spare = 1 }))) do
            for i = 3, 12, 3 do assert.equal(-1, slots[i]) end
        end
    end)
end)

describe("gimbal's placement", function()
    it("takes the rank of least traffic, fullness and movement", function()
        -- Expert 0 is used by source 1 alone, expert 3 by source 0 alone: they trade places, and nothing else moves.
        local window = testing.window({ tokens = { { { 0, 50, 50, 100 }, { 100, 50, 50, 0 } } }, ranks = 2 })
        assert.same({ { 1, 0, 1, 0 } }, testing.place(shipped("gimbal", { gamma = 0.5 }), window))
        assert.same({ { 0, 0, 1, 1 } }, testing.place(shipped("gimbal", { gamma = 2 }), window))
    end)
end)

describe("semmoe_oracle", function()
    local function request(session, tokens, ...) return { session = session, tokens = tokens, use = { ... } } end

    it("gives each request the engine whose experts it uses most", function()
        local policy = shipped("semmoe_oracle")
        assert.same({ [11] = 0, [12] = 1, [13] = 0, [14] = 1 }, policy.assign({
            request(11, 100, 90, 10), request(12, 100, 20, 80), request(13, 100, 70, 30), request(14, 100, 5, 95),
        }, 2))
    end)

    it("keeps equal budgets of tokens: who loses most by another engine chooses first", function()
        local policy = shipped("semmoe_oracle")
        assert.same({ [21] = 1, [22] = 0, [23] = 0, [24] = 1 }, policy.assign({
            request(21, 100, 60, 40), request(22, 100, 90, 10), request(23, 100, 80, 20), request(24, 100, 55, 45),
        }, 2))
    end)

    it("assigns every request, also one that is larger than a budget", function()
        local policy, random = shipped("semmoe_oracle"), testing.random(50)
        local profile, tokens = { request(1, 10000, 1, 2, 3) }, { 0, 0, 0 }
        for i = 2, 60 do profile[i] = request(i, 1 + random(300), random(), random(), random()) end
        local assignment = policy.assign(profile, 3)
        for _, r in ipairs(profile) do tokens[assignment[r.session] + 1] = tokens[assignment[r.session] + 1] + r.tokens end
        assert.equal(10000, math.max(tokens[1], tokens[2], tokens[3]))
    end)

    it("replays the map and leaves the others, and engines that are down, to the built-in", function()
        local policy = shipped("semmoe_oracle")
        local function select(session, rows)
            return testing.select(policy, testing.request({ session = session }), testing.engines(rows))
        end
        assert.is_nil(select(31, { {}, {} }))
        policy.replay({ [31] = 1, [32] = 0, [33] = 7 })
        assert.equal(1, select(31, { {}, {} }))
        assert.equal(0, select(32, { { running = 99 }, {} }))
        assert.is_nil(select(33, { {}, {} }))
        assert.is_nil(select(34, { {}, {} }))
        assert.is_nil(select(31, { {}, { healthy = 0 } }))
    end)

    it("places once, as moetuner does on the first window, whatever comes later", function()
        local random = testing.random(51)
        local function window() return testing.window({ tokens = windows_of(3, 2, 8, function() return random(100) end), ranks = 4 }) end
        local policy, first = shipped("semmoe_oracle"), window()
        local placed = testing.slots(policy, first)
        assert.same(testing.slots(shipped("moetuner"), first), placed)
        assert.same(placed, testing.slots(policy, window()))
    end)
end)
