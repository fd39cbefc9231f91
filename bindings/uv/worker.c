#include "bindings/uv/worker.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/assert.h"

struct gb_worker {
    uv_poll_t wake;             /* on wake_fd. Not uv_async_t: its receiver spins until the sender has returned, and the sender
                                   is usually preempted by the receiver it woke (a fifth of the loop's time) */
    int wake_fd;
    uv_thread_t runner, copier;
    gb_executor *executor;
    gb_worker_calls calls;
    bool busy, copying;         /* the loop's view: a round is out, a list of copies is */
    /* shared, under the lock */
    uv_mutex_t lock;
    uv_cond_t round_is_there, list_is_there;
    const gb_round *round;      /* to run, or NULL */
    gb_result *result;
    const gb_result *answer;    /* finished and not yet seen by the loop, or NULL */
    const gb_copy_list *list;   /* to copy, or NULL */
    int copy_status;            /* of a list that is copied ... */
    bool copied;                /* ... and not yet seen by the loop */
    bool stop;
};

/* A round that was handed over is run even when the end has come. */
static bool wait_for_round(gb_worker *w)
{
    uv_mutex_lock(&w->lock);
    while (!w->round && !w->stop) uv_cond_wait(&w->round_is_there, &w->lock);
    bool there = w->round != NULL;
    uv_mutex_unlock(&w->lock);
    return there;
}

static void run_rounds(void *arg)
{
    gb_worker *w = arg;
    while (wait_for_round(w)) {
        gb_executor_run(w->executor, w->round, w->result);
        uv_mutex_lock(&w->lock);
        w->round = NULL;
        w->answer = w->result;
        uv_mutex_unlock(&w->lock);
        eventfd_write(w->wake_fd, 1);
    }
}

/* A list that has not begun when the end comes is dropped. */
static bool wait_for_list(gb_worker *w)
{
    uv_mutex_lock(&w->lock);
    while (!w->list && !w->stop) uv_cond_wait(&w->list_is_there, &w->lock);
    bool there = !w->stop;
    uv_mutex_unlock(&w->lock);
    return there;
}

static void copy_lists(void *arg)
{
    gb_worker *w = arg;
    while (wait_for_list(w)) {
        int status = gb_executor_copy(w->executor, w->list);
        uv_mutex_lock(&w->lock);
        w->list = NULL;
        w->copy_status = status;
        w->copied = true;
        uv_mutex_unlock(&w->lock);
        eventfd_write(w->wake_fd, 1);
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
    bool copied = w->copied;
    int copy_status = w->copy_status;
    w->answer = NULL;
    w->copied = false;
    uv_mutex_unlock(&w->lock);
    if (copied) {
        w->copying = false;
        w->calls.copied(w->calls.self, copy_status);
    }
    if (!answer) return;
    w->busy = false;
    w->calls.done(w->calls.self, answer);
}

static void on_closed(uv_handle_t *handle)
{
    gb_worker *w = handle->data;
    close(w->wake_fd);
    uv_cond_destroy(&w->list_is_there);
    uv_cond_destroy(&w->round_is_there);
    uv_mutex_destroy(&w->lock);
    free(w);
}

static void end_thread(gb_worker *w, uv_cond_t *wakes, uv_thread_t *thread)
{
    uv_mutex_lock(&w->lock);
    w->stop = true;
    uv_cond_signal(wakes);
    uv_mutex_unlock(&w->lock);
    uv_thread_join(thread);
}

static int start_threads(gb_worker *w)
{
    if (uv_poll_start(&w->wake, UV_READABLE, on_wake) || uv_thread_create(&w->runner, run_rounds, w)) return GB_ENOMEM;
    if (uv_thread_create(&w->copier, copy_lists, w) == 0) return GB_OK;
    end_thread(w, &w->round_is_there, &w->runner);
    return GB_ENOMEM;
}

int gb_worker_new(gb_worker **out, uv_loop_t *loop, gb_executor *executor, const gb_worker_calls *calls, gb_error *err)
{
    gb_worker *w = calloc(1, sizeof *w);
    if (!w) return gb_fail(err, GB_ENOMEM, "out of memory for the worker");
    w->executor = executor;
    w->calls = *calls;
    w->wake.data = w;
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake_fd < 0) goto no_eventfd;
    if (uv_mutex_init(&w->lock)) goto no_lock;
    if (uv_cond_init(&w->round_is_there)) goto no_condition;
    if (uv_cond_init(&w->list_is_there)) goto one_condition;
    if (uv_poll_init(loop, &w->wake, w->wake_fd)) goto no_handle;
    if (start_threads(w)) {
        uv_close((uv_handle_t *)&w->wake, on_closed);    /* frees w in the next turn */
        return gb_fail(err, GB_ENOMEM, "the worker's threads cannot be started");
    }
    *out = w;
    return GB_OK;

no_handle:
    uv_cond_destroy(&w->list_is_there);
one_condition:
    uv_cond_destroy(&w->round_is_there);
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
    uv_cond_signal(&w->round_is_there);    /* after the lock, or the worker wakes only to wait for it */
}

void gb_worker_copy(gb_worker *w, const gb_copy_list *list)
{
    GB_ASSERT(!w->copying);
    w->copying = true;
    uv_mutex_lock(&w->lock);
    w->list = list;
    uv_mutex_unlock(&w->lock);
    uv_cond_signal(&w->list_is_there);
}

bool gb_worker_busy(const gb_worker *w) { return w->busy; }

void gb_worker_close(gb_worker *w)
{
    end_thread(w, &w->round_is_there, &w->runner);
    end_thread(w, &w->list_is_there, &w->copier);
    uv_close((uv_handle_t *)&w->wake, on_closed);
}
