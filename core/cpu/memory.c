#define _DEFAULT_SOURCE
#include "core/cpu/memory.h"

#include <sys/mman.h>

void *gb_memory_map(size_t bytes)
{
    if (bytes == 0) return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);    /* a wish: without huge pages everything works, only slower */
#endif
    return memory;
}

void gb_memory_unmap(void *memory, size_t bytes)
{
    if (memory) munmap(memory, bytes);
}

void *gb_region_take(gb_region *region, size_t bytes)
{
    char *piece = region->base ? region->base + region->used : NULL;
    region->used += (bytes + 63) / 64 * 64;
    return piece;
}
