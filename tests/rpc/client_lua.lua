-- The Lua client on plain LuaJIT against the fixture behind sockets; with_server.sh starts it. arg[1] is the source tree.
local root = arg[1]
package.path = root .. "/bindings/clients/lua/?.lua;" .. package.path
local gimbal = require "gimbal_client"

local ANSWER = "The capital of France is Paris."
local passed, failed = 0, 0

local function test(name, body)
    local ok, why = pcall(body)
    print((ok and "ok   " or "FAIL ") .. name)
    if ok then passed = passed + 1 else
        failed = failed + 1
        print("    " .. (type(why) == "table" and why.message or tostring(why)))
    end
end

local function equal(a, b)
    if a ~= b then error(("%s is not %s"):format(tostring(a), tostring(b)), 2) end
end

local function connect(address, auth) return assert(gimbal.connect(address or os.getenv("GIMBAL_SOCKET"), {auth = auth})) end

--- A client whose server is this test: what is written to the second result arrives at the first.
local function piped_client()
    local ffi = require "ffi"
    pcall(ffi.cdef, "int socketpair(int domain, int type, int protocol, int fds[2]); int close(int);")
    local client, fds = connect(), ffi.new("int[2]")
    assert(ffi.C.socketpair(1, 1, 0, fds) == 0)
    ffi.C.close(client.fd)
    client.fd = fds[0]
    return client, function(bytes) assert(ffi.C.send(fds[1], bytes, #bytes, 0) == #bytes) end
end

-- Compiled code once took one number's bytes for another's, after some thousand messages.
test("a_long_stream_with_a_float_in_it_arrives_whole", function()
    local client, send = piped_client()
    client.events = {long = {}, goaway = {}}
    for seq = 0, 1999 do
        send(gimbal.encode {2, "token", {{request_id = "long", index = 0, seq = seq, text = "x", tokens = gimbal.array {seq % 4096}}}})
        if seq % 500 == 250 then send(gimbal.encode {2, "goaway", {{reason = "shutdown", deadline_ms = 30000.25}}}) end
        client:receive()
    end
    equal(#client.events.long, 2000)
    for seq = 0, 1999 do
        equal(client.events.long[seq + 1][2].seq, seq)
        equal(client.events.long[seq + 1][2].tokens[1], seq)
    end
    equal(#client.events.goaway, 4)
    equal(client.events.goaway[4][2].deadline_ms, 30000.25)
    client:close()
end)

test("numbers_come_back_the_same_compiled_or_not", function()
    local numbers = {0, 1, 127, 128, 255, 256, 65535, 65536, 2 ^ 32 - 1, 2 ^ 32, 2 ^ 53, -1, -32, -33, -128, -129, -32768, -32769,
                     -2 ^ 31, -2 ^ 31 - 1, -2 ^ 53, 0.5, -1.25, 30000.75, 1e300, 2 ^ 63 * 1.5, 18446744073709551615ULL,
                     9223372036854775807LL, -9223372036854775807LL}
    for _ = 1, 500 do
        for _, number in ipairs(numbers) do
            local message = gimbal.encode {2, "event", {{reason = "x", value = number, last = number}}}
            local back, after = gimbal.decode(message)
            equal(back[3][1].value, number)
            equal(back[3][1].last, number)
            equal(after, #message + 1)
        end
    end
end)

test("a_call_returns_the_result", function()
    local client = connect()
    local result = assert(client:call("generate", {prompt = "Where is Paris?", request_id = "mine"}))
    equal(result.text, ANSWER)
    equal(result.request_id, "mine")
    equal(#result.tokens, 32)
    equal(result.usage.prompt_tokens, 15)
    client:close()
end)

test("a_refused_call_returns_nil_and_the_error", function()
    local client = connect()
    local result, err = client:call("generate", {prompt = "x", sampling = {max_tokens = 0}})
    equal(result, nil)
    equal(err.code, -32602)
    equal(err.name, "INVALID_PARAMS")
    equal(err.data.path, "sampling.max_tokens")
    client:close()
end)

test("a_stream_iterates_over_the_text", function()
    local client = connect()
    for _, window in ipairs {0, 1, 2, 64} do
        local parts = {}
        local next_event, done = client:stream {prompt = "x", window = window}
        for event in next_event do parts[#parts + 1] = event.text end
        equal(table.concat(parts), ANSWER)
        equal(done.finish_reason, "stop")
    end
    client:close()
end)

test("streams_of_one_client_do_not_mix", function()
    local client, streams = connect(), {}
    for n = 1, 9 do streams[n] = client:stream {prompt = "x", window = 3, sampling = {max_tokens = n}} end
    for n = 9, 1, -1 do
        local text = ""
        for event in streams[n] do text = text .. event.text end
        equal(text, ANSWER:sub(1, n))
    end
    client:close()
end)

test("stop_aborts_a_stream", function()
    local client = connect()
    for _, stop in client:stream {prompt = "x", request_id = "left", window = 1} do stop() end
    equal(client:call("abort", {request_id = "left"}).aborted, 0)
    client:close()
end)

test("a_failed_stream_raises_the_servers_error", function()
    local client, other = connect(), connect()
    local next_event = client:stream {prompt = "x", request_id = "cut", window = 1}
    equal(other:call("abort", {request_id = "cut"}).aborted, 1)
    local ok, err = pcall(function() for _ in next_event do end end)
    equal(ok, false)
    equal(err.name, "ABORTED")
    client:close()
    other:close()
end)

test("matrices_are_read_by_index", function()
    local client = connect()
    client:call("generate", {prompt = "x"})
    local result = client:call("expert_matrix")
    equal(table.concat(result.A.dims, " "), "2 2 8")
    equal(result.A.at(0, 0, 0) + result.A.at(0, 1, 0), result.B.at(0, 0))
    client:close()
end)

test("tcp_needs_the_key", function()
    local address = os.getenv("GIMBAL_TCP")
    local client, why = gimbal.connect(address)
    equal(client, nil)
    assert(why:find("API key", 1, true), why)
    client = connect(address, "the key")
    local _, err = client:call("policy_load", {source = "return {}"})
    equal(err.name, "FORBIDDEN")
    client:close()
    client = connect("tcp:" .. address, "the token")
    equal(client.hello.admin, true)
    client:close()
end)

test("nobody_there_is_nil_and_a_sentence", function()
    local client, why = gimbal.connect("/nonexistent/gimbal.sock")
    equal(client, nil)
    assert(why:find("No such file"), why)
    assert(select(2, gimbal.connect("127.0.0.1:1")):find("refused"))
    assert(select(2, gimbal.connect("nowhere")):find("no address"))
end)

-- ---- the codec, against the vectors; a JSON reader just good enough for that file ----

local function read_json(text)
    local at = 1
    local function skip() at = text:find("[^%s]", at) end
    local value
    local escapes = {n = "\n", t = "\t", r = "\r", b = "\b", f = "\f"}
    local function utf8(code)
        if code < 0x80 then return string.char(code) end
        if code < 0x800 then return string.char(0xc0 + math.floor(code / 64), 0x80 + code % 64) end
        return string.char(0xe0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
    end
    local function read_string()
        local stop = at + 1
        while text:sub(stop, stop) ~= '"' do stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1) end
        local raw = text:sub(at + 1, stop - 1)
        at = stop + 1
        raw = raw:gsub("\\u(%x%x%x%x)", function(hex) return utf8(tonumber(hex, 16)) end)
        return (raw:gsub("\\(.)", function(c) return escapes[c] or c end))
    end
    local function read_list(close, each)
        at = at + 1
        skip()
        while text:sub(at, at) ~= close do
            each()
            skip()
            if text:sub(at, at) == "," then at = at + 1 end
            skip()
        end
        at = at + 1
    end
    function value()
        skip()
        local c = text:sub(at, at)
        if c == '"' then return read_string() end
        if c == "[" then
            local list, n = gimbal.array {}, 0
            read_list("]", function()
                n = n + 1
                list[n] = value()
            end)
            list.n = n
            return list
        end
        if c == "{" then
            local map = {}
            read_list("}", function()
                local key = read_string()
                skip()
                at = at + 1    -- the colon
                map[key] = value()
            end)
            return map
        end
        local word = text:match("^[%w+.-]+", at)
        at = at + #word
        if word == "null" then return nil end
        if word == "true" or word == "false" then return word == "true" end
        return tonumber(word)
    end
    return value()
end

local function unhex(hex) return (hex:gsub("%s", ""):gsub("%x%x", function(two) return string.char(tonumber(two, 16)) end)) end

local function same(a, b, where)
    if type(b) == "table" and type(a) == "table" and a.cells then    -- a matrix against nested arrays
        local function walk(nested, ...)
            if type(nested) ~= "table" then return equal(a.at(...), nested) end
            for i = 1, nested.n do
                local path = {...}
                path[#path + 1] = i - 1
                walk(nested[i], unpack(path))
            end
        end
        return walk(b)
    end
    if type(b) ~= "table" then
        if a ~= b then error(("%s: %s is not %s"):format(where, tostring(a), tostring(b)), 0) end
        return
    end
    for key, value in pairs(b) do if key ~= "n" then same(a[key], value, where .. "." .. tostring(key)) end end
    for key in pairs(a) do if b[key] == nil then error(where .. "." .. tostring(key) .. " is not in the vector", 0) end end
end

local function vectors()
    local file = assert(io.open(root .. "/tests/rpc/vectors.json"))
    local text = file:read("*a")
    file:close()
    return read_json(text).calls
end

test("the_codec_decodes_requests_and_responses_of_the_vectors", function()
    for _, vector in ipairs(vectors()) do
        same(gimbal.decode(unhex(vector.request_hex)), vector.request, vector.name .. " request")
        same(gimbal.decode(unhex(vector.response_hex)), vector.response, vector.name .. " response")
    end
end)

test("what_the_codec_encodes_it_decodes", function()
    local numbers = {0, 1, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296, 2 ^ 53, -1, -32, -33, -128, -129, -32768, -32769,
                     -2147483648, -2147483649, -2 ^ 53, 0.5, -1.25e300, 1e100, math.huge}
    for _, number in ipairs(numbers) do equal(gimbal.decode(gimbal.encode(number)), number) end
    local large = 2LL ^ 60 + 1
    assert(gimbal.decode(gimbal.encode(9007199254740993LL)) == 9007199254740993LL)
    assert(gimbal.decode(gimbal.encode(large)) == large)
    assert(gimbal.decode(gimbal.encode(-9007199254740993LL)) == -9007199254740993LL)
    assert(gimbal.decode(gimbal.encode(18446744073709551615ULL)) == 18446744073709551615ULL)
    for _, n in ipairs {0, 1, 31, 32, 255, 256, 65535, 65536, 100000} do equal(gimbal.decode(gimbal.encode(("x"):rep(n))), ("x"):rep(n)) end
    for _, n in ipairs {0, 1, 15, 16, 65535, 65536} do
        local list = gimbal.array {}
        for i = 1, n do list[i] = i end
        equal(#gimbal.decode(gimbal.encode(list)), n)
    end
    equal(gimbal.encode({}), "\x80")
    equal(gimbal.encode(gimbal.array {}), "\x90")
end)

test("shutdown_comes_last", function()
    local client = connect()
    assert(client:call("shutdown"))
    client:close()
end)

print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
