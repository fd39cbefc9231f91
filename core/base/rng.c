#include "core/base/rng.h"

#include "core/base/assert.h"

void gb_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

double gb_rng_at(uint64_t seed, uint64_t position)
{
    uint32_t out[4];
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    gb_philox4x32(out, counter, key);
    uint64_t bits = ((uint64_t)out[0] << 32 | out[1]) >> 11;
    return (double)bits * 0x1p-53;
}

uint64_t gb_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

void gb_rng_init(gb_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) rng->s[i] = gb_mix64(seed += 0x9E3779B97F4A7C15u);
}

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

uint64_t gb_rng_next(gb_rng *rng)
{
    uint64_t *s = rng->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t gb_rng_below(gb_rng *rng, uint64_t n)
{
    GB_ASSERT(n > 0);
    uint64_t limit = -n % n;    /* 2^64 mod n: values below it would bias the remainder */
    uint64_t x;
    do x = gb_rng_next(rng); while (x < limit);
    return x % n;
}

double gb_rng_uniform(gb_rng *rng) { return (double)(gb_rng_next(rng) >> 11) * 0x1p-53; }
