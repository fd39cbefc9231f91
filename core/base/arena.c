#include "core/base/arena.h"

#include <stdint.h>
#include <stdlib.h>

enum { ALIGN = 64, BLOCK_BYTES = 1 << 18 };

struct gb_arena_block {
    struct gb_arena_block *next;
    size_t capacity, used;    /* bytes behind the header */
};

static size_t round_up(size_t n) { return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

static char *block_base(struct gb_arena_block *b)
{
    return (char *)round_up((uintptr_t)(b + 1));
}

void gb_arena_init(gb_arena *arena) { *arena = (gb_arena){0}; }

void gb_arena_deinit(gb_arena *arena)
{
    for (struct gb_arena_block *b = arena->blocks; b;) {
        struct gb_arena_block *next = b->next;
        free(b);
        b = next;
    }
    *arena = (gb_arena){0};
}

/* calloc, so that large blocks come as untouched zero pages. */
static struct gb_arena_block *add_block(gb_arena *arena, size_t need)
{
    size_t capacity = need > BLOCK_BYTES ? need : BLOCK_BYTES;
    struct gb_arena_block *b = calloc(1, sizeof *b + ALIGN + capacity);
    if (!b) return NULL;
    b->capacity = capacity;
    b->next = arena->blocks;
    arena->blocks = b;
    return b;
}

void *gb_arena_take(gb_arena *arena, size_t count, size_t size)
{
    if (size && count > (SIZE_MAX / 2 - ALIGN) / size) return NULL;
    size_t bytes = count * size;
    size_t need = round_up(bytes ? bytes : 1);
    struct gb_arena_block *b = arena->blocks;
    if (!b || b->capacity - b->used < need) b = add_block(arena, need);
    if (!b) return NULL;
    void *piece = block_base(b) + b->used;
    b->used += need;
    arena->used_bytes += need;
    return piece;
}
