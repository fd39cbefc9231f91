/* A fixed pool of compute threads. The caller is thread 0; the others spin for a bounded time after work and then sleep, so
   the pool gives the CPUs back when idle and does not fight a busy neighbour. Work is handed out in chunks from a shared
   counter: a preempted thread delays the one chunk it holds, and one that has no chunk delays nobody.

   One thread at a time calls gb_threads_for (the thread that owns the round); a body must not call it again on its pool. */
#ifndef GB_CPU_THREADS_H
#define GB_CPU_THREADS_H

#include <stdint.h>

#include "core/base/status.h"

enum { GB_THREADS_MAX = 1024 };

typedef struct gb_threads gb_threads;

int      gb_threads_new(gb_threads **out, uint32_t n, gb_error *err);    /* 1 .. GB_THREADS_MAX, the caller included */
void     gb_threads_free(gb_threads *threads);
uint32_t gb_threads_count(const gb_threads *threads);

/* Calls body(self, begin, end, thread) until 0 .. n is covered, in chunks of `chunk` items; returns when all are done, and what
   the bodies wrote is visible to the caller. Which thread takes which chunk varies; results must not depend on it.
   thread < gb_threads_count, and two bodies that run at once have different ones. A single chunk is a plain call. */
typedef void gb_threads_body(void *self, uint32_t begin, uint32_t end, uint32_t thread);
void gb_threads_for(gb_threads *threads, uint32_t n, uint32_t chunk, gb_threads_body *body, void *self);

/* The same for large items that lie one after the other in memory: long runs of them first (at most `longest`), because a thread
   reads a long run faster, and single ones at the end, so that all threads finish together. */
void gb_threads_for_runs(gb_threads *threads, uint32_t n, uint32_t longest, gb_threads_body *body, void *self);

/* CPUs this process may use: its affinity mask, and the CPU quota of its control group rounded up. At least 1. */
uint32_t gb_threads_available(void);

/* CPUs that a quota allows, rounded up: "150000 100000" (cpu.max of a control group: microseconds per period) gives 2.
   UINT32_MAX without a limit ("max 100000") or when the text is something else. */
uint32_t gb_threads_of_quota(const char *cpu_max);

#endif
