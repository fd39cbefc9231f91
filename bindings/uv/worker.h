/* The thread that runs rounds. A round is handed over whole and handed back whole: between gb_worker_run and the call of
   done, the round and its result belong to the worker and nobody else looks at them. The only file of this floor with a
   lock. All functions are called on the loop's thread; done is called there, too. */
#ifndef GB_UV_WORKER_H
#define GB_UV_WORKER_H

#include <uv.h>

#include "core/forward/executor.h"

typedef struct gb_worker gb_worker;
typedef void gb_worker_done(void *self, const gb_result *result);

/* The executor is borrowed for the worker's life. */
int gb_worker_new(gb_worker **out, uv_loop_t *loop, gb_executor *executor, gb_worker_done *done, void *self, gb_error *err);

void gb_worker_run(gb_worker *worker, const gb_round *round, gb_result *result);    /* asserts that it is not busy */
bool gb_worker_busy(const gb_worker *worker);

/* Waits for the running round, ends the thread and closes the handle; done is not called any more. The memory goes when the
   loop has run the close callbacks. */
void gb_worker_close(gb_worker *worker);

#endif
