-- The policy author's kit: fakes of everything a policy sees, for busted or any Lua 5.1 and LuaJIT. The fakes refuse what the
-- host refuses, in the same words.
--
--   local testing = require("gimbal.testing")
--   local policy = testing.load("policies/mine.lua")
--   local engines = testing.engines({ { kv_used_ratio = 0.9 }, { kv_used_ratio = 0.1 } })
--   assert(testing.select(policy, testing.request({ prompt_tokens = 100 }), engines) == 1)
--
-- Rows are lists in Lua's counting; a policy sees row 1 as index 0.
local testing = {}

-- Every column with the value that a row without it has.
testing.columns = {
    engines = {
        running_prefill_tokens = 0, waiting_prefill_tokens = 0, pending_tokens = 0, kv_used_ratio = 0, kv_free_tokens = 0,
        moe_pressure = 1, running = 0, waiting = 0, oldest_wait_ns = 0, preemptions = 0, round_time_ns = 0, age_ns = 0, valid = 1,
        healthy = 1, cached_tokens = 0, pending = 0, kv_used_tokens = 0,
    },
    request = { prompt_tokens = 1, max_tokens = 16, priority = 0, session = 0, deadline_ns = math.huge },
    queue = {
        prefill_tokens = 1, prompt_tokens = 1, generated_tokens = 0, max_tokens = 16, wait_ns = 0, priority = 0,
        deadline_ns = math.huge, preemptions = 0, promoted = 0, key = 0 / 0, cached_tokens = 0,
    },
    ranks = { load = 0, free = 1, traffic = 0, score = 0 / 0 },
}

-- What a policy finds in its environment, beside gimbal.
testing.environment = {
    base = { "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack" },
    math = { "abs", "ceil", "exp", "floor", "fmod", "huge", "log", "log10", "max", "min", "modf", "pi", "pow", "sqrt" },
    string = { "byte", "char", "format", "len", "lower", "rep", "reverse", "sub", "upper" },
    table = { "concat", "insert", "remove", "sort" },
    bit = { "arshift", "band", "bnot", "bor", "bswap", "bxor", "lshift", "rol", "ror", "rshift", "tobit", "tohex" },
}

local function show(value)
    local kind = type(value)
    if kind == "string" then return string.format("%q", value) end
    if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
    return "a " .. kind
end

-- ---- views -------------------------------------------------------------------------------------------------------------

local function complete(view, row)
    local full = {}
    for name, default in pairs(testing.columns[view]) do full[name] = default end
    for name, value in pairs(row) do
        if testing.columns[view][name] == nil then error(string.format("%s has no column %s", view, show(name)), 3) end
        full[name] = value
    end
    return full
end

local function check_index(what, index, n)
    if n == 0 then
        error(string.format("%s[%s]: there is nothing to index here; a view has rows only inside the hook that gets it", what,
            show(index)), 3)
    end
    if type(index) ~= "number" then error(string.format("%s[%s]: the index must be a number", what, show(index)), 3) end
    if index % 1 ~= 0 then error(string.format("%s[%s]: the index must be a whole number", what, tostring(index)), 3) end
    if index < 0 or index >= n then error(string.format("%s[%s]: index out of range 0..%d", what, tostring(index), n - 1), 3) end
end

local function read_only(what)
    return function() error(what .. " is read-only", 2) end
end

local function check_value(view, name, index, value)
    if type(value) ~= "number" or value - value ~= 0 then
        error(string.format("%s.%s[%s] = %s: a %s must be a finite number", view, name, tostring(index), show(value), name), 3)
    end
end

