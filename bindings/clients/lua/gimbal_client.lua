--- A client of gimbal's msgpack-RPC (docs/rpc.md). One file for plain LuaJIT on Linux: no library but the C library.
--
--     local gimbal = require "gimbal_client"
--     local client = assert(gimbal.connect("/run/gimbal.sock"))             -- or ("127.0.0.1:7400", {auth = "the key"})
--     print(client:call("generate", {prompt = "The capital of France is", sampling = {max_tokens = 16}}).text)
--     for event in client:stream {prompt = "Once upon a time"} do io.write(event.text) end
--     local engines, err = client:call("engine_list")                       -- nil and {code, name, message, data} on errors
--     client:close()
--
-- Calls block. Streams of one client may be read in turn; what arrives for another one is kept for it. In messages an empty
-- table is a map: gimbal.array {} is an empty array. Absent and nil are the same. Integers beyond 2^53 are int64_t cdata.

local ffi = require "ffi"

pcall(ffi.cdef, [[
    int socket(int domain, int type, int protocol);
    int connect(int fd, const void *address, uint32_t bytes);
    intptr_t send(int fd, const void *data, size_t bytes, int flags);
    intptr_t recv(int fd, void *data, size_t bytes, int flags);
    int close(int fd);
    char *strerror(int code);
    struct gimbal_addrinfo {
        int flags, family, type, protocol;
        uint32_t bytes;
        void *address;
        char *name;
        struct gimbal_addrinfo *next;
    };
    int getaddrinfo(const char *host, const char *service, const void *hints, struct gimbal_addrinfo **out);
    void freeaddrinfo(struct gimbal_addrinfo *list);
]])
local AF_UNIX, SOCK_STREAM, MSG_NOSIGNAL, EINTR = 1, 1, 0x4000, 4
local C = ffi.C

local gimbal = {}

-- ---- msgpack ----

local is_array = {}

--- Marks a table as an array, which only matters when it is empty.
function gimbal.array(t) return setmetatable(t, is_array) end

--- The n low bytes of a whole number (or 64-bit cdata), most significant first. By arithmetic: the JIT compiler does not see
-- that members of a union share their bytes.
local function big_endian(value, n)
    if type(value) == "cdata" then value = ffi.cast("uint64_t", value) end
    local out = {}
    for i = n, 1, -1 do
        local low = value % 256
        out[i] = string.char(tonumber(low))
        value = (value - low) / 256
    end
    return table.concat(out)
end

local encode

local function encode_integer(value)    -- a whole number, or int64_t / uint64_t
    if value >= 0 then
        if value < 0x80 then return string.char(tonumber(value)) end
        if value < 0x100 then return "\xcc" .. big_endian(value, 1) end
        if value < 0x10000 then return "\xcd" .. big_endian(value, 2) end
        if value < 0x100000000 then return "\xce" .. big_endian(value, 4) end
        return "\xcf" .. big_endian(value, 8)
    end
    if value >= -0x20 then return string.char(0x100 + tonumber(value)) end
    if value >= -0x80 then return "\xd0" .. big_endian(value, 1) end
    if value >= -0x8000 then return "\xd1" .. big_endian(value, 2) end
    if value >= -0x80000000 then return "\xd2" .. big_endian(value, 4) end
    return "\xd3" .. big_endian(value, 8)
end

local function encode_number(value)
    if value == math.floor(value) and math.abs(value) <= 2 ^ 53 then return encode_integer(value) end
    return "\xcb" .. ffi.string(ffi.new("double[1]", value), 8):reverse()
end

local function encode_head(n, fix, fix_most, byte, short, long)
    if n <= fix_most then return string.char(fix + n) end
    if byte and n < 0x100 then return byte .. big_endian(n, 1) end
    if n < 0x10000 then return short .. big_endian(n, 2) end
    return long .. big_endian(n, 4)
end

