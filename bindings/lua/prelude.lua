-- The trusted part of every policy VM. It runs once, with LuaJIT's libraries at hand, and hands back what a script may
-- touch: checked views of the live tables and a whitelist environment. Cdata stays in upvalues here and never reaches a
-- script, because indexing a raw pointer knows no bounds. Error levels count from the script, so that a fault names its line.
local host = ... -- see gb_lua_view_push and push_host in C
local ffi, bit = host.ffi, bit
local error, floor, getmetatable, ipairs, newproxy, pairs, pcall, select, setmetatable, tostring, type =
    error, math.floor, getmetatable, ipairs, newproxy, pairs, pcall, select, setmetatable, tostring, type
local byte, format, gsub, rep, sub = string.byte, string.format, string.gsub, string.rep, string.sub
local insert, sort = table.insert, table.sort

local API = 1
local HOOKS = { -- and what each is called with
    select_engine = "request, engines", order_queue = "queue", score_expert = "layer, expert, ranks",
    placement_cost = "layer, window, out", on_window = "window", export = "", import = "state, from_version",
}
local REP_BYTES_MAX = 64 * 1024 -- of one string.rep
local SORT_ITEMS_MAX = 16 * 1024 -- of one table.sort; C code cannot be interrupted
local FORMAT_BYTES_MAX = 4096
local PCALLS_MAX = 200 -- one inside the other; a script that is stopped is unwound through each of them, which takes time

ffi.cdef(host.layout)
for name, bytes in pairs(host.sizes) do
    assert(ffi.sizeof(name) == bytes, name .. " differs from its C layout")
end
local frame = ffi.cast("gb_lua_frame *", host.frame)
local uniform, generator = ffi.cast("double (*)(void *)", host.uniform), ffi.cast("void *", host.rng)

-- ---- names -------------------------------------------------------------------------------------------------------------

