/* Large memory straight from the system: zero, page-aligned, backed by huge pages where the system gives them. */
#ifndef GB_CPU_MEMORY_H
#define GB_CPU_MEMORY_H

#include <stddef.h>

/* NULL when there is none (or bytes is 0). Untouched pages cost address space only. */
void *gb_memory_map(size_t bytes);
void  gb_memory_unmap(void *memory, size_t bytes);

/* Hands out 64-byte aligned pieces of a mapping. With base NULL it only counts, so that one routine first measures what it
   needs and then takes it. */
typedef struct gb_region {
    char *base;
    size_t used;
} gb_region;

void *gb_region_take(gb_region *region, size_t bytes);

#endif
