-- Published rules with known answers: what each project's own texts and reports say it does.
local testing = require("gimbal.testing")

local SECOND = 1e9

local function shipped(name, params) return testing.load("lua/policies/" .. name .. ".lua", { params = params }) end

local function select_with(policy, rows, request, next_engine)
    return testing.select(policy, testing.request(request), testing.engines(rows, next_engine))
end

-- How many of n requests each engine gets while no trace arrives.
local function burst(policy, rows, n)
    local taken, turn = {}, 0
    for i = 1, #rows do taken[i] = 0 end
    for _ = 1, n do
        local engine = select_with(policy, rows, nil, turn)
        taken[engine + 1] = taken[engine + 1] + 1
        rows[engine + 1].pending = (rows[engine + 1].pending or 0) + 1
        turn = (engine + 1) % #rows
    end
    return taken
end

-- One engine has a single prompt of 10,000 tokens before it, the other two of 1,000.
local function long_against_short()
    return { { waiting = 1, waiting_prefill_tokens = 10000 }, { waiting = 2, waiting_prefill_tokens = 2000 } }
end

describe("vllm_legacy", function()
    it("scores 4 * waiting + running", function()
        local rows = { { waiting = 2, running = 1 }, { waiting = 1, running = 4 }, { running = 9 } }
        assert.equal(1, select_with(shipped("vllm_legacy"), rows))
        assert.equal(0, select_with(shipped("vllm_legacy"), { { waiting = 1 }, { running = 5 } }))
    end)

    it("always takes the first of equals", function()
        local policy = shipped("vllm_legacy")
        for turn = 0, 2 do assert.equal(0, select_with(policy, { {}, {}, {} }, nil, turn)) end
        assert.equal(2, select_with(shipped("vllm_legacy", { first = 2 }), { {}, {}, {} }))
    end)

    it("charges a dispatch as a waiting request until a trace has seen it", function()
        assert.same({ 2, 2, 0 }, burst(shipped("vllm_legacy"), { { running = 0 }, { running = 1 }, { running = 9 } }, 4))
    end)

    it("is blind to tokens: one prompt of 10,000 looks shorter than two of 1,000", function()
        assert.equal(0, select_with(shipped("vllm_legacy"), long_against_short()))
    end)
end)

describe("vllm", function()
    it("takes the fewest requests in flight", function()
        local rows = { { running = 5 }, { running = 2, waiting = 1, pending = 1 }, { running = 3, waiting = 2 } }
        assert.equal(1, select_with(shipped("vllm"), rows))
    end)

    it("charges waiting requests from nothing at half a cache to three each at a full one", function()
        local policy = shipped("vllm")
        assert.equal(0, select_with(policy, { { waiting = 4, kv_used_ratio = 0.5 }, { running = 5 } }))
        assert.equal(1, select_with(policy, { { waiting = 4, kv_used_ratio = 1 }, { running = 15 } })) -- 4 + 12 against 15
        assert.equal(0, select_with(policy, { { waiting = 4, kv_used_ratio = 1 }, { running = 17 } }))
        assert.equal(0, select_with(policy, { { running = 15, kv_used_ratio = 1 }, { running = 16 } })) -- nobody waits
    end)

    it("begins one engine further each time, so that equals take turns", function()
        local policy, taken = shipped("vllm"), {}
        for i = 1, 6 do taken[i] = select_with(policy, { {}, {}, {} }) end
        assert.same({ 0, 1, 2, 0, 1, 2 }, taken)
    end)

    it("spreads a burst that no trace has seen", function()
        assert.same({ 16, 16, 16, 16 }, burst(shipped("vllm"), { {}, {}, {}, {} }, 64))
    end)

    it("hands its turn on to the version that follows it", function()
        local old, new = shipped("vllm"), shipped("vllm")
        select_with(old, { {}, {}, {} })
        new.import(old.export())
        assert.equal(1, select_with(new, { {}, {}, {} }))
    end)
end)

describe("p2c", function()
    it("takes the shorter line of two engines", function()
        local policy = shipped("p2c")
        for _ = 1, 50 do
            assert.equal(1, select_with(policy, { { running = 2, waiting = 1 }, { running = 1, pending = 1 } }))
        end
    end)

    it("draws pairs of two different engines, each equally often", function()
        local policy, taken = shipped("p2c"), { 0, 0, 0, 0 }
        for _ = 1, 12000 do
            local engine = select_with(policy, { { running = 1 }, { running = 2 }, { running = 3 }, { running = 4 } })
            taken[engine + 1] = taken[engine + 1] + 1
        end
        for i, pairs_won in ipairs({ 3, 2, 1, 0 }) do -- of six pairs
            assert.is_true(math.abs(taken[i] - 2000 * pairs_won) < 200)
        end
    end)

    it("never draws an engine that is down", function()
        local policy = shipped("p2c")
        for _ = 1, 50 do
            assert.equal(2, select_with(policy, { { healthy = 0 }, { running = 9 }, { running = 3 } }))
            assert.equal(1, select_with(policy, { { healthy = 0 }, { running = 9 } }))
        end
    end)
end)

