-- Qwen3's hybrid models: ChatML with thoughts between <think> and </think>. Thoughts of answers before the last question are
-- left out, an empty thought turns thinking off, and results of tools come as a user's message.
local function lstrip(text) return text:sub(text:find("[^\n]") or #text + 1) end

local function rstrip(text) return lstrip(text:reverse()):reverse() end

local function before_first(text, mark)
    local at = text:find(mark, 1, true)
    return at and text:sub(1, at - 1) or text
end

local function after_last(text, mark)
    local from = 1
    while true do
        local _, last = text:find(mark, from, true)
        if not last then return text:sub(from) end
        from = last + 1
    end
end

-- The answer without its thoughts, and the thoughts.
local function split_thoughts(content)
    if not content:find("</think>", 1, true) then return content, "" end
    local thoughts = lstrip(after_last(rstrip(before_first(content, "</think>")), "<think>"))
    return lstrip(after_last(content, "</think>")), thoughts
end

local function is_tool_result(content)
    return content:sub(1, 15) == "<tool_response>" and content:sub(-16) == "</tool_response>"
end

local function last_question(messages)
    for i = #messages, 1, -1 do
        if messages[i].role == "user" and not is_tool_result(messages[i].content) then return i end
    end
    return #messages
end

local function role_at(messages, i) return messages[i] and messages[i].role end

local render = {}

function render.system(_, message) return "<|im_start|>system\n" .. message.content .. "<|im_end|>\n" end

function render.user(_, message) return "<|im_start|>user\n" .. message.content .. "<|im_end|>\n" end

function render.assistant(messages, message, i, question)
    local content, thoughts = split_thoughts(message.content)
    if i > question and (i == #messages or thoughts ~= "") then
        content = "<think>\n" .. rstrip(thoughts) .. "\n</think>\n\n" .. lstrip(content)
    end
    return "<|im_start|>assistant\n" .. content .. "<|im_end|>\n"
end

-- Neighbouring results share one user's message.
function render.tool(messages, message, i)
    local text = "\n<tool_response>\n" .. message.content .. "\n</tool_response>"
    if role_at(messages, i - 1) ~= "tool" then text = "<|im_start|>user" .. text end
    if role_at(messages, i + 1) ~= "tool" then text = text .. "<|im_end|>\n" end
    return text
end

return function(messages, options)
    local parts, question = {}, last_question(messages)
    for i, message in ipairs(messages) do
        local write = render[message.role]
        if not write then
            error(string.format("role %q is unknown to the qwen3 template; it takes system, user, assistant and tool", message.role), 0)
        end
        parts[i] = write(messages, message, i, question)
    end
    if options.add_generation_prompt then
        parts[#parts + 1] = "<|im_start|>assistant\n"
        if not options.enable_thinking then parts[#parts + 1] = "<think>\n\n</think>\n\n" end
    end
    return table.concat(parts)
end
