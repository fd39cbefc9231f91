/* The paged KV cache: per layer and engine, blocks of GB_BLOCK_TOKENS positions. A block holds for each kv head its keys,
   then its values, laid out so that attention streams both as panels of 16 columns:

       keys      [head_dim / 2][16 positions][2]        values  [8][padded dim][2 positions]       bfloat16, in pairs
       keys      [head_dim][16 positions]               values  [16 positions][padded dim]         float32

   The padded dim is head_dim rounded up to 16; the padding stays zero. A position is written once, by the round that
   computes it, and read only by its own sequence. All memory is taken and touched at start. */
#ifndef GB_CPU_KV_H
#define GB_CPU_KV_H

#include <stdbool.h>
#include <stddef.h>

#include "core/flow/ids.h"

typedef struct gb_cpu_kv {
    char *memory;
    uint32_t layers, engines, blocks, heads;    /* blocks of one engine */
    uint32_t head_dim, padded_dim;
    bool f32;
    size_t keys_bytes, head_bytes, block_bytes;    /* keys of a head, a head, a block of one layer */
} gb_cpu_kv;

void gb_cpu_kv_init(gb_cpu_kv *kv, uint32_t layers, uint32_t engines, uint32_t blocks, uint32_t heads, uint32_t head_dim, bool f32);
size_t gb_cpu_kv_bytes(const gb_cpu_kv *kv);

/* The blocks of one layer and engine; block b of head h lies at + b * block_bytes + h * head_bytes. */
static inline char *gb_cpu_kv_engine(const gb_cpu_kv *kv, uint32_t layer, uint32_t engine)
{
    return kv->memory + ((size_t)layer * kv->engines + engine) * kv->blocks * kv->block_bytes;
}

/* Stores one position (0 .. 15 of its block) of one head. */
void gb_cpu_kv_write(const gb_cpu_kv *kv, char *head, uint32_t offset, const float *key, const float *value);

#endif
