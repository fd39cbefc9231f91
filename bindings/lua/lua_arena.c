#include "bindings/lua/lua_arena.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/assert.h"
#include "core/base/status.h"

enum { SMALLEST = 16 };

int gb_lua_arena_init(gb_lua_arena *arena, size_t cap_bytes)
{
    *arena = (gb_lua_arena){.mapped_bytes = cap_bytes, .cap_bytes = cap_bytes, .alarm_bytes = SIZE_MAX};
    void *base = mmap(NULL, cap_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return GB_ENOMEM;
    arena->base = base;
    return GB_OK;
}

void gb_lua_arena_limit(gb_lua_arena *arena, size_t cap_bytes)
{
    GB_ASSERT(cap_bytes <= arena->mapped_bytes && cap_bytes >= arena->top);
    arena->cap_bytes = cap_bytes;
}

void gb_lua_arena_deinit(gb_lua_arena *arena)
{
    if (arena->base) munmap(arena->base, arena->mapped_bytes);
    *arena = (gb_lua_arena){0};
}

/* Four classes for each power of two, so that rounding wastes at most a quarter. */
static unsigned size_class(size_t bytes, size_t *rounded)
{
    if (bytes < SMALLEST) bytes = SMALLEST;
    unsigned power = 63 - (unsigned)__builtin_clzll(bytes);
    size_t base = (size_t)1 << power, quarter = base / 4;
    unsigned step = (unsigned)((bytes - base + quarter - 1) / quarter);
    *rounded = (base + step * quarter + SMALLEST - 1) & ~(size_t)(SMALLEST - 1);
    return power * 4 + step;
}

static void give(gb_lua_arena *arena, void *piece, size_t bytes)
{
    size_t rounded;
    unsigned class = size_class(bytes, &rounded);
    memcpy(piece, &arena->free[class], sizeof(void *));
    arena->free[class] = piece;
    arena->live_bytes -= rounded;
}

static void ring(gb_lua_arena *arena)
{
    arena->alarm_bytes = SIZE_MAX;
    arena->alarm(arena->alarm_self);
}

static void *take(gb_lua_arena *arena, size_t bytes)
{
    if (bytes > arena->cap_bytes) goto refuse;
    size_t rounded;
    unsigned class = size_class(bytes, &rounded);
    GB_ASSERT(class < GB_LUA_SIZE_CLASSES);
    void *piece = arena->free[class];
    if (piece) {
        memcpy(&arena->free[class], piece, sizeof(void *));
    } else {
        if (rounded > arena->cap_bytes - arena->top) goto refuse;
        piece = arena->base + arena->top;
        arena->top += rounded;
    }
    arena->live_bytes += rounded;
    if (arena->live_bytes >= arena->alarm_bytes) ring(arena);
    if (!arena->first) {
        arena->first = piece;
        arena->first_bytes = bytes;
    }
    return piece;
refuse:
    arena->refused++;
    return NULL;
}

/* A state may not be refused a smaller block: the old one then stays where it is and its tail is lost until the end. */
static void *shrink_in_place(gb_lua_arena *arena, void *old, size_t old_rounded, size_t new_rounded)
{
    arena->live_bytes -= old_rounded - new_rounded;
    return old;
}

void *gb_lua_arena_allocate(void *self, void *old, size_t old_bytes, size_t new_bytes)
{
    gb_lua_arena *arena = self;
    if (new_bytes == 0) {
        if (old) give(arena, old, old_bytes);
        return NULL;
    }
    if (!old) return take(arena, new_bytes);
    size_t old_rounded, new_rounded;
    if (size_class(old_bytes, &old_rounded) == size_class(new_bytes, &new_rounded)) return old;
    void *piece = take(arena, new_bytes);
    if (!piece) return new_bytes < old_bytes ? shrink_in_place(arena, old, old_rounded, new_rounded) : NULL;
    memcpy(piece, old, old_bytes < new_bytes ? old_bytes : new_bytes);
    give(arena, old, old_bytes);
    return piece;
}