local function write_cell(view, name, rows)
    return function(_, index, value)
        check_index(view .. "." .. name, index, #rows)
        check_value(view, name, index, value)
        rows[index + 1][name] = value
    end
end

local function proxy(index, newindex)
    local view = newproxy(true)
    local metatable = getmetatable(view)
    metatable.__index, metatable.__newindex, metatable.__metatable = index, newindex, false
    return view
end

local function column(view, name, rows)
    local what = view .. "." .. name
    return proxy(function(_, index)
        check_index(what, index, #rows)
        return rows[index + 1][name]
    end, (name == "key" or name == "score") and write_cell(view, name, rows) or read_only(what))
end

local function table_view(view, rows, scalars)
    local fields = scalars
    fields.n = #rows
    for name in pairs(testing.columns[view]) do fields[name] = column(view, name, rows) end
    return proxy(function(_, name)
        if fields[name] == nil then error(string.format("%s has no column %s", view, show(name)), 2) end
        return fields[name]
    end, read_only(view))
end

-- The engines of a server, one row each; next is the engine whose turn it is (0 by default).
function testing.engines(rows, next_engine)
    local full = {}
    for i, row in ipairs(rows) do full[i] = complete("engines", row) end
    return table_view("engines", full, { next = next_engine or 0 })
end

-- The waiting requests of one engine in order of arrival.
function testing.queue(rows, engine)
    local full = {}
    for i, row in ipairs(rows) do full[i] = complete("queue", row) end
    return table_view("queue", full, { engine = engine or 0 })
end

function testing.request(row)
    local fields = complete("request", row or {})
    return proxy(function(_, name)
        if fields[name] == nil then error(string.format("request has no field %s", show(name)), 2) end
        return fields[name]
    end, read_only("request"))
end

-- ---- loading a policy --------------------------------------------------------------------------------------------------

-- A generator of numbers in [0, 1) that is the same on every machine (Lehmer, 2^31 - 1).
function testing.random(seed)
    local state = (seed or 1) % 2147483646 + 1
    return function(n)
        state = state * 48271 % 2147483647
        local uniform = (state - 1) / 2147483646
        return n and math.floor(uniform * n) or uniform
    end
end

local new_environment

-- The shipped policies lie beside this file's folder.
local function shipped_with(host)
    local folder = debug.getinfo(1, "S").source:match("^@(.*)gimbal/testing%.lua$")
    return function(name)
        local chunk = type(name) == "string" and loadfile(folder .. "policies/" .. name .. ".lua", "t", new_environment(host))
        if not chunk then error(string.format("gimbal.shipped: no policy named %s is shipped", show(name)), 2) end
        if setfenv then setfenv(chunk, new_environment(host)) end
        return chunk()
    end
end

function new_environment(host)
    host.random = host.random or testing.random(host.seed)
    local known = {
        gimbal = {
            now = function() return host.now_ns end,
            random = host.random,
            shipped = shipped_with(host),
            log = function(text) host.lines[#host.lines + 1] = tostring(text) end,
        },
    }
    for library, names in pairs(testing.environment) do
        local from, to = library == "base" and _G or _G[library] or {}, library == "base" and known or {}
        for _, name in ipairs(names) do to[name] = from[name] end
        if library ~= "base" then known[library] = to end
    end
    return setmetatable({}, {
        __index = function(_, name)
            if known[name] == nil then error(tostring(name) .. " is not defined", 2) end
            return known[name]
        end,
        __newindex = function(_, name)
            error(string.format("assignment to global %s; write local %s", tostring(name), tostring(name)), 2)
        end,
        __metatable = false,
    })
end

-- Runs a policy file as the host does; without a path, the one that `gimbal policy test` names. Returns the policy and its fake
-- host: {now_ns, seed, lines}, to set the time and read what was logged. options: now_ns, seed, and params that replace the file's.
function testing.load(path, options)
    path = path or os.getenv("GIMBAL_TESTED_POLICY") or error("testing.load wants the path of a policy, or `gimbal policy test FILE`", 2)
    options = options or {}
    local host = { now_ns = options.now_ns or 0, seed = options.seed or 1, lines = {} }
    local environment = new_environment(host)
    local chunk = assert(loadfile(path, "t", environment))
    if setfenv then setfenv(chunk, environment) end
    local policy = chunk()
    assert(type(policy) == "table", path .. " must return a table of hooks")
    assert(policy.api == 1, path .. " must have `api = 1`")
    for name, value in pairs(options.params or {}) do
        assert(policy.params and policy.params[name] ~= nil, path .. " has no param " .. name)
        policy.params[name] = value
    end
    return policy, host
end

-- ---- deciding ----------------------------------------------------------------------------------------------------------

-- The engine that the policy selects, or nil; an answer that the host would refuse is an error.
function testing.select(policy, request, engines)
    local answer = policy.select_engine(request, engines)
    if answer == nil then return nil end
    if type(answer) ~= "number" or answer % 1 ~= 0 or answer < 0 or answer >= engines.n then
        error(string.format("select_engine returned %s; engines are 0..%d", show(answer), engines.n - 1), 2)
    end
    return answer
end

local function served_before(queue)
    return function(a, b)
        if queue.promoted[a] ~= queue.promoted[b] then return queue.promoted[a] > queue.promoted[b] end
        if queue.promoted[a] == 0 and queue.key[a] ~= queue.key[b] then return queue.key[a] < queue.key[b] end
        if queue.wait_ns[a] ~= queue.wait_ns[b] then return queue.wait_ns[a] > queue.wait_ns[b] end
        return a < b
    end
end

-- The indices of the queue in the order the core would serve them: promoted ones by arrival, then by key and arrival.
function testing.order(policy, queue)
    local answer = policy.order_queue(queue)
    if answer ~= nil then error(string.format("order_queue returned %s; it must fill queue.key[i] and return nothing", show(answer)), 2) end
    local indices = {}
    for i = 0, queue.n - 1 do
        if queue.key[i] ~= queue.key[i] then error(string.format("order_queue left queue.key[%d] unset", i), 2) end
        indices[i + 1] = i
    end
    table.sort(indices, served_before(queue))
    return indices
end

-- ---- placing experts ---------------------------------------------------------------------------------------------------

local shapes = setmetatable({}, { __mode = "k" }) -- of windows: what a view does not tell

-- Columns of different lengths, {values, n, writable} each.
local function list_view(view, columns, fields)
    for name, column_of in pairs(columns) do
        local what, values, n = view .. "." .. name, column_of[1], column_of[2]
        fields[name] = proxy(function(_, index)
            check_index(what, index, n)
            return values[index + 1]
        end, column_of[3] and function(_, index, value)
            check_index(what, index, n)
            check_value(view, name, index, value)
            values[index + 1] = value
        end or read_only(what))
    end
    return proxy(function(_, name)
        if fields[name] == nil then error(string.format("%s has no column %s", view, show(name)), 2) end
        return fields[name]
    end, read_only(view))
end

local function flatten(tokens)
    local flat, of_expert = {}, {}
    for _, layer in ipairs(tokens) do
        local first = #of_expert
        for s, source in ipairs(layer) do
            for e, count in ipairs(source) do
                flat[#flat + 1] = count
                of_expert[first + e] = (s > 1 and of_expert[first + e] or 0) + count
            end
        end
    end
    return flat, of_expert
end

-- What placement hooks see. tokens[layer][source][expert] in Lua's counting, ranks; and if you like spare (slots of a rank beyond
-- experts / ranks) or slots_per_rank, id, home (of all layers in a row) and link_cost (of all sources). By default experts are where
-- they are at start and a source's own ranks cost nothing, all others 1.
function testing.window(fields)
    local shape = {
        layers = #fields.tokens, sources = #fields.tokens[1], experts = #fields.tokens[1][1], ranks = fields.ranks,
        id = fields.id or 1, duration_ns = 0,
    }
    shape.capacity = shape.experts / shape.ranks
    assert(shape.capacity % 1 == 0 or fields.slots_per_rank, "experts do not divide over ranks: say how many slots a rank has")
    shape.expert_rows, shape.link_rows = shape.layers * shape.experts, shape.sources * shape.ranks
    shape.n = shape.expert_rows * shape.sources
    local flat, of_expert = flatten(fields.tokens)
    local home, link_cost = fields.home or {}, fields.link_cost or {}
    for i = 1, fields.home and 0 or shape.expert_rows do home[i] = math.floor((i - 1) % shape.experts / shape.capacity) end
    for i = 1, fields.link_cost and 0 or shape.link_rows do
        local source, rank = math.floor((i - 1) / shape.ranks), (i - 1) % shape.ranks
        link_cost[i] = math.floor(rank * shape.sources / shape.ranks) == source and 0 or 1
    end
    local slots = shape.ranks * (fields.slots_per_rank or shape.capacity + (fields.spare or 0))
    local view = list_view("window", {
        tokens = { flat, shape.n }, expert_tokens = { of_expert, shape.expert_rows }, home = { home, shape.expert_rows },
        link_cost = { link_cost, shape.link_rows },
    }, shape)
    shapes[view] = { slots = slots }
    return view
end

local function ask_for_costs(policy, window, layer)
    local answer = { cost = {}, load = {}, expert_of_slot = {} }
    local n, slots = window.ranks * window.experts, shapes[window].slots
    for i = 1, n do answer.cost[i] = 0 / 0 end
    for i = 1, window.experts do answer.load[i] = 0 / 0 end
    for i = 1, slots do answer.expert_of_slot[i] = 0 / 0 end
    local out = list_view("out", {
        cost = { answer.cost, n, true }, load = { answer.load, window.experts, true },
        expert_of_slot = { answer.expert_of_slot, slots, true },
    }, { n = n, ranks = window.ranks, experts = window.experts, slots = slots })
    local returned = policy.placement_cost(layer, window, out)
    if returned ~= nil then error(string.format("placement_cost returned %s; it must fill out and return nothing", show(returned)), 3) end
    return answer
end

local function check_written(list, name, layer)
    for i, value in ipairs(list) do
        if value ~= value then error(string.format("placement_cost left out.%s[%d] of layer %d unset", name, i - 1, layer), 3) end
    end
end

-- The costs and loads that placement_cost writes for a layer, as lists.
function testing.costs(policy, window, layer)
    local answer = ask_for_costs(policy, window, layer)
    check_written(answer.cost, "cost", layer)
    check_written(answer.load, "load", layer)
    return answer.cost, answer.load
end

local function check_slots(slots, window, layer)
    local lives, per_rank = {}, #slots / window.ranks
    for i, expert in ipairs(slots) do
        local rank = math.floor((i - 1) / per_rank)
        if expert ~= expert then slots[i], expert = -1, -1 end
        if expert < -1 or expert >= window.experts or expert % 1 ~= 0 then
            error(string.format("slot %d of layer %d holds %.14g; experts are 0..%d, and -1 is none", i - 1, layer, expert,
                window.experts - 1), 3)
        end
        if expert >= 0 and lives[expert] == rank then
            error(string.format("rank %d holds expert %d of layer %d twice", rank, expert, layer), 3)
        end
        lives[expert] = rank
    end
    for e = 0, window.experts - 1 do
        if not lives[e] then error(string.format("expert %d of layer %d lives nowhere", e, layer), 3) end
    end
    return slots
end

-- The slots that placement_cost writes, one list for each layer; -1 is an empty one.
function testing.slots(policy, window)
    local layers = {}
    for layer = 0, window.layers - 1 do
        layers[layer + 1] = check_slots(ask_for_costs(policy, window, layer).expert_of_slot, window, layer)
    end
    return layers
end

local function traffic_of(window, layer, expert, rank, per_mean)
    local traffic = 0
    for s = 0, window.sources - 1 do
        traffic = traffic + per_mean * window.link_cost[s * window.ranks + rank]
            * window.tokens[(layer * window.sources + s) * window.experts + expert]
    end
    return traffic
end

local function hottest_first(window, layer)
    local order, total = {}, 0
    for e = 0, window.experts - 1 do
        order[e + 1], total = e, total + window.expert_tokens[layer * window.experts + e]
    end
    table.sort(order, function(a, b)
        local hot_a, hot_b = window.expert_tokens[layer * window.experts + a], window.expert_tokens[layer * window.experts + b]
        if hot_a ~= hot_b then return hot_a > hot_b end
        return a < b
    end)
    return order, total > 0 and window.experts / total or 0
end

-- Equal scores prefer the rank where the expert is now, then the emptier rank, then the lower number.
local function is_better(rows, i, best, home)
    local row, other = rows[i], rows[best]
    if row.score ~= other.score then return row.score < other.score end
    return best - 1 ~= home and (i - 1 == home or row.load < other.load)
end

local function take_lowest(rows, home, layer, expert)
    local best
    for i, row in ipairs(rows) do
        if row.free > 0 then
            if row.score ~= row.score then
                error(string.format("score_expert left ranks.score[%d] of expert %d in layer %d unset", i - 1, expert, layer), 3)
            end
            if not best or is_better(rows, i, best, home) then best = i end
        end
    end
    return best
end

local function place_layer(policy, window, layer)
    local order, per_mean = hottest_first(window, layer)
    local rows, rank_of = {}, {}
    for r = 1, window.ranks do rows[r] = { load = 0, free = window.capacity } end
    for _, expert in ipairs(order) do
        local at = layer * window.experts + expert
        local load, home = per_mean * window.expert_tokens[at], window.home[at]
        for r, row in ipairs(rows) do row.score, row.traffic = 0 / 0, traffic_of(window, layer, expert, r - 1, per_mean) end
        policy.score_expert(layer, expert, table_view("ranks", rows, { expert_load = load, home = home, window = window }))
        local best = take_lowest(rows, home, layer, expert)
        rows[best].load, rows[best].free, rank_of[expert + 1] = rows[best].load + load, rows[best].free - 1, best - 1
    end
    return rank_of
end

-- The ranks that score_expert's scores lead to, one list for each layer: experts are placed one after the other, hottest first.
function testing.place(policy, window)
    local layers = {}
    for layer = 0, window.layers - 1 do layers[layer + 1] = place_layer(policy, window, layer) end
    return layers
end

-- ---- random tables -----------------------------------------------------------------------------------------------------

-- Rows of n engines under some load, for properties that hold on every table.
function testing.any_engine_rows(random, n)
    local rows = {}
    for i = 1, n do
        rows[i] = {
            running_prefill_tokens = random(8192), waiting_prefill_tokens = random(65536), pending_tokens = random(2048),
            kv_used_ratio = random(), moe_pressure = 0.5 + random(), running = random(64), waiting = random(256),
            oldest_wait_ns = random(6e9), age_ns = random(1.1e9), valid = random(20) > 0 and 1 or 0, healthy = random(10) > 0 and 1 or 0,
            cached_tokens = random(3) == 0 and random(4096) or 0, pending = random(8), kv_used_tokens = random(100000),
        }
    end
    return rows
end

function testing.any_engines(random, n) return testing.engines(testing.any_engine_rows(random, n), random(n)) end

function testing.any_queue_rows(random, n)
    local rows = {}
    for i = 1, n do
        local prompt, generated, wait = 1 + random(8192), random(4) == 0 and random(512) or 0, random(1e10)
        rows[i] = {
            prefill_tokens = prompt + generated, prompt_tokens = prompt, generated_tokens = generated, max_tokens = 1 + random(2048),
            wait_ns = wait, priority = random(3), promoted = wait > 5e9 and 1 or 0,
            cached_tokens = random(3) == 0 and random(prompt) or 0,
        }
    end
    return rows
end

function testing.any_queue(random, n) return testing.queue(testing.any_queue_rows(random, n)) end

-- ---- properties --------------------------------------------------------------------------------------------------------

local kinds = {
    engines = { rows = testing.any_engine_rows, view = function(case) return testing.engines(case.rows, case.next) end },
    queue = { rows = testing.any_queue_rows, view = function(case) return testing.queue(case.rows) end },
}

-- The error of the property on this case, or nil. The property's own random numbers are the same each time.
local function failure(kind, case, property)
    local ok, why = pcall(property, kinds[kind].view(case), testing.random(case.seed))
    if ok then return nil end
    return type(why) == "table" and tostring(why.message or "assertion failed") or tostring(why)
end

local function without_row(case, index)
    local smaller = { seed = case.seed, next = math.min(case.next, #case.rows - 2), rows = {} }
    for i, row in ipairs(case.rows) do
        if i ~= index then smaller.rows[#smaller.rows + 1] = row end
    end
    return smaller
end

local function without_value(case, index, name)
    local smaller = { seed = case.seed, next = case.next, rows = {} }
    for i, row in ipairs(case.rows) do
        smaller.rows[i] = {}
        for key, value in pairs(row) do
            if i ~= index or key ~= name then smaller.rows[i][key] = value end
        end
    end
    return smaller
end

local function sorted_names(row)
    local names = {}
    for name in pairs(row) do names[#names + 1] = name end
    table.sort(names)
    return names
end

-- One row or one value less, and it still fails; nil when there is no such case.
local function shrink_once(kind, case, property)
    for i = 1, #case.rows > 1 and #case.rows or 0 do
        local smaller = without_row(case, i)
        if failure(kind, smaller, property) then return smaller end
    end
    for i, row in ipairs(case.rows) do
        for _, name in ipairs(sorted_names(row)) do
            local smaller = without_value(case, i, name)
            if failure(kind, smaller, property) then return smaller end
        end
    end
end

local function show_case(kind, case)
    local rows = {}
    for i, row in ipairs(case.rows) do
        local values = {}
        for k, name in ipairs(sorted_names(row)) do values[k] = string.format("%s = %.17g", name, row[name]) end
        rows[i] = #values > 0 and "{ " .. table.concat(values, ", ") .. " }" or "{}"
    end
    return string.format("testing.%s({ %s }%s)", kind, table.concat(rows, ", "), kind == "engines" and ", " .. case.next or "")
end

-- Holds a property against random tables. kind is "engines" or "queue"; property(view, random) fails with an error. options: cases
-- (1000), seed (1), most (rows, 16). The error has the smallest table that was found to fail, as a line of Lua.
function testing.for_all(kind, options, property)
    assert(kinds[kind], "testing.for_all wants \"engines\" or \"queue\"")
    local seed = options.seed or 1
    for i = 1, options.cases or 1000 do
        local random = testing.random(seed * 1000003 + i)
        local n = 1 + random(options.most or 16)
        local case = { rows = kinds[kind].rows(random, n), next = random(n), seed = seed * 1000003 + i }
        if failure(kind, case, property) then
            local smaller = case
            while smaller do case, smaller = smaller, shrink_once(kind, smaller, property) end
            error(string.format("case %d of seed %d: %s\nthe smallest table that fails: %s", i, seed, failure(kind, case, property),
                show_case(kind, case)), 2)
        end
    end
end

-- ---- golden decisions --------------------------------------------------------------------------------------------------

local function one_line(value)
    if type(value) ~= "table" then return tostring(value) end
    local parts = {}
    for i, part in ipairs(value) do parts[i] = one_line(part) end
    return "[" .. table.concat(parts, " ") .. "]"
end

local function collect(decide)
    local lines, seen = {}, {}
    decide(function(name, ...)
        assert(type(name) == "string" and not name:find("[\n:]"), "a decision needs a name without colons")
        assert(not seen[name], "two decisions are called " .. name)
        seen[name] = true
        lines[#lines + 1] = name .. ": " .. one_line((...))
    end)
    return lines
end

local function read_lines(path)
    local file, lines = io.open(path), {}
    if not file then return nil end
    for line in file:lines() do lines[#lines + 1] = line end
    file:close()
    return lines
end

local function write_lines(path, lines)
    local file = assert(io.open(path, "w"))
    file:write(table.concat(lines, "\n"), "\n")
    file:close()
end

-- Compares decisions with those in a file, one "name: decision" a line. decide(record) calls record(name, decision) for each: what
-- testing.select, order, place, costs or slots return. GIMBAL_GOLDEN=write in the environment (or options.write) writes the file anew.
function testing.golden(path, decide, options)
    local lines = collect(decide)
    if (options and options.write) or os.getenv("GIMBAL_GOLDEN") == "write" then return write_lines(path, lines) end
    local golden = read_lines(path)
    if not golden then error(path .. " does not exist; run once with GIMBAL_GOLDEN=write, and look at what it says", 2) end
    for i = 1, math.max(#lines, #golden) do
        if lines[i] ~= golden[i] then
            error(string.format("%s:%d: it was \"%s\" and is \"%s\" now; if that is meant, write it anew with GIMBAL_GOLDEN=write", path, i,
                golden[i] or "nothing", lines[i] or "nothing"), 2)
        end
    end
end

return testing
