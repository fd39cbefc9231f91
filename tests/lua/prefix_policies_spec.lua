local testing = require("gimbal.testing")

local SECOND = 1e9

describe("cache_aware", function()
    local path = "lua/policies/cache_aware.lua"

    local function select_with(rows, prompt_tokens, next_engine)
        return testing.select(testing.load(path), testing.request({ prompt_tokens = prompt_tokens }), testing.engines(rows, next_engine))
    end

    it("goes where the longest beginning is cached", function()
        assert.equal(1, select_with({ { cached_tokens = 256 }, { cached_tokens = 512 }, {} }, 1000, 0))
    end)

    it("does so while that engine is busier by less than the bound", function()
        local rows = { { cached_tokens = 512, running_prefill_tokens = 2048 }, {} }
        assert.equal(0, select_with(rows, 1000, 1))
        rows[1].running_prefill_tokens = 2049
        assert.equal(1, select_with(rows, 1000, 0))
    end)

    it("takes the bound from the lowest load when all are busy", function()
        local rows = { { cached_tokens = 512, waiting_prefill_tokens = 49000 }, { waiting_prefill_tokens = 40000 } }
        assert.equal(0, select_with(rows, 1000, 0))
        rows[1].waiting_prefill_tokens = 51000
        assert.equal(1, select_with(rows, 1000, 0))
    end)

    it("counts what was dispatched and not yet seen, so that a burst of one text spreads", function()
        assert.equal(1, select_with({ { cached_tokens = 512, pending_tokens = 3000 }, {} }, 1000, 0))
    end)

    it("takes the least loaded engine when the hit is short", function()
        assert.equal(1, select_with({ { cached_tokens = 16, running = 5 }, {} }, 1000, 0))
        assert.equal(0, select_with({ { cached_tokens = 16, running = 5 }, {} }, 64, 0))
    end)

    it("leaves a full cache alone", function()
        assert.equal(1, select_with({ { cached_tokens = 512, kv_used_ratio = 0.96 }, {} }, 1000, 1))
    end)

    it("takes equals in turn", function()
        for turn = 0, 2 do assert.equal(turn, select_with({ {}, {}, {} }, 100, turn)) end
    end)

    it("ignores engines that are down or silent and has no opinion without traces", function()
        assert.equal(1, select_with({ { cached_tokens = 512, healthy = 0 }, {} }, 1000, 0))
        assert.equal(1, select_with({ { cached_tokens = 512, age_ns = 2 * SECOND }, {} }, 1000, 0))
        assert.is_nil(select_with({ { valid = 0 }, { valid = 0 } }, 1000, 0))
    end)

    it("answers with an engine that is up on every table that has a trace", function()
        local policy, random = testing.load(path), testing.random(44)
        for _ = 1, 2000 do
            local engines = testing.any_engines(random, 1 + random(16))
            local answer = testing.select(policy, testing.request({ prompt_tokens = 1 + random(8192) }), engines)
            assert.is_true(answer == nil or engines.healthy[answer] == 1)
        end
    end)
end)

describe("lpm", function()
    local path = "lua/policies/lpm.lua"

    it("serves the longest cached prefix first, then by arrival", function()
        local queue = testing.queue({
            { wait_ns = 4000 }, { wait_ns = 3000, cached_tokens = 64 }, { wait_ns = 2000, cached_tokens = 512 }, { wait_ns = 1000 },
        })
        assert.same({ 2, 1, 0, 3 }, testing.order(testing.load(path), queue))
    end)

    it("does not starve a request that has no hit", function()
        local rows = { { wait_ns = 0.4 * SECOND }, { wait_ns = 0, cached_tokens = 512 } }
        local policy = testing.load(path)
        assert.same({ 1, 0 }, testing.order(policy, testing.queue(rows)))
        rows[1].wait_ns = 0.6 * SECOND
        assert.same({ 0, 1 }, testing.order(policy, testing.queue(rows)))
    end)

    it("leaves promoted requests to the core", function()
        local queue = testing.queue({ { cached_tokens = 4096 }, { wait_ns = 6 * SECOND, promoted = 1 } })
        assert.same({ 1, 0 }, testing.order(testing.load(path), queue))
    end)

    it("gives every request a key", function()
        local policy, random = testing.load(path), testing.random(45)
        for _ = 1, 200 do
            local queue = testing.any_queue(random, random(64))
            assert.equal(queue.n, #testing.order(policy, queue))
        end
    end)
end)
