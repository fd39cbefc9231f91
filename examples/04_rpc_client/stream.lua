-- One streaming request from LuaJIT.      usage: luajit stream.lua ADDRESS [PROMPT]
local here = arg[0]:match("^(.*)/") or "."
package.path = here .. "/../../bindings/clients/lua/?.lua;" .. package.path
local gimbal = require "gimbal_client"

local address, prompt = arg[1], arg[2] or "Once upon a time"
if not address then
    io.stderr:write("usage: luajit stream.lua ADDRESS [PROMPT]\n")
    os.exit(64)
end

local client, err = gimbal.connect(address)
if not client then
    io.stderr:write(tostring(err), "\n")
    os.exit(1)
end
io.write(prompt)
for event in client:stream {prompt = prompt, sampling = {max_tokens = 60}} do
    io.write(event.text)
    io.flush()
end
io.write("\n")
client:close()