local function encode_table(t)
    local out, n = {}, 0
    if #t > 0 or getmetatable(t) == is_array then
        for _, value in ipairs(t) do out[#out + 1] = encode(value) end
        return encode_head(#t, 0x90, 15, nil, "\xdc", "\xdd") .. table.concat(out)
    end
    for key, value in pairs(t) do
        out[#out + 1] = encode(key) .. encode(value)
        n = n + 1
    end
    return encode_head(n, 0x80, 15, nil, "\xde", "\xdf") .. table.concat(out)
end

function encode(value)
    local kind = type(value)
    if kind == "nil" then return "\xc0" end
    if kind == "boolean" then return value and "\xc3" or "\xc2" end
    if kind == "number" then return encode_number(value) end
    if kind == "string" then return encode_head(#value, 0xa0, 31, "\xd9", "\xda", "\xdb") .. value end
    if kind == "table" then return encode_table(value) end
    if kind == "cdata" then return encode_integer(value) end
    error("cannot send a " .. kind)
end
gimbal.encode = encode

local function read_unsigned(data, at, n)    -- at most 6 bytes
    local value = 0
    for i = at, at + n - 1 do value = value * 256 + data:byte(i) end
    return value
end

--- A 64-bit integer of which `high` are the upper 32 bits: a Lua number up to 2^53, cdata beyond.
local function read_wide(data, at, high, wide)
    local low = read_unsigned(data, at + 4, 4)
    if high >= -2 ^ 21 and high < 2 ^ 21 then return high * 2 ^ 32 + low end
    return ffi.cast(wide, high) * 0x100000000LL + low
end

--- A number of n bytes at position `at`: "u" unsigned, "i" signed, "f" float.
local function read_number(data, at, n, kind)
    if kind == "f" then return ffi.cast(n == 8 and "const double *" or "const float *", data:sub(at, at + n - 1):reverse())[0] end
    local value = read_unsigned(data, at, n == 8 and 4 or n)
    if kind == "i" and data:byte(at) >= 0x80 then value = value - 2 ^ (n == 8 and 32 or 8 * n) end
    return n == 8 and read_wide(data, at, value, kind == "u" and "uint64_t" or "int64_t") or value
end

local MATRIX_TYPES = {[0] = "uint32_t", "uint64_t", "float", "double"}

--- A matrix: dims, and at(i, j, ...) with indices from 0; or {ext = code, data = bytes}.
local function decode_ext(code, data)
    if code ~= 1 then return {ext = code, data = data} end
    local head = ffi.cast("const uint8_t *", data)
    local dims, n_dims, cell = {}, head[1], MATRIX_TYPES[head[0]]
    for i = 1, n_dims do dims[i] = ffi.cast("const uint32_t *", head + 4)[i - 1] end
    local bytes = data:sub(5 + 4 * n_dims)
    local cells = ffi.new(cell .. "[?]", #bytes / ffi.sizeof(cell))
    ffi.copy(cells, bytes, #bytes)
    return {dims = dims, cells = cells, at = function(...)
        local index = 0
        for i = 1, n_dims do index = index * dims[i] + select(i, ...) end
        return tonumber(cells[index])
    end}
end

local decode

local function decode_list(data, at, n)
    local list = gimbal.array {}
    for i = 1, n do list[i], at = decode(data, at) end
    return list, at
end

local function decode_map(data, at, n)
    local map = {}
    for _ = 1, n do
        local key, value
        key, at = decode(data, at)
        value, at = decode(data, at)
        map[key] = value
    end
    return map, at
end

local function decode_bytes(data, at, n) return data:sub(at, at + n - 1), at + n end

-- By first byte: bytes of length, then what it counts.
local SIZED = {
    [0xc4] = {1, decode_bytes}, [0xc5] = {2, decode_bytes}, [0xc6] = {4, decode_bytes},
    [0xd9] = {1, decode_bytes}, [0xda] = {2, decode_bytes}, [0xdb] = {4, decode_bytes},
    [0xdc] = {2, decode_list}, [0xdd] = {4, decode_list}, [0xde] = {2, decode_map}, [0xdf] = {4, decode_map},
}
local NUMBERS = {
    [0xca] = {4, "f"}, [0xcb] = {8, "f"}, [0xcc] = {1, "u"}, [0xcd] = {2, "u"}, [0xce] = {4, "u"}, [0xcf] = {8, "u"},
    [0xd0] = {1, "i"}, [0xd1] = {2, "i"}, [0xd2] = {4, "i"}, [0xd3] = {8, "i"},
}
local EXT_LENGTHS = {[0xc7] = 1, [0xc8] = 2, [0xc9] = 4}

local function decode_any_ext(first, data, at)
    local n
    local length_bytes = EXT_LENGTHS[first] or 0
    if length_bytes > 0 then n = read_number(data, at, length_bytes, "u") else n = 2 ^ (first - 0xd4) end
    at = at + length_bytes
    return decode_ext(read_number(data, at, 1, "i"), data:sub(at + 1, at + n)), at + 1 + n
end

--- The value at position `at` of a whole message, and the position after it.
function decode(data, at)
    local first = data:byte(at)
    at = at + 1
    if first < 0x80 then return first, at end
    if first < 0x90 then return decode_map(data, at, first - 0x80) end
    if first < 0xa0 then return decode_list(data, at, first - 0x90) end
    if first < 0xc0 then return decode_bytes(data, at, first - 0xa0) end
    if first >= 0xe0 then return first - 0x100, at end
    if first == 0xc0 then return nil, at end
    if first == 0xc2 or first == 0xc3 then return first == 0xc3, at end
    local number, sized = NUMBERS[first], SIZED[first]
    if number then return read_number(data, at, number[1], number[2]), at + number[1] end
    if sized then return sized[2](data, at + sized[1], read_number(data, at, sized[1], "u")) end
    return decode_any_ext(first, data, at)
end

--- gimbal.decode(bytes, at) of whole messages; an incomplete one is an error.
function gimbal.decode(data, at) return decode(data, at or 1) end

--- Bytes of the message at `at`, or nil when it has not arrived whole.
local function message_size(data, at)
    local start, open = at, 1
    while open > 0 do
        local first = data:byte(at)
        if not first then return nil end
        local length_bytes = SIZED[first] and SIZED[first][1] or EXT_LENGTHS[first] or 0
        if #data < at + length_bytes then return nil end
        local n = length_bytes > 0 and read_number(data, at + 1, length_bytes, "u") or 0
        at, open = at + 1 + length_bytes, open - 1
        if NUMBERS[first] then at = at + NUMBERS[first][1]
        elseif first >= 0x80 and first < 0x90 then open = open + 2 * (first - 0x80)
        elseif first >= 0x90 and first < 0xa0 then open = open + first - 0x90
        elseif first >= 0xa0 and first < 0xc0 then at = at + first - 0xa0
        elseif first == 0xdc or first == 0xdd then open = open + n
        elseif first == 0xde or first == 0xdf then open = open + 2 * n
        elseif SIZED[first] then at = at + n
        elseif EXT_LENGTHS[first] then at = at + 1 + n
        elseif first >= 0xd4 and first <= 0xd8 then at = at + 1 + 2 ^ (first - 0xd4) end
    end
    return at - 1 <= #data and at - start or nil
end

-- ---- sockets ----

local function errno() return ffi.string(C.strerror(ffi.errno())) end

local function connect_unix(path)
    if #path > 107 then return nil, "the socket path has more than 107 bytes: " .. path end
    local address = ffi.new("struct { uint16_t family; char path[108]; }", {AF_UNIX, path})
    local fd = C.socket(AF_UNIX, SOCK_STREAM, 0)
    if fd >= 0 and C.connect(fd, address, ffi.sizeof(address)) == 0 then return fd end
    local why = errno()
    if fd >= 0 then C.close(fd) end
    return nil, path .. ": " .. why
end

local function connect_tcp(host, port)
    local list = ffi.new("struct gimbal_addrinfo *[1]")
    local hints = ffi.new("struct gimbal_addrinfo", {type = SOCK_STREAM})
    if C.getaddrinfo(host, port, hints, list) ~= 0 then return nil, host .. ": unknown host" end
    local at, why = list[0], "no address"
    while at ~= nil do
        local fd = C.socket(at.family, at.type, at.protocol)
        if fd >= 0 and C.connect(fd, at.address, at.bytes) == 0 then
            C.freeaddrinfo(list[0])
            return fd
        end
        why = errno()
        if fd >= 0 then C.close(fd) end
        at = at.next
    end
    C.freeaddrinfo(list[0])
    return nil, host .. ":" .. port .. ": " .. why
end

-- ---- the client ----

local Client = {}
Client.__index = Client

--- Connects and says hello. address: "/path", "unix:/path", "host:port" or "tcp:host:port". nil and a sentence on failure.
function gimbal.connect(address, options)
    local path = address:match("^unix:(.+)$") or address:match("^%.?/.*")
    local host, port = address:gsub("^tcp:", ""):match("^%[?([^%]]-)%]?:(%d+)$")
    if not path and not host then return nil, "no address of a server: " .. address end
    local fd, why
    if path then fd, why = connect_unix(path) else fd, why = connect_tcp(host, port) end
    if not fd then return nil, why end
    local client = setmetatable({fd = fd, data = "", chunk = ffi.new("char[65536]"), msgid = 0, streams = 0, answers = {}, events = {}},
                                Client)
    local hello, err = client:call("hello", {client = "gimbal_client.lua", auth = options and options.auth})
    if hello then
        client.hello = hello
        return client
    end
    client:close()
    return nil, err.message
end

function Client:close()
    if self.fd then C.close(self.fd) end
    self.fd = nil
end

function Client:write(message)
    local data, sent = encode(message), 0
    while sent < #data do
        local n = C.send(self.fd, ffi.cast("const char *", data) + sent, #data - sent, MSG_NOSIGNAL)
        if n >= 0 then sent = sent + tonumber(n)
        elseif ffi.errno() ~= EINTR then error("gimbal: the connection is lost: " .. errno(), 0) end
    end
end

--- Waits for bytes and sorts the messages they complete.
function Client:receive()
    local n = tonumber(C.recv(self.fd, self.chunk, 65536, 0))
    if n < 0 and ffi.errno() == EINTR then return end
    if n <= 0 then error("gimbal: the server closed the connection", 0) end
    local data, at = self.data .. ffi.string(self.chunk, n), 1
    local size = message_size(data, at)
    while size do
        self:sort((decode(data, at)))
        at = at + size
        size = message_size(data, at)
    end
    self.data = data:sub(at)
end

function Client:sort(message)
    if message[1] == 1 then
        self.answers[message[2]] = message
        return
    end
    local name, event = message[2], message[3][1]
    local queue = self.events[event.request_id or event.sub_id or name]
    if queue then queue[#queue + 1] = {name, event} end
    if name == "error_event" and not event.method then error("gimbal: " .. event.message, 0) end
end

function Client:notify(method, params) self:write {2, method, {params or {}}} end

--- The result, or nil and the error {code, name, message, data}.
function Client:call(method, params)
    self.msgid = self.msgid % 0xffffffff + 1
    local msgid = self.msgid
    if method == "generate" and params.stream and params.request_id then self.events[params.request_id] = {} end
    self:write {0, msgid, method, {params or {}}}
    while not self.answers[msgid] do self:receive() end
    local answer = self.answers[msgid]
    self.answers[msgid] = nil
    if answer[3] ~= nil then return nil, answer[3] end
    return answer[4]
end

--- An iterator over the token events of a request; params as generate's. Raises the server's error; with a second result,
-- a table that gets the `done` event. stop() from inside the loop aborts: for event, stop in client:stream {...}.
function Client:stream(params)
    local request, finished = {}, {}
    for key, value in pairs(params) do request[key] = value end
    self.streams = self.streams + 1
    request.stream = true
    request.request_id = request.request_id or ("lua-%s-%d"):format(tostring(self):match("0x%x+"), self.streams)
    local id, window, unacked, ended = request.request_id, request.window or 64, 0, false
    local accepted, err = self:call("generate", request)
    if not accepted then error(err, 0) end
    local function stop()
        if not ended then self:notify("abort", {request_id = id}) end
        ended, self.events[id] = true, nil
    end
    return function()
        if ended then return nil end
        local queue = self.events[id]
        while #queue == 0 do self:receive() end
        local name, event = unpack(table.remove(queue, 1))
        if name == "token" then
            unacked = unacked + 1
            if window > 0 and 2 * unacked >= window then
                self:notify("ack", {request_id = id, n = unacked})
                unacked = 0
            end
            return event, stop
        end
        ended, self.events[id] = true, nil
        if name == "failed" then error(event.error, 0) end
        for key, value in pairs(event) do finished[key] = value end
    end, finished
end

return gimbal
