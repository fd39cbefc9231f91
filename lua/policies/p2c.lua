-- The power of two choices: of two engines drawn at random, the one with fewer requests. Two draws already bring the longest
-- line from log n / log log n down to log log n, and no engine is everybody's favourite when counts are old.
-- Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing (IEEE TPDS 12, 2001); the default of Ray Serve.
local policy = { api = 1, name = "p2c" }

local function requests(engines, i) return engines.running[i] + engines.waiting[i] + engines.pending[i] end

local function count_healthy(engines)
    local n = 0
    for i = 0, engines.n - 1 do
        if engines.healthy[i] ~= 0 then n = n + 1 end
    end
    return n
end

-- The engine that `rank` healthy ones precede.
local function nth_healthy(engines, rank)
    for i = 0, engines.n - 1 do
        if engines.healthy[i] ~= 0 then
            if rank == 0 then return i end
            rank = rank - 1
        end
    end
    return nil
end

function policy.select_engine(_, engines)
    local n = count_healthy(engines)
    if n < 2 then return nth_healthy(engines, 0) end
    local first, second = gimbal.random(n), gimbal.random(n - 1)
    if second >= first then second = second + 1 end -- two different ones
    local a, b = nth_healthy(engines, first), nth_healthy(engines, second)
    return requests(engines, b) < requests(engines, a) and b or a
end

return policy
