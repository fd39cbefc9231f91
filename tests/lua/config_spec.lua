describe("lua/config/default.lua", function()
    local function read(path)
        local file = assert(io.open(path))
        local text = file:read("*a")
        file:close()
        return text
    end

    -- Keys and defaults of GB_OPTIONS, as the C table has them.
    local function options()
        local list = {}
        for key, default in read("bindings/c/options.h"):gmatch('X%("[%w_]+", ([%w_]+), %u+, "(.-)"') do
            list[#list + 1] = { key = key, default = default }
        end
        return list
    end

    it("sets every option that has a default to it, and names the others in a comment", function()
        local config, text, list = dofile("lua/config/default.lua"), read("lua/config/default.lua"), options()
        assert.is_true(#list > 20)
        for _, option in ipairs(list) do
            if option.default == "" then
                assert.is_nil(config[option.key])
                assert.is_truthy(text:find("\n    -- " .. option.key .. " = ", 1, true), option.key)
            else
                assert.equal(option.default, tostring(config[option.key]), option.key)
            end
            config[option.key] = nil
        end
        assert.same({}, config)
    end)
end)
