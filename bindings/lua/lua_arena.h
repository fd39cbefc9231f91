/* The memory of one Lua state: a private mapping with a hard cap, cut into size classes with free lists, no locks. The
   accounting is exact and the whole goes back with one unmap. One owner, one thread at a time. */
#ifndef GB_LUA_ARENA_H
#define GB_LUA_ARENA_H

#include <stddef.h>

enum { GB_LUA_SIZE_CLASSES = 192 };

typedef struct gb_lua_arena {
    char *base;
    size_t mapped_bytes;             /* address space; memory is taken as it is used */
    size_t cap_bytes, top;           /* [0, top) of the mapping has been handed out at least once */
    size_t live_bytes;               /* handed out now, rounding included */
    size_t refused;                  /* requests that met the cap */
    void *first;                     /* the first piece, where LuaJIT keeps its global state */
    size_t first_bytes;
    size_t alarm_bytes;              /* live bytes that ring; SIZE_MAX = never */
    void (*alarm)(void *self);       /* called inside an allocation, once */
    void *alarm_self;
    void *free[GB_LUA_SIZE_CLASSES];
} gb_lua_arena;

int  gb_lua_arena_init(gb_lua_arena *arena, size_t cap_bytes);    /* GB_ENOMEM */
/* Changes the cap, up to what was mapped at first; what lives stays. */
void gb_lua_arena_limit(gb_lua_arena *arena, size_t cap_bytes);
void gb_lua_arena_deinit(gb_lua_arena *arena);

/* The allocator that lua_newstate takes; arena is a gb_lua_arena. */
void *gb_lua_arena_allocate(void *arena, void *old, size_t old_bytes, size_t new_bytes);

#endif
