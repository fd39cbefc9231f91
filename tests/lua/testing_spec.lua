local prelude = require("prelude")
local testing = require("gimbal.testing")

local function sorted_keys(set)
    local keys = {}
    for key in pairs(set) do keys[#keys + 1] = key end
    table.sort(keys)
    return keys
end

local function names_of(columns)
    local set = {}
    for _, column in ipairs(columns) do set[column.name] = true end
    return sorted_keys(set)
end

describe("gimbal.testing", function()
    it("has the columns of core/flow/columns.h", function()
        assert.same(names_of(prelude.columns("ENGINE")), sorted_keys(testing.columns.engines))
        assert.same(names_of(prelude.columns("REQUEST")), sorted_keys(testing.columns.request))
        assert.same(names_of(prelude.columns("QUEUE")), sorted_keys(testing.columns.queue))
    end)

    it("has the environment that the host gives", function()
        local environment = prelude.open().environment()
        for library, names in pairs(testing.environment) do
            local of_host = library == "base" and environment or environment[library]
            for _, name in ipairs(names) do assert.is_not_nil(of_host[name], library .. "." .. name) end
            if library ~= "base" then assert.same(names, sorted_keys(of_host)) end
        end
        assert.same({ "log", "now", "random" }, sorted_keys(environment.gimbal))
    end)

    -- Each misuse, tried on the host's views and on the fakes.
    local misuses = {
        "engines.running[2]", "engines.running[-1]", "engines.running[1.5]", "engines.running.x", "engines.running[nil]",
        "engines[0]", "request[0]", "queue[0]", "queue.key[2]",
    }
    local writes = {
        "engines.running[0] = 1", "engines.running = 1", "engines.n = 1", "request.priority = 1", "queue.wait_ns[0] = 1", "queue.n = 1",
        "queue.key[2] = 1", "queue.key[0] = 0/0", "queue.key[0] = math.huge", "queue.key[0] = 'x'", "queue.key[0] = nil",
        "queue.key[0] = {}", "queue.key[0.5] = 1",
    }

    local function message(source, views)
        local chunk = assert(loadstring(source, "=mine.lua"))
        setfenv(chunk, setmetatable({ engines = views.engines, request = views.request, queue = views.queue }, { __index = _G }))
        local ok, why = pcall(chunk)
        assert.is_false(ok, source .. " is no error")
        return why
    end

    it("refuses what the host refuses, in the same words", function()
        local real = prelude.open()
        local fake = { engines = testing.engines({ {}, {} }), request = testing.request(), queue = testing.queue({ {}, {} }) }
        for _, expression in ipairs(misuses) do
            local source = "local value = " .. expression
            assert.equal(message(source, real), message(source, fake))
        end
        for _, statement in ipairs(writes) do assert.equal(message(statement, real), message(statement, fake)) end
    end)

    it("names a column that a row does not have", function()
        assert.has_error(function() testing.engines({ { kv_ratio = 1 } }) end, 'engines has no column "kv_ratio"')
        assert.has_error(function() testing.queue({ { wait = 1 } }) end, 'queue has no column "wait"')
    end)

    it("refuses answers that the host refuses", function()
        local engines = testing.engines({ {}, {} })
        local function answering(value) return { select_engine = function() return value end } end
        assert.is_nil(testing.select(answering(nil), testing.request(), engines))
        assert.equal(1, testing.select(answering(1), testing.request(), engines))
        for _, bad in ipairs({ 2, -1, 0.5, 0 / 0, "0" }) do
            assert.error_matches(function() testing.select(answering(bad), testing.request(), engines) end, "select_engine returned")
        end
        local lazy = { order_queue = function(queue) queue.key[0] = 1 end }
        assert.error_matches(function() testing.order(lazy, testing.queue({ {}, {} })) end, "left queue.key%[1%] unset")
        local eager = { order_queue = function() return {} end }
        assert.error_matches(function() testing.order(eager, testing.queue({ {} })) end, "order_queue returned a table")
    end)

    it("draws the same random numbers from the same seed", function()
        local a, b, c = testing.random(7), testing.random(7), testing.random(8)
        local differs = false
        for _ = 1, 100 do
            local x = a()
            assert.is_true(x >= 0 and x < 1)
            assert.equal(x, b())
            differs = differs or x ~= c()
        end
        assert.is_true(differs)
    end)
end)
