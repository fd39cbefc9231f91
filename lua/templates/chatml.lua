-- ChatML, as the bundled model was trained: each message between <|im_start|>ROLE and <|im_end|>, nothing added.
local ROLES = { system = true, user = true, assistant = true }

return function(messages, options)
    local parts = {}
    for _, message in ipairs(messages) do
        if not ROLES[message.role] then
            error(string.format("role %q is unknown to the chatml template; it takes system, user and assistant", message.role), 0)
        end
        parts[#parts + 1] = "<|im_start|>" .. message.role .. "\n" .. message.content .. "<|im_end|>\n"
    end
    if options.add_generation_prompt then parts[#parts + 1] = "<|im_start|>assistant\n" end
    return table.concat(parts)
end
