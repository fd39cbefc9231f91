-- What the docs and the stub for editors say of hooks and functions is what the host has. (Columns: tests/flow/columns_doc_test.c.)
local prelude = require("prelude")
local testing = require("gimbal.testing")

local function read(path)
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    return text
end

-- Hook and parameters, as the host's prelude has them.
local function hooks()
    local found, n = {}, 0
    local list = read("bindings/lua/prelude.lua"):match("local HOOKS = {(.-)\n}")
    for name, parameters in list:gmatch('([%w_]+) = "([^"]*)"') do found[name], n = parameters, n + 1 end
    assert.equal(7, n)
    return found
end

describe("docs/policies.md", function()
    local page = read("docs/policies.md")

    it("has a section for every hook, with its signature and what an author asks about it", function()
        for name, parameters in pairs(hooks()) do
            local signature = name .. "(" .. parameters .. ")"
            local at = page:find("### [^\n]*" .. signature:gsub("%p", "%%%0"))
            assert.is_truthy(at, signature .. " has no section")
            local section = page:sub(at, (page:find("\n##", at + 4)))
            for _, row in ipairs({ "| called |", "| returns |", "| fault |", "| budget |", "| cost |" }) do
                assert.is_truthy(section:find(row, 1, true), signature .. " says nothing about " .. row)
            end
        end
    end)

    it("has examples that a policy can be made of", function()
        local n, source = 0, "local policy = { api = 1 }\n"
        for block in page:gmatch("```lua\n(.-)```") do
            if block:find("function policy%.") and not block:find("return policy") then
                n, source = n + 1, source .. "do " .. block .. "end\n"
            end
        end
        assert.is_true(n >= 5)
        local path = os.tmpname()
        local file = io.open(path, "w")
        file:write(source, "return policy\n")
        file:close()
        local policy = testing.load(path)
        os.remove(path)
        local window = testing.window({ ranks = 2, tokens = { { { 9, 1, 1, 1 } } } })
        assert.same({ 0, 2, 1 }, testing.order(policy, testing.queue({ { prefill_tokens = 1 }, { priority = 1 }, { prefill_tokens = 5 } })))
        assert.equal(4, #testing.place(policy, window)[1])
        assert.same({ 3, 1 / 3, 1 / 3, 1 / 3 }, select(2, testing.costs(policy, window, 0)))
        policy.on_window(window)
        policy.import(policy.export(), 1)
    end)
end)

describe("lua/meta/gimbal.lua", function()
    local stub = read("lua/meta/gimbal.lua")

    it("has every hook with its parameters", function()
        for name, parameters in pairs(hooks()) do
            local declared = stub:match("%-%-%-@field " .. name .. " %(?fun(%b())")
            assert.is_truthy(declared, name)
            assert.equal("(" .. parameters .. ")", (declared:gsub(": [%w_.]+", "")))
        end
    end)

    it("has every function of gimbal", function()
        local declared, names = {}, {}
        for name in stub:gmatch("\nfunction gimbal%.([%w_]+)") do declared[#declared + 1] = name end
        for name in pairs(prelude.open().environment().gimbal) do names[#names + 1] = name end
        table.sort(declared)
        table.sort(names)
        assert.same(names, declared)
    end)
end)
