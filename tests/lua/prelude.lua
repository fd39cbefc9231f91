-- The host's real prelude under plain LuaJIT, with tables of its own instead of a server's: what the fakes are compared with.
local ffi = require("ffi")

local function read(path)
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    return text
end

local prelude = {}

-- The columns of one list in core/flow/columns.h: {name, unit, meaning} each. kind: COLUMNS or SCALARS.
function prelude.columns(list, kind)
    local text = read("core/flow/columns.h"):match("#define GB_" .. list .. "_" .. (kind or "COLUMNS") .. "[_OF]*%(X[, W]*%)(.-)\n[\n#]")
    local columns = {}
    for name, unit, meaning in text:gmatch('[XW]%(([%w_]+), "(.-)", "(.-)"%)') do
        columns[#columns + 1] = { name = name, unit = unit, meaning = meaning, written = name == "key" }
    end
    return columns
end

local function declare(columns, kind)
    local text = {}
    for i, column in ipairs(columns) do text[i] = kind .. column.name .. ";" end
    return table.concat(text, " ")
end

local WINDOW_SCALARS = { { name = "n" }, { name = "id" } } -- some: no spec reads the views of windows and placements
local RANK_SCALARS, COST_SCALARS = { { name = "home" } }, { { name = "n" } }
local ENGINES, REQUEST, QUEUE = prelude.columns("ENGINE"), prelude.columns("REQUEST"), prelude.columns("QUEUE")

local function fill(struct, columns, rows)
    local kept = {}
    for _, column in ipairs(columns) do
        local values = ffi.new("double[?]", #rows + 1)
        for i, row in ipairs(rows) do values[i - 1] = row[column.name] or 0 end
        struct[column.name], kept[#kept + 1] = values, values
    end
    struct.n = #rows
    return kept
end

-- The views of two engines, one request and two waiting requests, a fresh environment, and the check of a policy table.
function prelude.open()
    local layout = "typedef struct { int32_t n, next; " .. declare(ENGINES, "double *") .. " } gb_engine_table;"
        .. "typedef struct { " .. declare(REQUEST, "double ") .. " } gb_request_row;"
        .. "typedef struct { int32_t n, engine, capacity; " .. declare(QUEUE, "double *") .. " } gb_queue_table;"
        .. "typedef struct { const gb_engine_table *engines; const gb_request_row *request; gb_queue_table *queue;"
        .. "struct { double n, id; double *tokens; } *window; struct { int32_t n; double home; double *score; } *ranks;"
        .. "struct { double n; double *cost; } *out; double now_ns, pcalls; }"
        .. "gb_lua_frame;"
    if not prelude.declared then ffi.cdef(layout) end
    prelude.declared = true
    local engines, queue, request = ffi.new("gb_engine_table"), ffi.new("gb_queue_table"), ffi.new("gb_request_row")
    local frame = ffi.new("gb_lua_frame", { engines = engines, request = request, queue = queue, now_ns = 0 })
    local host = {
        layout = "", getinfo = debug.getinfo, sizes = {}, settings = {}, ffi = ffi, log = function() end,
        shipped = function() end, set_metatable = function() end,
        frame = ffi.cast("void *", frame), rng = ffi.cast("void *", nil), uniform = ffi.cast("void *", nil),
        views = {
            engines = { columns = ENGINES, numbers = prelude.columns("ENGINE", "COUNTS") }, request = { numbers = REQUEST },
            queue = { columns = QUEUE, numbers = prelude.columns("QUEUE", "COUNTS") },
            window = { columns = { { name = "tokens" } }, numbers = WINDOW_SCALARS },
            ranks = { columns = { { name = "score" } }, numbers = RANK_SCALARS },
            out = { columns = { { name = "cost" } }, numbers = COST_SCALARS },
        },
    }
    local kept = { fill(engines, ENGINES, { {}, {} }), fill(queue, QUEUE, { {}, {} }), engines, queue, request, frame }
    local request_view, engine_view, queue_view, _, _, _, environment, check = assert(loadfile("bindings/lua/prelude.lua"))(host)
    return { request = request_view, engines = engine_view, queue = queue_view, environment = environment, check = check, kept = kept }
end

return prelude
