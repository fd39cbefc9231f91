/* A fixed pool of compute threads. The caller is thread 0; the others spin for a bounded time after work and then sleep.
   Work is handed out in chunks from a shared counter, so that a preempted thread does not stall the rest. */
#ifndef GB_CPU_THREADS_H
#define GB_CPU_THREADS_H

#include <stdint.h>

#include "core/base/status.h"

typedef struct gb_threads gb_threads;

int      gb_threads_new(gb_threads **out, uint32_t n, gb_error *err);    /* n >= 1, the caller included */
void     gb_threads_free(gb_threads *threads);
uint32_t gb_threads_count(const gb_threads *threads);

/* Calls body(self, begin, end, thread) until 0 .. n is covered, in chunks of at most `chunk` items; returns when all are
   done. Which thread takes which chunk varies; results must not depend on it. */
typedef void gb_threads_body(void *self, uint32_t begin, uint32_t end, uint32_t thread);
void gb_threads_for(gb_threads *threads, uint32_t n, uint32_t chunk, gb_threads_body *body, void *self);

/* CPUs this process may run on. */
uint32_t gb_threads_available(void);

#endif
