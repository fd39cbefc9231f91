local testing = require("gimbal.testing")

local SECOND = 1e9

local function select_with(path, rows, next_engine, options)
    return testing.select(testing.load(path, options), testing.request(), testing.engines(rows, next_engine))
end

describe("round_robin", function()
    local path = "lua/policies/round_robin.lua"

    it("takes the engine whose turn it is", function()
        for turn = 0, 2 do assert.equal(turn, select_with(path, { {}, {}, {} }, turn)) end
    end)

    it("passes over engines that are down", function()
        assert.equal(2, select_with(path, { {}, { healthy = 0 }, {} }, 1))
        assert.equal(0, select_with(path, { {}, { healthy = 0 }, { healthy = 0 } }, 1))
    end)

    it("has no answer when all engines are down", function()
        assert.is_nil(select_with(path, { { healthy = 0 }, { healthy = 0 } }, 0))
    end)
end)

describe("fcfs", function()
    it("serves the longest wait first", function()
        local policy = testing.load("lua/policies/fcfs.lua")
        local queue = testing.queue({ { wait_ns = 1, prefill_tokens = 1 }, { wait_ns = 3, prefill_tokens = 9 }, { wait_ns = 2 } })
        assert.same({ 1, 2, 0 }, testing.order(policy, queue))
    end)
end)

describe("gimbal", function()
    local path = "lua/policies/gimbal.lua"

    describe("select_engine", function()
        it("takes turns while a trace is missing", function()
            assert.equal(1, select_with(path, { { valid = 0 }, { running_prefill_tokens = 9999 } }, 1))
        end)

        it("takes turns while a trace is older than stale_after_ns", function()
            local rows = { { age_ns = SECOND + 1 }, { running_prefill_tokens = 9999 } }
            assert.equal(1, select_with(path, rows, 1))
            assert.equal(0, select_with(path, rows, 1, { params = { stale_after_ns = 2 * SECOND } }))
        end)

        it("does not wait for the trace of an engine that is down", function()
            assert.equal(1, select_with(path, { { valid = 0, healthy = 0 }, {}, { running_prefill_tokens = 9999 } }, 2))
        end)

        it("takes the emptiest KV cache when one is nearly full and they differ clearly", function()
            local rows = { { kv_used_ratio = 0.95 }, { kv_used_ratio = 0.5, running_prefill_tokens = 9999 }, { kv_used_ratio = 0.7 } }
            assert.equal(1, select_with(path, rows, 0))
        end)

        it("does not when all are equally full", function()
            local rows = { { kv_used_ratio = 0.95, running_prefill_tokens = 500 }, { kv_used_ratio = 0.94 } }
            assert.equal(1, select_with(path, rows, 0))
        end)

        it("takes the lowest pressure", function()
            local rows = { { running_prefill_tokens = 3000 }, { waiting_prefill_tokens = 2000 }, { pending_tokens = 1000 } }
            assert.equal(2, select_with(path, rows, 0))
        end)

        it("counts KV use above kv_soft and expert load above the average", function()
            assert.equal(1, select_with(path, { { kv_used_ratio = 0.80 }, { kv_used_ratio = 0.72 } }, 0))
            assert.equal(1, select_with(path, { { moe_pressure = 1.2 }, { moe_pressure = 0.8 } }, 0))
            assert.equal(0, select_with(path, { { kv_used_ratio = 0.69 }, { kv_used_ratio = 0 } }, 0))
        end)

        it("takes near ties in turn", function()
            local rows = { { running_prefill_tokens = 1000 }, { running_prefill_tokens = 1050 }, { running_prefill_tokens = 1065 } }
            assert.equal(0, select_with(path, rows, 0))
            assert.equal(1, select_with(path, rows, 1))
            assert.equal(0, select_with(path, rows, 2))
        end)

        it("answers with an engine that is up on every table that has one", function()
            local policy, random = testing.load(path), testing.random(42)
            for _ = 1, 2000 do
                local engines = testing.any_engines(random, 1 + random(16))
                local up = 0
                for i = 0, engines.n - 1 do up = up + engines.healthy[i] end
                local answer = testing.select(policy, testing.request(), engines)
                if up == 0 then assert.is_nil(answer) else assert.equal(1, engines.healthy[answer]) end
            end
        end)
    end)

    describe("order_queue", function()
        it("serves the shortest prefill first and what was promoted before it", function()
            local policy = testing.load(path)
            local queue = testing.queue({
                { prefill_tokens = 500, wait_ns = 4 * SECOND }, { prefill_tokens = 10, wait_ns = 3 * SECOND },
                { prefill_tokens = 900, wait_ns = 6 * SECOND, promoted = 1 }, { prefill_tokens = 10, wait_ns = 2 * SECOND },
            })
            assert.same({ 2, 1, 3, 0 }, testing.order(policy, queue))
        end)

        it("gives every request a key", function()
            local policy, random = testing.load(path), testing.random(43)
            for _ = 1, 200 do
                local queue = testing.any_queue(random, random(64))
                assert.equal(queue.n, #testing.order(policy, queue))
            end
        end)
    end)
end)
