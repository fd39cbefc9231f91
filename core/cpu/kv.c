#include "core/cpu/kv.h"

#include "core/cpu/bf16.h"

void gb_cpu_kv_init(gb_cpu_kv *kv, uint32_t layers, uint32_t engines, uint32_t blocks, uint32_t heads, uint32_t head_dim, bool f32)
{
    *kv = (gb_cpu_kv){.layers = layers, .engines = engines, .blocks = blocks, .heads = heads, .head_dim = head_dim, .f32 = f32};
    size_t element = f32 ? sizeof(float) : sizeof(uint16_t);
    kv->padded_dim = (head_dim + 15) / 16 * 16;
    kv->keys_bytes = (size_t)head_dim * GB_BLOCK_TOKENS * element;
    kv->head_bytes = kv->keys_bytes + (size_t)kv->padded_dim * GB_BLOCK_TOKENS * element;
    kv->block_bytes = kv->head_bytes * heads;
}

size_t gb_cpu_kv_bytes(const gb_cpu_kv *kv) { return (size_t)kv->layers * kv->engines * kv->blocks * kv->block_bytes; }

static void write_f32(const gb_cpu_kv *kv, char *head, uint32_t offset, const float *key, const float *value)
{
    float *keys = (float *)head, *values = (float *)(head + kv->keys_bytes) + (size_t)offset * kv->padded_dim;
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        keys[d * GB_BLOCK_TOKENS + offset] = key[d];
        values[d] = value[d];
    }
}

static void write_bf16(const gb_cpu_kv *kv, char *head, uint32_t offset, const float *key, const float *value)
{
    uint16_t *keys = (uint16_t *)head + 2 * offset;
    uint16_t *values = (uint16_t *)(head + kv->keys_bytes) + (size_t)(offset / 2) * 2 * kv->padded_dim + offset % 2;
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        keys[d / 2 * 2 * GB_BLOCK_TOKENS + d % 2] = gb_bf16_round(key[d]);
        values[2 * d] = gb_bf16_round(value[d]);
    }
}

void gb_cpu_kv_write(const gb_cpu_kv *kv, char *head, uint32_t offset, const float *key, const float *value)
{
    if (kv->f32) write_f32(kv, head, offset, key, value);
    else write_bf16(kv, head, offset, key, value);
}
