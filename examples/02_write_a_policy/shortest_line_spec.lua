-- busted --lua=luajit --lpath='lua/?.lua' examples/02_write_a_policy/shortest_line_spec.lua
local testing = require("gimbal.testing")

local FILE = "examples/02_write_a_policy/shortest_line.lua"

local function select(rows, params)
    local policy = testing.load(FILE, { params = params })
    return testing.select(policy, testing.request({ prompt_tokens = 100 }), testing.engines(rows))
end

describe("shortest_line", function()
    it("prefers the engine with the shorter line", function()
        assert.equal(1, select({ { waiting = 5 }, { waiting = 2 } }))
    end)

    it("counts a full cache like many waiting requests", function()
        local rows = { { waiting = 5, kv_used_ratio = 0.1 }, { waiting = 2, kv_used_ratio = 0.9 } }
        assert.equal(0, select(rows))
        assert.equal(1, select(rows, { w_kv = 0 }))
    end)

    it("passes over an engine that is down", function()
        assert.equal(0, select({ { waiting = 5 }, { waiting = 2, healthy = 0 } }))
        assert.is_nil(select({ { healthy = 0 }, { healthy = 0 } }))
    end)

    it("finds a shortest line on any table", function()
        local policy, random = testing.load(FILE, { params = { w_kv = 0 } }), testing.random(7)
        for _ = 1, 200 do
            local engines = testing.any_engines(random, 1 + random(8))
            local chosen = testing.select(policy, testing.request(), engines)
            for i = 0, engines.n - 1 do
                assert.is_true(engines.healthy[i] == 0 or engines.waiting[chosen] <= engines.waiting[i])
            end
        end
    end)

    it("serves first what the prefix cache has nearly all of", function()
        local policy = testing.load(FILE)
        local queue = testing.queue({ { prefill_tokens = 50 }, { prefill_tokens = 900, cached_tokens = 896 }, { prefill_tokens = 20 } })
        assert.same({ 1, 2, 0 }, testing.order(policy, queue))
    end)
end)