describe("sglang_total_tokens", function()
    it("takes the fewest tokens, in the cache and in the line together", function()
        local rows = {
            { kv_used_tokens = 5000, waiting_prefill_tokens = 100 }, { kv_used_tokens = 1000, waiting_prefill_tokens = 4000 },
            { kv_used_tokens = 0, waiting_prefill_tokens = 0, pending_tokens = 5001 },
        }
        assert.equal(1, select_with(shipped("sglang_total_tokens"), rows))
        assert.equal(1, select_with(shipped("sglang_total_tokens"), long_against_short()))
    end)

    it("takes the fewest requests among equals, then the lowest number", function()
        local policy = shipped("sglang_total_tokens")
        local rows = {
            { kv_used_tokens = 64, running = 4 }, { kv_used_tokens = 64, running = 2, pending = 1 }, { kv_used_tokens = 64, running = 3 },
        }
        assert.equal(1, select_with(policy, rows))
        for turn = 0, 1 do assert.equal(0, select_with(policy, { {}, {} }, nil, turn)) end
    end)
end)

describe("llmd_default", function()
    it("weighs queue, KV cache and prefix with 2, 2 and 3", function()
        local rows = {
            { waiting = 0, kv_used_ratio = 0.8 }, -- 2 + 0.4
            { waiting = 4, kv_used_ratio = 0.2, cached_tokens = 50 }, -- 1 + 1.6 + 1.5
            { waiting = 8, kv_used_ratio = 0, cached_tokens = 60 }, -- 0 + 2 + 1.8
        }
        assert.equal(1, select_with(shipped("llmd_default"), rows, { prompt_tokens = 100 }))
        rows[1].kv_used_ratio = 0 -- 4
        rows[2].kv_used_ratio = 0.3 -- 3.9
        assert.equal(0, select_with(shipped("llmd_default"), rows, { prompt_tokens = 100 }))
    end)

    it("scores lines relative to each other: one request more counts as much as a hundred", function()
        local policy = shipped("llmd_default")
        for _, longer in ipairs({ 1, 100 }) do
            local rows = { { kv_used_ratio = 0.9 }, { waiting = longer } }
            assert.equal(0, select_with(policy, rows)) -- 2.2 against 2
            rows[2].cached_tokens = 1
            assert.equal(1, select_with(policy, rows, { prompt_tokens = 1 })) -- 2.2 against 5
        end
    end)

    it("draws between equals, each equally often", function()
        local policy, taken = shipped("llmd_default"), { 0, 0, 0 }
        for _ = 1, 6000 do
            local engine = select_with(policy, { {}, {}, { healthy = 0 }, {} })
            taken[engine == 3 and 3 or engine + 1] = taken[engine == 3 and 3 or engine + 1] + 1
        end
        for i = 1, 3 do assert.is_true(math.abs(taken[i] - 2000) < 200) end
    end)
end)

