/* The thread that runs rounds, and the one that copies experts beside them. A round is handed over whole and handed back whole:
   between gb_worker_run and the call of done, the round and its result belong to the worker and nobody else looks at them. So
   does a list of copies until the call of copied. The two do not wait for each other: no round reads a place that is written.
   The only file of this floor with a lock. All functions are called on the loop's thread; done and copied are, too. */
#ifndef GB_UV_WORKER_H
#define GB_UV_WORKER_H

#include <uv.h>

#include "core/forward/executor.h"

typedef struct gb_worker gb_worker;

typedef struct gb_worker_calls {
    void *self;
    void (*done)(void *self, const gb_result *result);
    void (*copied)(void *self, int status);
} gb_worker_calls;

/* The executor is borrowed for the worker's life. */
int gb_worker_new(gb_worker **out, uv_loop_t *loop, gb_executor *executor, const gb_worker_calls *calls, gb_error *err);

void gb_worker_run(gb_worker *worker, const gb_round *round, gb_result *result);    /* asserts that it is not busy */
bool gb_worker_busy(const gb_worker *worker);    /* with a round */
void gb_worker_copy(gb_worker *worker, const gb_copy_list *list);    /* asserts that no other list is out */

/* Waits for the running round and for copies that have begun, ends the threads and closes the handle; nothing is called any more.
   The memory goes when the loop has run the close callbacks. */
void gb_worker_close(gb_worker *worker);

#endif
