/* What gcc's -fsanitize=thread calls for each load and store. A kernel file built with it is checked; libtsan is never linked. */
#include "cuda/cuemu/cuemu.h"
#include "cuda/cuemu/internal.h"

#ifndef __SANITIZE_ADDRESS__    /* one checker of addresses at a time */

using cuemu::Access;

#define CUEMU_TSAN(kind, size) \
    void __tsan_##kind##size(void *p) { cuemu::access(p, size, Access::kind, CUEMU_CALLER); } \
    void __tsan_unaligned_##kind##size(void *p) { cuemu::access(p, size, Access::kind, CUEMU_CALLER); } \
    void __tsan_volatile_##kind##size(void *p) { cuemu::access(p, size, Access::kind, CUEMU_CALLER); }
#define CUEMU_TSAN_SIZES(kind) \
    CUEMU_TSAN(kind, 1) CUEMU_TSAN(kind, 2) CUEMU_TSAN(kind, 4) CUEMU_TSAN(kind, 8) CUEMU_TSAN(kind, 16)

extern "C" {
#pragma GCC diagnostic ignored "-Wmissing-declarations"
CUEMU_TSAN_SIZES(read)
CUEMU_TSAN_SIZES(write)
void __tsan_read_range(void *p, size_t bytes) { cuemu::access(p, bytes, Access::read, CUEMU_CALLER); }
void __tsan_write_range(void *p, size_t bytes) { cuemu::access(p, bytes, Access::write, CUEMU_CALLER); }
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
/* A constructor of every instrumented file calls this, before main. */
void __tsan_init(void) { cuemu::tracking = true; }
}

#endif