describe("dynamo_kv", function()
    -- Of the router's documentation: 10 blocks of prefill; 8 + 10, 5 + 5 and 2 + 9 blocks of cost.
    local function documented()
        return {
            { cached_tokens = 2 * 16, kv_used_tokens = 10 * 16 }, { cached_tokens = 5 * 16, kv_used_tokens = 5 * 16 },
            { cached_tokens = 8 * 16, kv_used_tokens = 9 * 16 },
        }
    end
    local prompt = { prompt_tokens = 160 }

    it("takes the lowest cost of the documented example", function()
        local rows = documented()
        assert.equal(1, select_with(shipped("dynamo_kv"), rows, prompt))
        table.remove(rows, 2)
        assert.equal(1, select_with(shipped("dynamo_kv"), rows, prompt))
    end)

    it("counts a backlog of prefill twice, as work and as blocks to come", function()
        local rows = { { waiting_prefill_tokens = 160 }, { kv_used_tokens = 304 } } -- 20 + 10 against 10 + 19
        assert.equal(1, select_with(shipped("dynamo_kv"), rows, prompt))
        rows[2].kv_used_tokens = 336
        assert.equal(0, select_with(shipped("dynamo_kv"), rows, prompt))
    end)

    it("gives an overlap less credit on an engine with more prefill when told to", function()
        local rows = { { cached_tokens = 160, running_prefill_tokens = 80 }, {} } -- 15 - 10 against 10
        assert.equal(0, select_with(shipped("dynamo_kv"), rows, prompt, 1))
        assert.equal(1, select_with(shipped("dynamo_kv", { overlap_decay = 2 }), rows, prompt, 1)) -- half the credit: 15 - 5
        rows[1].cached_tokens = 176
        assert.equal(0, select_with(shipped("dynamo_kv", { overlap_decay = 2 }), rows, prompt, 1))
    end)

    it("charges requests when told to", function()
        local rows = { { running = 3 }, { kv_used_tokens = 32 } }
        assert.equal(0, select_with(shipped("dynamo_kv"), rows, prompt))
        assert.equal(1, select_with(shipped("dynamo_kv", { active_request_weight = 1 }), rows, prompt))
    end)

    it("draws by softmax of the costs when it has a temperature", function()
        local policy, taken = shipped("dynamo_kv", { temperature = 1 }), { 0, 0, 0 }
        local weights = { math.exp(-1), 1, math.exp(-1 / 8) } -- costs 18, 10 and 11
        local total = weights[1] + weights[2] + weights[3]
        for _ = 1, 6000 do
            local engine = select_with(policy, documented(), prompt)
            taken[engine + 1] = taken[engine + 1] + 1
        end
        for i = 1, 3 do assert.is_true(math.abs(taken[i] - 6000 * weights[i] / total) < 200) end
    end)

    it("draws between equals evenly", function()
        local policy, taken = shipped("dynamo_kv", { temperature = 0.5 }), { 0, 0 }
        for _ = 1, 2000 do
            local engine = select_with(policy, { {}, {} }, prompt)
            taken[engine + 1] = taken[engine + 1] + 1
        end
        assert.is_true(math.abs(taken[1] - 1000) < 150)
    end)
end)

describe("every baseline of select_engine", function()
    for _, name in ipairs({ "vllm_legacy", "vllm", "round_robin", "p2c", "sglang_total_tokens", "llmd_default", "dynamo_kv" }) do
        it("answers with an engine that is up on every table that has one: " .. name, function()
            local policy, random = shipped(name), testing.random(46)
            for _ = 1, 1000 do
                local engines = testing.any_engines(random, 1 + random(16))
                local up = 0
                for i = 0, engines.n - 1 do up = up + engines.healthy[i] end
                local answer = testing.select(policy, testing.request({ prompt_tokens = 1 + random(8192) }), engines)
                if up == 0 then assert.is_nil(answer) else assert.equal(1, engines.healthy[answer]) end
            end
        end)
    end
end)

describe("priority", function()
    it("serves the lowest priority number first, then by arrival", function()
        local queue = testing.queue({
            { priority = 1, wait_ns = 4000 }, { priority = 0, wait_ns = 1000 }, { priority = 1, wait_ns = 3000 },
            { priority = -2, wait_ns = 10 }, { priority = 0, wait_ns = 2000 },
        })
        assert.same({ 3, 4, 1, 0, 2 }, testing.order(shipped("priority"), queue))
    end)

    it("leaves promoted requests to the core", function()
        local queue = testing.queue({ { priority = 0 }, { priority = 9, wait_ns = 6 * SECOND, promoted = 1 } })
        assert.same({ 1, 0 }, testing.order(shipped("priority"), queue))
    end)
end)

describe("hrrn", function()
    local rate = { prefill_tokens_per_second = 1000 }

    it("serves the highest (wait + service) / service first", function()
        local queue = testing.queue({
            { prefill_tokens = 1000, wait_ns = 2 * SECOND }, -- 3
            { prefill_tokens = 100, wait_ns = 0.3 * SECOND }, -- 4
            { prefill_tokens = 4000, wait_ns = 4 * SECOND }, -- 2
            { prefill_tokens = 4000, cached_tokens = 3900, wait_ns = 0.5 * SECOND }, -- 6
        })
        assert.same({ 3, 1, 0, 2 }, testing.order(shipped("hrrn", rate), queue))
    end)

    it("does not starve a long request behind a stream of short ones", function()
        local function served_first(wait_s)
            local rows = { { prefill_tokens = 8000, wait_ns = wait_s * SECOND } }
            for i = 2, 9 do rows[i] = { prefill_tokens = 100, wait_ns = 0.05 * SECOND } end -- each 1.5
            return testing.order(shipped("hrrn", rate), testing.queue(rows))[1]
        end
        assert.equal(1, served_first(3.9))
        assert.equal(0, served_first(4.1))
    end)
end)

describe("every baseline of order_queue", function()
    for _, name in ipairs({ "fcfs", "priority", "hrrn" }) do
        it("gives every request a key: " .. name, function()
            local policy, random = shipped(name), testing.random(47)
            for _ = 1, 200 do
                local queue = testing.any_queue(random, random(64))
                assert.equal(queue.n, #testing.order(policy, queue))
            end
        end)
    end
end)
