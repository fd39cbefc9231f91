-- Luacheck for every Lua file of the house: luacheck --quiet lua bindings tests examples
std = "luajit"
max_line_length = 140
cache = false

-- Policies see the host's table, and read no other global that luajit has not.
files["lua/policies"] = { read_globals = { "gimbal" } }
files["examples"] = { read_globals = { "gimbal" } }
files["**/*_spec.lua"] = { std = "luajit+busted" }
files["tests/lua/template_golden.lua"] = { max_line_length = false }
-- 5.1 has setfenv and loadfile(path); the kit runs there, too.
files["lua/gimbal/testing.lua"] = { std = "max" }
-- Generated: from the column table and the hooks, and from the help of the options.
files["lua/meta"] = { globals = { "gimbal" }, unused_args = false, max_line_length = false }
files["lua/config/default.lua"] = { max_line_length = false }
