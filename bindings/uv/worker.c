#include "bindings/uv/worker.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/assert.h"

struct gb_worker {
    uv_poll_t wake;             /* on wake_fd. Not uv_async_t: its receiver spins until the sender has returned, and the sender
                                   is usually preempted by the receiver it woke (a fifth of the loop's time) */
    int wake_fd;
    uv_thread_t thread;
    gb_executor *executor;
    gb_worker_done *done;
    void *self;
    bool busy;                  /* the loop's view: a round is out */
    /* shared, under the lock */
    uv_mutex_t lock;
    uv_cond_t work;
    const gb_round *round;      /* to run, or NULL */
    gb_result *result;
    const gb_result *answer;    /* finished and not yet seen by the loop, or NULL */
    bool stop;
};

static bool wait_for_round(gb_worker *w, const gb_round **round, gb_result **result)
{
    uv_mutex_lock(&w->lock);
    while (!w->round && !w->stop) uv_cond_wait(&w->work, &w->lock);
    *round = w->round;
    *result = w->result;
    uv_mutex_unlock(&w->lock);
    return *round != NULL;    /* a round that was handed over is run even when the end has come */
}

static void hand_back(gb_worker *w, const gb_result *result)
{
    uv_mutex_lock(&w->lock);
    w->round = NULL;
    w->answer = result;
    uv_mutex_unlock(&w->lock);
    eventfd_write(w->wake_fd, 1);
}

static void thread_main(void *arg)
{
    gb_worker *w = arg;
    const gb_round *round;
    gb_result *result;
    while (wait_for_round(w, &round, &result)) {
        gb_executor_run(w->executor, round, result);
        hand_back(w, result);
    }
}

static void on_wake(uv_poll_t *handle, int status, int events)
{
    gb_worker *w = handle->data;
    eventfd_t count;
    (void)status, (void)events;
    eventfd_read(w->wake_fd, &count);
    uv_mutex_lock(&w->lock);
    const gb_result *answer = w->answer;
    w->answer = NULL;
    uv_mutex_unlock(&w->lock);
    if (!answer) return;
    w->busy = false;
    w->done(w->self, answer);
}

static void on_closed(uv_handle_t *handle)
{
    gb_worker *w = handle->data;
    close(w->wake_fd);
    uv_cond_destroy(&w->work);
    uv_mutex_destroy(&w->lock);
    free(w);
}

int gb_worker_new(gb_worker **out, uv_loop_t *loop, gb_executor *executor, gb_worker_done *done, void *self, gb_error *err)
{
    gb_worker *w = calloc(1, sizeof *w);
    if (!w) return gb_fail(err, GB_ENOMEM, "out of memory for the worker");
    w->executor = executor;
    w->done = done;
    w->self = self;
    w->wake.data = w;
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0) goto no_eventfd;
    if (uv_mutex_init(&w->lock)) goto no_lock;
    if (uv_cond_init(&w->work)) goto no_condition;
    if (uv_poll_init(loop, &w->wake, w->wake_fd)) goto no_handle;
    if (uv_poll_start(&w->wake, UV_READABLE, on_wake) || uv_thread_create(&w->thread, thread_main, w)) {
        uv_close((uv_handle_t *)&w->wake, on_closed);    /* frees w in the next turn */
        return gb_fail(err, GB_ENOMEM, "the worker thread cannot be started");
    }
    *out = w;
    return GB_OK;

no_handle:
    uv_cond_destroy(&w->work);
no_condition:
    uv_mutex_destroy(&w->lock);
no_lock:
    close(w->wake_fd);
no_eventfd:
    free(w);
    return gb_fail(err, GB_ENOMEM, "the worker's lock cannot be made");
}

void gb_worker_run(gb_worker *w, const gb_round *round, gb_result *result)
{
    GB_ASSERT(!w->busy);
    w->busy = true;
    uv_mutex_lock(&w->lock);
    w->round = round;
    w->result = result;
    uv_mutex_unlock(&w->lock);
    uv_cond_signal(&w->work);    /* after the lock, or the worker wakes only to wait for it */
}

bool gb_worker_busy(const gb_worker *w) { return w->busy; }

void gb_worker_close(gb_worker *w)
{
    uv_mutex_lock(&w->lock);
    w->stop = true;
    uv_cond_signal(&w->work);
    uv_mutex_unlock(&w->lock);
    uv_thread_join(&w->thread);
    uv_close((uv_handle_t *)&w->wake, on_closed);
}
