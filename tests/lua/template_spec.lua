describe("chat templates", function()
    local golden = require("template_golden")

    it("render what the models' own templates render", function()
        assert.is_true(#golden > 100)
        for _, case in ipairs(golden) do
            local render = dofile("lua/templates/" .. case.template .. ".lua")
            assert.equal(case.text, render(case.messages, case))
        end
    end)

    for _, name in ipairs({ "chatml", "qwen3" }) do
        it("refuse a role they do not know in one sentence: " .. name, function()
            local render = dofile("lua/templates/" .. name .. ".lua")
            assert.error_matches(function() render({ { role = "robot", content = "beep" } }, {}) end,
                '^role "robot" is unknown to the ' .. name .. " template; it takes system, user")
        end)
    end

    it("take time in proportion to a message of newlines", function()
        local render = dofile("lua/templates/qwen3.lua")
        local newlines = ("\n"):rep(2 ^ 20)
        local text = render({ { role = "user", content = "q" }, { role = "assistant", content = newlines .. "x" .. newlines } }, {})
        assert.equal(#text, #"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nx<|im_end|>\n" + #newlines)
    end)
end)