local function distance(a, b) -- Levenshtein
    local row = {}
    for j = 0, #b do row[j] = j end
    for i = 1, #a do
        local corner = row[0]
        row[0] = i
        for j = 1, #b do
            local cost = byte(a, i) == byte(b, j) and 0 or 1
            corner, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1, corner + cost)
        end
    end
    return row[#b]
end

-- The name in the set that is at most two typing errors away, else nil; the first in order when several are.
local function nearest(word, set)
    local best, best_distance = nil, 3
    for name in pairs(set) do
        local d = distance(word, name)
        if d < best_distance or d == best_distance and best and name < best then best, best_distance = name, d end
    end
    return best
end

local function hint(word, set)
    local name = type(word) == "string" and #word < 64 and nearest(word, set)
    return name and format("; did you mean %s?", name) or ""
end

local function show(value)
    local kind = type(value)
    if kind == "string" then return format("%q", #value > 40 and sub(value, 1, 40) .. "..." or value) end
    if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
    return "a " .. kind
end

-- ---- views -------------------------------------------------------------------------------------------------------------

-- Called by a reader or writer that a script called: the script is level 3.
local function misplaced(what, index, n)
    if n == 0 then
        error(format("%s[%s]: there is nothing to index here; a view has rows only inside the hook that gets it", what, show(index)), 3)
    end
    if type(index) ~= "number" then error(format("%s[%s]: the index must be a number", what, show(index)), 3) end
    if index % 1 ~= 0 then error(format("%s[%s]: the index must be a whole number", what, tostring(index)), 3) end
    error(format("%s[%s]: index out of range 0..%d", what, tostring(index), n - 1), 3)
end

local function refuse_value(view, name, index, value)
    error(format("%s.%s[%s] = %s: a %s must be a finite number", view, name, tostring(index), show(value), name), 3)
end

local function outside(name)
    error(format("request.%s can be read only inside select_engine", name), 4)
end

-- Each accessor is compiled from its own text: functions with one prototype and many closures would lose their constants
-- in the JIT. Each is one line, because an interruptible VM checks once a line.
local function accessor(template, view, name, rows)
    local text = gsub(gsub(gsub(template, "VIEW", view), "NAME", name), "ROWS", rows or "n")
    return assert(loadstring(text, "=prelude"))(frame, type, misplaced, refuse_value, outside)
end

local READ = "local frame, type, misplaced = ... return function(_, index) local rows = frame.VIEW "
    .. "if type(index) ~= 'number' or not (index >= 0 and index < rows.ROWS) or index % 1 ~= 0 "
    .. "then misplaced('VIEW.NAME', index, rows.ROWS) end return rows.NAME[index] end"
local WRITE = "local frame, type, misplaced, refuse_value = ... return function(_, index, value) local rows = frame.VIEW "
    .. "if type(index) ~= 'number' or not (index >= 0 and index < rows.ROWS) or index % 1 ~= 0 "
    .. "then misplaced('VIEW.NAME', index, rows.ROWS) end "
    .. "if type(value) ~= 'number' or value - value ~= 0 then refuse_value('VIEW', 'NAME', index, value) end rows.NAME[index] = value end"
local FIELD = "local frame, _, _, _, outside = ... return function() local row = frame.VIEW "
    .. "if row == nil then outside('NAME') end return row.NAME end"
local SCALAR = "local frame = ... return function() return frame.VIEW.NAME end"

local function read_only(name)
    return function() error(name .. " is read-only", 2) end
end

-- A userdata, not a table: it has no contents of its own that table functions could write or the JIT would have to look at.
local function proxy(index, newindex)
    local view = newproxy(true)
    local metatable = getmetatable(view)
    metatable.__index, metatable.__newindex, metatable.__metatable = index, newindex, false
    return view
end

-- A table of columns with a few numbers beside them: engines.kv_used_ratio[i], engines.n. inner: other views that are found in it.
local function table_view(view, inner)
    local fields = host.views[view]
    local proxies, readers, names = {}, {}, {}
    for _, column in ipairs(fields.columns) do
        local name = column.name
        local write = column.written and accessor(WRITE, view, name, column.rows) or read_only(view .. "." .. name)
        proxies[name] = proxy(accessor(READ, view, name, column.rows), write)
        names[name] = true
    end
    for name, other in pairs(inner or {}) do
        proxies[name] = other
        names[name] = true
    end
    for _, number in ipairs(fields.numbers) do
        readers[number.name] = accessor(SCALAR, view, number.name)
        names[number.name] = true
    end
    return proxy(function(_, key)
        local column = proxies[key]
        if column then return column end
        local read = readers[key]
        if read then return read() end
        error(format("%s has no column %s%s", view, show(key), hint(key, names)), 2)
    end, read_only(view))
end

-- One row of scalars: request.prompt_tokens.
local function row_view(view)
    local readers = {}
    for _, column in ipairs(host.views[view].numbers) do readers[column.name] = accessor(FIELD, view, column.name) end
    return proxy(function(_, key)
        local read = readers[key]
        if read then return read() end
        error(format("%s has no field %s%s", view, show(key), hint(key, readers)), 2)
    end, read_only(view))
end

-- ---- the environment ---------------------------------------------------------------------------------------------------

-- What to do without a name that Lua programmers expect.
local MISSING = {
    require = "a policy is one file", print = "use gimbal.log(text)", os = "use gimbal.now() for time",
    io = "a policy reads no files", random = "use gimbal.random()", randomseed = "use gimbal.random()",
}

local function absent(prefix, library)
    return function(_, name)
        local reason = MISSING[name]
        if prefix == "" and not reason and _G[name] == nil then
            error(format("%s is not defined%s", tostring(name), hint(name, library)), 2)
        end
        error(format("%s%s is not available to policies%s", prefix, tostring(name), reason and "; " .. reason or ""), 2)
    end
end

-- tostring without addresses: they differ from run to run.
local function safe_tostring(value)
    local kind = type(value)
    if kind == "number" or kind == "boolean" or kind == "nil" or kind == "string" then return tostring(value) end
    return kind
end

local function safe_format(text, ...)
    if type(text) ~= "string" or #text > FORMAT_BYTES_MAX then
        error(format("string.format: the format must be a string of at most %d bytes", FORMAT_BYTES_MAX), 2)
    end
    for i = 1, select("#", ...) do
        local kind = type((select(i, ...)))
        if kind ~= "number" and kind ~= "string" and kind ~= "boolean" and kind ~= "nil" then
            error(format("string.format: argument %d is a %s; format its fields", i + 1, kind), 2)
        end
    end
    return format(text, ...)
end

local function safe_rep(text, n)
    if type(text) ~= "string" and type(text) ~= "number" or type(n) ~= "number" then
        error("string.rep: wants a string and a count", 2)
    end
    text = tostring(text)
    if #text * n > REP_BYTES_MAX then error(format("string.rep: the result would exceed %d bytes", REP_BYTES_MAX), 2) end
    return rep(text, n)
end

local function safe_insert(list, ...)
    if type(list) ~= "table" then error("table.insert: wants a table, got " .. show(list), 2) end
    local n, length, at, value = select("#", ...), #list, ...
    if n == 1 then
        insert(list, (at))
    elseif n == 2 and type(at) == "number" and at >= 1 and at <= length + 1 then
        insert(list, at, value)
    else
        error(format("table.insert: wants (list, value) or (list, position 1..%d, value)", length + 1), 2)
    end
end

local function safe_sort(list, before)
    if type(list) ~= "table" then error("table.sort: wants a table, got " .. show(list), 2) end
    if #list > SORT_ITEMS_MAX then error(format("table.sort: more than %d items", SORT_ITEMS_MAX), 2) end
    sort(list, before)
end

local function leave(...)
    frame.pcalls = frame.pcalls - 1
    return ...
end

local function safe_pcall(body, ...)
    if frame.pcalls >= PCALLS_MAX then error(format("pcall: more than %d of them one inside the other", PCALLS_MAX), 2) end
    frame.pcalls = frame.pcalls + 1
    return leave(pcall(body, ...))
end

local function pick(library, names)
    local copy = {}
    for _, name in ipairs(names) do copy[name] = assert(library[name], name) end
    return copy
end

local function closed(prefix, library) return setmetatable(library, { __index = absent(prefix, library), __metatable = false }) end

local function random(n)
    if n == nil then return uniform(generator) end
    if type(n) ~= "number" or not (n >= 1 and n <= 2 ^ 53) or n % 1 ~= 0 then
        error("gimbal.random(n): n must be a whole number of at least 1, got " .. show(n), 2)
    end
    return floor(uniform(generator) * n)
end

local function log(text)
    if type(text) ~= "string" and type(text) ~= "number" then error("gimbal.log: wants a text, got " .. show(text), 2) end
    host.log(tostring(text))
end

-- A param that is also an option of the server starts with the server's value.
local function take_settings(params)
    for name, value in pairs(host.settings) do
        if type(params) == "table" and params[name] ~= nil then params[name] = value end
    end
end

local environment -- below: a shipped policy gets one of its own

-- The table of a shipped policy, fresh: to change a param or a hook, or to take one. Its functions keep the params they came with.
local function shipped(name)
    local text = type(name) == "string" and host.shipped(name)
    if not text then error(format("gimbal.shipped: no policy named %s is shipped", show(name)), 2) end
    local policy = setfenv(assert(loadstring(text, "=lua/policies/" .. name .. ".lua")), environment())()
    take_settings(policy.params)
    return policy
end

local function string_library()
    local library = pick(string, { "byte", "char", "len", "lower", "reverse", "sub", "upper" })
    library.format, library.rep = safe_format, safe_rep
    return closed("string.", library)
end

local function libraries()
    local safe_table = pick(table, { "concat", "remove" })
    safe_table.insert, safe_table.sort = safe_insert, safe_sort
    return {
        assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = safe_pcall, select = select,
        tonumber = tonumber, tostring = safe_tostring, type = type, unpack = unpack,
        math = closed("math.", pick(math, { "abs", "ceil", "exp", "floor", "fmod", "huge", "log", "log10", "max", "min", "modf",
            "pi", "pow", "sqrt" })),
        bit = closed("bit.", pick(bit, { "arshift", "band", "bnot", "bor", "bswap", "bxor", "lshift", "rol", "ror", "rshift",
            "tobit", "tohex" })),
        string = string_library(),
        table = closed("table.", safe_table),
        gimbal = closed("gimbal.", { now = function() return frame.now_ns end, random = random, log = log, shipped = shipped }),
    }
end

-- A fresh environment: reads find the whitelist, anything else is an error, and there are no globals to write.
function environment()
    return setmetatable({}, {
        __index = closed("", libraries()),
        __newindex = function(_, name)
            error(format("assignment to global %s; write local %s", tostring(name), tostring(name)), 2)
        end,
        __metatable = false,
    })
end

-- ("x"):rep(n) finds the same functions as string.rep, and nothing else.
host.set_metatable("", { __index = string_library(), __metatable = false })

-- ---- a policy table ----------------------------------------------------------------------------------------------------

local function check_params(params)
    if params == nil then return end
    if type(params) ~= "table" then error("policy.params must be a table of defaults, got " .. show(params), 0) end
    for key, value in pairs(params) do
        local kind = type(value)
        if type(key) ~= "string" then error("policy.params: keys are names, got " .. show(key), 0) end
        if kind ~= "number" and kind ~= "string" and kind ~= "boolean" then
            error(format("policy.params.%s must be a number, a string or a boolean, got %s", key, show(value)), 0)
        end
        if kind == "number" and value ~= value then error(format("policy.params.%s is not a number (nan)", key), 0) end
    end
end

-- A parameter beyond those of a call would always be nil.
local function check_signature(name, hook)
    local takes, given = host.getinfo(hook, "u").nparams, select(2, gsub(HOOKS[name], "[%a_]+", ""))
    if takes > given then
        error(format("policy.%s takes %d parameters; it is called with (%s)", name, takes, HOOKS[name]), 0)
    end
end

local function check_hooks(policy)
    for key, value in pairs(policy) do
        if HOOKS[key] and type(value) ~= "function" then
            error(format("policy.%s is %s; a hook must be a function", key, show(value)), 0)
        end
        if HOOKS[key] then check_signature(key, value) end
        if type(value) == "function" and not HOOKS[key] and hint(key, HOOKS) ~= "" then
            error(format("policy.%s is no hook of api %d%s", tostring(key), API, hint(key, HOOKS)), 0)
        end
    end
end

-- Returns the name, the hooks and the params; raises one sentence about the first thing that is wrong.
local function check(policy)
    if type(policy) ~= "table" then
        error(format("the file returned %s; end it with `return policy`, a table of hooks", show(policy)), 0)
    end
    if policy.api == nil then error(format("the policy names no API; add `api = %d` to its table", API), 0) end
    if policy.api ~= API then
        error(format("the policy is written for api %s; this gimbal speaks api %d, set `api = %d`", show(policy.api), API, API), 0)
    end
    if policy.name ~= nil and type(policy.name) ~= "string" then error("policy.name must be a string, got " .. show(policy.name), 0) end
    check_params(policy.params)
    check_hooks(policy)
    take_settings(policy.params)
    return policy.name, policy.select_engine, policy.order_queue, policy.score_expert, policy.placement_cost, policy.on_window,
        policy.export, policy.import, policy.params
end

local window = table_view("window")

return row_view("request"), table_view("engines"), table_view("queue"), window, table_view("ranks", { window = window }), table_view("out"),
    environment, check
