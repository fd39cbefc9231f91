-- Requests that begin alike go where their beginning is cached, as long as that engine is not busier than the others: an
-- engine may be chosen for its cache while its load is within a bound of the lowest load; beyond it the least loaded one is.
local policy = {
    api = 1,
    name = "cache_aware",
    params = {
        min_cached_ratio = 0.25, -- of the prompt; a shorter hit is no reason to prefer an engine
        load_tokens = 2048, -- load above the lowest that a hit may cost, in tokens,
        load_ratio = 0.25, -- or as a share of the lowest
        kv_high = 0.95, -- an engine this full takes nothing for its cache's sake
        stale_after_ns = 1e9, -- an older trace says nothing
    },
}

local params = policy.params
local max, huge = math.max, math.huge

-- The tokens an engine has before it. Decodes count one a round; what is cached costs nothing there.
local function load_of(engines, i)
    return engines.running_prefill_tokens[i] + engines.waiting_prefill_tokens[i] + engines.pending_tokens[i] + engines.running[i]
end

local function is_known(engines, i)
    return engines.healthy[i] ~= 0 and engines.valid[i] ~= 0 and engines.age_ns[i] <= params.stale_after_ns
end

-- In turn from the engine that is next, so that equals are taken one after the other.
local function lowest_load(engines)
    local best, lowest = nil, huge
    for step = 0, engines.n - 1 do
        local i = (engines.next + step) % engines.n
        if is_known(engines, i) and load_of(engines, i) < lowest then best, lowest = i, load_of(engines, i) end
    end
    return best, lowest
end

local function longest_hit(engines, limit)
    local best, longest = nil, 0
    for step = 0, engines.n - 1 do
        local i = (engines.next + step) % engines.n
        local fits = is_known(engines, i) and engines.kv_used_ratio[i] <= params.kv_high and load_of(engines, i) <= limit
        if fits and engines.cached_tokens[i] > longest then best, longest = i, engines.cached_tokens[i] end
    end
    return best, longest
end

-- No engine has a fresh trace: no opinion, and the built-in policy takes turns.
function policy.select_engine(request, engines)
    local least, lowest = lowest_load(engines)
    if not least then return nil end
    local hit, cached = longest_hit(engines, lowest + max(params.load_tokens, params.load_ratio * lowest))
    if hit and cached >= params.min_cached_ratio * request.prompt_tokens then return hit end
    return least
end

return policy
