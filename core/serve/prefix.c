#include "core/serve/prefix.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/base/rng.h"
#include "core/base/status.h"

int gb_prefix_init(gb_prefix *prefix, gb_arena *arena, uint32_t n_blocks)
{
    uint32_t buckets = 1;
    while (buckets < n_blocks) buckets *= 2;
    *prefix = (gb_prefix){.n_blocks = n_blocks, .mask = buckets - 1, .buckets = GB_ARENA_NEW(arena, int32_t, buckets),
                          .nodes = GB_ARENA_NEW(arena, gb_prefix_node, n_blocks)};
    return prefix->buckets && prefix->nodes ? GB_OK : GB_ENOMEM;
}

void gb_prefix_clear(gb_prefix *prefix)
{
    memset(prefix->buckets, 0, ((size_t)prefix->mask + 1) * sizeof *prefix->buckets);
    for (uint32_t i = 0; i < prefix->n_blocks; i++) prefix->nodes[i].serial = prefix->nodes[i].children = 0;
}

uint64_t gb_prefix_hash(uint64_t before, const int32_t *tokens)
{
    uint64_t hash = before;
    for (uint32_t i = 0; i < GB_BLOCK_TOKENS; i += 2)
        hash = gb_mix64(hash + ((uint64_t)(uint32_t)tokens[i] << 32 | (uint32_t)tokens[i + 1]) + 0x9E3779B97F4A7C15u);
    return hash;
}

static bool holds(const gb_prefix_node *node, int32_t parent, const int32_t *tokens)
{
    return node->parent == parent && memcmp(node->tokens, tokens, sizeof node->tokens) == 0;
}

int32_t gb_prefix_find(const gb_prefix *prefix, int32_t parent, uint64_t hash, const int32_t *tokens)
{
    for (int32_t block = prefix->buckets[hash & prefix->mask] - 1; block >= 0; block = prefix->nodes[block].next)
        if (holds(&prefix->nodes[block], parent, tokens)) return block;
    return -1;
}

void gb_prefix_add(gb_prefix *prefix, int32_t block, int32_t parent, uint64_t hash, const int32_t *tokens)
{
    gb_prefix_node *node = &prefix->nodes[block];
    int32_t *bucket = &prefix->buckets[hash & prefix->mask];
    GB_ASSERT(node->serial == 0 && node->children == 0);
    GB_ASSERT(parent == GB_PREFIX_ROOT || gb_prefix_has(prefix, parent));
    node->serial = ++prefix->added;
    node->hash = hash;
    node->parent = parent;
    node->next = *bucket - 1;
    memcpy(node->tokens, tokens, sizeof node->tokens);
    *bucket = block + 1;
    if (parent != GB_PREFIX_ROOT) prefix->nodes[parent].children++;
}

static void unlink_from_bucket(gb_prefix *prefix, int32_t block)
{
    int32_t *bucket = &prefix->buckets[prefix->nodes[block].hash & prefix->mask], at = *bucket - 1;
    if (at == block) {
        *bucket = prefix->nodes[block].next + 1;
        return;
    }
    while (prefix->nodes[at].next != block) at = prefix->nodes[at].next;
    prefix->nodes[at].next = prefix->nodes[block].next;
}

void gb_prefix_remove(gb_prefix *prefix, int32_t block)
{
    gb_prefix_node *node = &prefix->nodes[block];
    GB_ASSERT(node->serial != 0 && node->children == 0);
    unlink_from_bucket(prefix, block);
    if (node->parent != GB_PREFIX_ROOT) prefix->nodes[node->parent].children--;
    node->serial = 0;
}
