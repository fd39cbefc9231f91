-- The four configurations of the ablation: what each decides, and what it leaves off.
local testing = require("gimbal.testing")

local function shipped(name, options) return testing.load("lua/policies/" .. name .. ".lua", options) end

local function select_with(name, rows) return testing.select(shipped(name), testing.request(), testing.engines(rows)) end

-- Engine 0 has fewer requests but far more tokens before it.
local function long_prompts()
    return { { waiting = 1, waiting_prefill_tokens = 20000 }, { waiting = 2, waiting_prefill_tokens = 1000 } }
end

-- Engine 0 is lighter by less than its experts are under pressure.
local function expert_pressure() return { { moe_pressure = 1.5 }, { moe_pressure = 0.5, running_prefill_tokens = 500 } } end

local function line()
    return testing.queue({
        { wait_ns = 3, prefill_tokens = 900 }, { wait_ns = 2, prefill_tokens = 10 }, { wait_ns = 1, prefill_tokens = 500 },
    })
end

local SHORTEST, FIRST_COME = { 1, 2, 0 }, { 0, 1, 2 }

-- Each source uses the expert that lives with the other.
local function crossed() return testing.window({ tokens = { { { 0, 500, 500, 1000 }, { 1000, 500, 500, 0 } } }, ranks = 2 }) end

local STAYS, CROSSES = { { 0, 0, 1, 1 } }, { { 1, 0, 1, 0 } }

local function place(name)
    local policy = shipped(name)
    policy.params.gamma = 0.5
    return testing.place(policy, crossed())
end

describe("gimbal, whole", function()
    it("weighs tokens and expert pressure, serves the shortest first and moves experts", function()
        assert.equal(1, select_with("gimbal", long_prompts()))
        assert.equal(1, select_with("gimbal", expert_pressure()))
        assert.same(SHORTEST, testing.order(shipped("gimbal"), line()))
        assert.same(CROSSES, place("gimbal"))
    end)
end)

describe("gimbal_dp", function()
    it("selects and orders as gimbal does, without expert pressure, and moves no expert", function()
        assert.equal(1, select_with("gimbal_dp", long_prompts()))
        assert.equal(0, select_with("gimbal_dp", expert_pressure()))
        assert.same(SHORTEST, testing.order(shipped("gimbal_dp"), line()))
        assert.same(STAYS, place("gimbal_dp"))
    end)
end)

describe("gimbal_ep", function()
    it("places as gimbal does and counts requests, first come, first served", function()
        assert.equal(0, select_with("gimbal_ep", long_prompts()))
        assert.equal(0, select_with("gimbal_ep", expert_pressure()))
        assert.same(FIRST_COME, testing.order(shipped("gimbal_ep"), line()))
        assert.same(CROSSES, place("gimbal_ep"))
    end)
end)

describe("gimbal_nocollab", function()
    it("is gimbal without the feedback of expert pressure", function()
        assert.equal(1, select_with("gimbal_nocollab", long_prompts()))
        assert.equal(0, select_with("gimbal_nocollab", expert_pressure()))
        assert.same(SHORTEST, testing.order(shipped("gimbal_nocollab"), line()))
        assert.same(CROSSES, place("gimbal_nocollab"))
    end)

    it("differs from gimbal in that param alone", function()
        local whole, part = shipped("gimbal"), shipped("gimbal_nocollab")
        for name, value in pairs(whole.params) do assert.equal(name == "w_moe" and 0 or value, part.params[name]) end
    end)
end)

describe("gimbal.shipped", function()
    local function run(text)
        local path = os.tmpname()
        local file = assert(io.open(path, "w"))
        file:write(text)
        file:close()
        local ok, policy = pcall(testing.load, path)
        os.remove(path)
        return ok, policy
    end

    it("gives a fresh table each time, so that one change is not another's", function()
        local _, policy = run("local a, b = gimbal.shipped('gimbal'), gimbal.shipped('gimbal') a.params.w_moe = 7 return b")
        assert.equal(2048, policy.params.w_moe)
    end)

    it("names a policy that is not shipped", function()
        local ok, why = run("return gimbal.shipped('gimble')")
        assert.is_false(ok)
        assert.matches('gimbal.shipped: no policy named "gimble" is shipped', why, 1, true)
    end)
end)
