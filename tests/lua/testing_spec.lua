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
        assert.same(names_of(prelude.columns("RANK")), sorted_keys(testing.columns.ranks))
    end)

    local function two_layers(fields)
        fields = fields or {}
        fields.ranks = 2
        fields.tokens = { { { 1, 2, 3, 4 }, { 10, 20, 30, 40 } }, { { 0, 0, 0, 0 }, { 5, 0, 0, 0 } } }
        return testing.window(fields)
    end

    it("has windows with every number and column of core/flow/columns.h", function()
        local window = two_layers({ spare = 1 })
        for _, scalar in ipairs(prelude.columns("WINDOW", "SCALARS")) do assert.is_number(window[scalar.name]) end
        for _, list in ipairs({ "WINDOW", "WINDOW_EXPERT", "WINDOW_LINK" }) do
            for _, column in ipairs(prelude.columns(list)) do assert.is_number(window[column.name][0]) end
        end
        assert.same({ 16, 2, 2, 4, 2, 2, 8, 4 }, { window.n, window.layers, window.sources, window.experts, window.ranks, window.capacity,
            window.expert_rows, window.link_rows })
        assert.same({ 30, 33, 5 }, { window.tokens[6], window.expert_tokens[2], window.expert_tokens[4] })
        assert.same({ 0, 1, 1, 0 }, { window.home[1], window.home[2], window.link_cost[1], window.link_cost[3] })
    end)

    it("offers placement_cost what core/flow/columns.h says, and takes costs or slots", function()
        local window = two_layers({ spare = 1 })
        local function costly(_, _, out)
            for _, scalar in ipairs(prelude.columns("COST", "SCALARS")) do assert.is_number(out[scalar.name]) end
            for i = 0, out.n - 1 do out.cost[i] = i end
            for e = 0, out.experts - 1 do out.load[e] = 1 end
        end
        local cost, load = testing.costs({ placement_cost = costly }, window, 1)
        assert.same({ 8, 4, 7 }, { #cost, #load, cost[8] })
        local function halves(_, _, out)
            for i, expert in ipairs({ 0, 1, 2, 2, 3 }) do out.expert_of_slot[i - 1] = expert end
            assert.equal(6, out.slots)
        end
        assert.same({ { 0, 1, 2, 2, 3, -1 }, { 0, 1, 2, 2, 3, -1 } }, testing.slots({ placement_cost = halves }, window))
    end)

    it("refuses placements that the core refuses", function()
        local window = two_layers()
        local function slots(list)
            return function()
                testing.slots({ placement_cost = function(_, _, out)
                    for i, expert in ipairs(list) do out.expert_of_slot[i - 1] = expert end
                end }, window)
            end
        end
        assert.has_error(slots({ 0, 1, 2 }), "expert 3 of layer 0 lives nowhere")
        assert.has_error(slots({ 0, 0, 2, 3 }), "rank 0 holds expert 0 of layer 0 twice")
        assert.has_error(slots({ 0, 1, 2, 4 }), "slot 3 of layer 0 holds 4; experts are 0..3, and -1 is none")
        assert.error_matches(slots({ 0, 1, 2, 3, 0 }), "out.expert_of_slot%[4%]: index out of range 0..3")
        assert.error_matches(slots({ 0 / 0 }), "out.expert_of_slot%[0%] = %-?nan: a expert_of_slot must be a finite number")
        assert.error_matches(function() testing.costs({ placement_cost = function(_, _, out) out.cost[0] = 1 end }, window, 0) end,
            "placement_cost left out.cost%[1%] of layer 0 unset")
        assert.error_matches(function() testing.place({ score_expert = function() end }, window) end,
            "score_expert left ranks.score%[0%] of expert 3 in layer 0 unset")
    end)

    it("places by score_expert as the core does: hottest first, equals stay, then the emptier rank", function()
        local window = two_layers({ home = { 1, 1, 0, 0, 0, 1, 0, 1 } })
        local seen = {}
        local ranks = testing.place({ score_expert = function(layer, expert, view)
            seen[#seen + 1] = { layer, expert, view.home, view.free[0] + view.free[1] }
            for r = 0, view.n - 1 do view.score[r] = 0 end
        end }, window)
        assert.same({ { 1, 1, 0, 0 }, { 0, 1, 0, 1 } }, ranks)
        assert.same({ { 0, 3, 0, 4 }, { 0, 2, 0, 3 }, { 0, 1, 1, 2 } }, { seen[1], seen[2], seen[3] })
    end)

    it("has the environment that the host gives", function()
        local environment = prelude.open().environment()
        for library, names in pairs(testing.environment) do
            local of_host = library == "base" and environment or environment[library]
            for _, name in ipairs(names) do assert.is_not_nil(of_host[name], library .. "." .. name) end
            if library ~= "base" then assert.same(names, sorted_keys(of_host)) end
        end
        assert.same({ "log", "now", "random", "shipped" }, sorted_keys(environment.gimbal))
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

    local function message_of(f, ...)
        local ok, why = pcall(f, ...)
        assert.is_false(ok)
        return why
    end

    it("holds properties against random tables, the same for the same seed", function()
        local function sums(seed)
            local seen, all = 0, {}
            testing.for_all("engines", { cases = 50, seed = seed, most = 8 }, function(engines, random)
                assert.is_true(engines.n >= 1 and engines.n <= 8 and engines.next < engines.n)
                seen = seen + 1
                all[seen] = engines.waiting[0] + random(100)
            end)
            assert.equal(50, seen)
            return all
        end
        assert.same(sums(3), sums(3))
        assert.are_not.same(sums(3), sums(4))
        testing.for_all("queue", { cases = 20 }, function(queue) assert.is_true(queue.n >= 1 and queue.promoted[0] <= 1) end)
    end)

    it("shows the smallest table that breaks a property", function()
        local function never_crowded(engines)
            for i = 0, engines.n - 1 do
                if engines.waiting[i] > 200 then error("crowded", 0) end
            end
        end
        local why = message_of(testing.for_all, "engines", { seed = 5 }, never_crowded)
        assert.matches("case %d+ of seed 5: crowded", why)
        assert.matches("testing%.engines%({ { waiting = %d+ } }, 0%)$", why)
        assert.equal(why, message_of(testing.for_all, "engines", { seed = 5 }, never_crowded))
        local again = loadstring("local testing = ... return " .. why:match("fails: (.*)$"))(testing)
        assert.equal("crowded", message_of(never_crowded, again))
    end)

    it("compares golden decisions with those that were written", function()
        local path = os.tmpname()
        local function deciding(answer)
            return function(record)
                record("busy", answer)
                record("idle", nil)
                record("order", { 2, 0, 1 })
                record("places", { { 0, 1 }, { 1, 0 } })
            end
        end
        testing.golden(path, deciding(1), { write = true })
        testing.golden(path, deciding(1))
        local file = io.open(path)
        assert.equal("busy: 1\nidle: nil\norder: [2 0 1]\nplaces: [[0 1] [1 0]]\n", file:read("*a"))
        file:close()
        local why = message_of(testing.golden, path, deciding(0))
        assert.matches(":1: it was \"busy: 1\" and is \"busy: 0\" now", why)
        assert.matches("GIMBAL_GOLDEN=write", why)
        why = message_of(testing.golden, path, function(record) record("busy", 1) end)
        assert.matches(":2: it was \"idle: nil\" and is \"nothing\" now", why)
        os.remove(path)
        assert.matches("does not exist; run once with GIMBAL_GOLDEN=write", message_of(testing.golden, path, deciding(1)))
        assert.matches("two decisions are called a", message_of(testing.golden, path, function(record) record("a", 1) record("a", 2) end))
    end)
end)
