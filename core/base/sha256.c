#include "core/base/sha256.h"

#include <string.h>

enum { BLOCK = 64, LENGTH_AT = BLOCK - 8 };

/* Fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int k) { return x >> k | x << (32 - k); }

static uint32_t load_be32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

static void store_be32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void expand(uint32_t w[64], const uint8_t block[BLOCK])
{
    for (int i = 0; i < 16; i++) w[i] = load_be32(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

static void compress(uint32_t state[8], const uint8_t block[BLOCK])
{
    uint32_t w[64], s[8];
    expand(w, block);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t big1 = rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25), choose = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t big0 = rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t t = s[7] + big1 + choose + round_constants[i] + w[i];
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t;
        s[0] = t + big0 + majority;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

/* The last block or two: the rest of the data, a one bit, zeros, the length in bits. */
static void finish(uint32_t state[8], const uint8_t *rest, size_t n, uint64_t bytes)
{
    uint8_t block[BLOCK] = {0};
    if (n) memcpy(block, rest, n);
    block[n] = 0x80;
    if (n >= LENGTH_AT) {
        compress(state, block);
        memset(block, 0, sizeof block);
    }
    store_be32(block + LENGTH_AT, (uint32_t)(bytes >> 29));
    store_be32(block + LENGTH_AT + 4, (uint32_t)(bytes << 3));
    compress(state, block);
}

void gb_sha256(uint8_t digest[GB_SHA256_BYTES], const void *data, size_t bytes)
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *p = data;
    size_t whole = bytes / BLOCK * BLOCK;
    for (size_t i = 0; i < whole; i += BLOCK) compress(state, p + i);
    finish(state, p + whole, bytes - whole, bytes);
    for (int i = 0; i < 8; i++) store_be32(digest + 4 * i, state[i]);
}

void gb_sha256_hex(char hex[GB_SHA256_HEX + 1], const void *data, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[GB_SHA256_BYTES];
    gb_sha256(digest, data, bytes);
    for (int i = 0; i < GB_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[GB_SHA256_HEX] = 0;
}
