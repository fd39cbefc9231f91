#include "bindings/uv/driver.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

#include "bindings/uv/checker.h"
#include "bindings/uv/listen.h"
#include "bindings/uv/watch.h"
#include "bindings/uv/worker.h"
#include "core/base/assert.h"
#include "core/base/log.h"

enum { N_SIGNALS = 4 };

typedef enum phase { SERVING, DRAINING, CLOSING, CLOSED } phase;

/* What a line of statistics says about the time since the last one. */
typedef struct interval {
    gb_time from;
    uint64_t prompt_tokens, generated_tokens;    /* of the server when the interval began */
    uint64_t rank_tokens[GB_RANKS_MAX];
} interval;

struct gb_driver {
    uv_loop_t loop;
    uv_prepare_t prepare;
    uv_timer_t timer, stats_timer;
    uv_async_t wake;
    uv_signal_t signals[N_SIGNALS];
    uint32_t n_signals;
    gb_instance *instance;
    gb_rpc_service *service;
    gb_watch *watch;             /* NULL: no directory is watched */
    gb_checker *checker;         /* NULL: policies are not checked here */
    gb_listen *listen;
    gb_worker *worker;
    gb_copy_list copies;         /* while they are out */
    gb_driver_options options;
    phase phase;
    bool hurry;                  /* a second shutdown: nothing waits any more */
    gb_time drain_until;
    gb_time turn;                /* time of this turn, GB_NEVER until it is read */
    gb_time armed;               /* deadline the timer was set for */
    int status;
    interval interval;
};

static gb_time now_of(void *self)
{
    gb_driver *d = self;
    if (d->turn == GB_NEVER) d->turn = uv_hrtime();
    return d->turn;
}

/* ---- the pump ---- */

static void deliver_events(gb_driver *d)
{
    gb_event event;
    while (gb_server_poll_event(d->instance->server, &event)) gb_rpc_event(d->service, &event);
}

/* Events go to the service first (bytes in memory), then the next round starts, then sockets are written while it runs. */
static void start_round(gb_driver *d, gb_time now)
{
    gb_instance *instance = d->instance;
    if (gb_worker_busy(d->worker) || !gb_server_poll_round(instance->server, &instance->round, now)) return;
    gb_worker_run(d->worker, &instance->round, &instance->result);
    gb_server_rearrange(instance->server, now);
    gb_lua_host_idle(instance->policies, now);
}

static void start_copies(gb_driver *d)
{
    if (gb_server_poll_copies(d->instance->server, &d->copies)) gb_worker_copy(d->worker, &d->copies);
}

static void pass_cancels(gb_driver *d)
{
    uint64_t seq;
    uint32_t engine, work;
    while (gb_server_poll_cancel(d->instance->server, &seq, &engine, &work)) gb_executor_cancel(d->instance->executor, seq, engine, work);
}

static gb_time deadline_of(const gb_driver *d)
{
    gb_time deadline = gb_time_min(gb_server_deadline(d->instance->server), gb_rpc_deadline(d->service));
    deadline = gb_time_min(deadline, gb_listen_deadline(d->listen));
    return gb_time_min(deadline, d->drain_until);
}

static void on_timer(uv_timer_t *timer) { (void)timer; }    /* it only ends the wait; the pump looks at the deadlines */

static void arm_timer(gb_driver *d, gb_time now)
{
    gb_time deadline = deadline_of(d);
    if (deadline == d->armed && uv_is_active((uv_handle_t *)&d->timer)) return;
    d->armed = deadline;
    if (deadline == GB_NEVER) uv_timer_stop(&d->timer);
    else uv_timer_start(&d->timer, on_timer, (gb_time_since(now, deadline) + 999999) / 1000000, 0);
}

static void abort_all(gb_driver *d, gb_time now)
{
    gb_request_info info;
    uint32_t cursor = 0;
    while (gb_server_request_next(d->instance->server, &cursor, &info)) gb_server_cancel(d->instance->server, info.id, now);
}

static uint32_t live_requests(const gb_driver *d)
{
    gb_server_stats stats;
    gb_server_stats_get(d->instance->server, &stats);
    return stats.live;
}

static void close_everything(gb_driver *d, gb_time now);

/* DRAINING ends when the last request does; CLOSING when the last connection has its output. */
static void advance_shutdown(gb_driver *d, gb_time now)
{
    if (d->phase == DRAINING && now >= d->drain_until) {
        d->drain_until = GB_NEVER;
        abort_all(d, now);
        pass_cancels(d);
        deliver_events(d);
    }
    if (d->phase == DRAINING && live_requests(d) == 0 && !gb_worker_busy(d->worker)) {
        d->phase = CLOSING;
        d->drain_until = GB_NEVER;
        gb_listen_finish(d->listen, now, d->hurry ? 0 : gb_seconds(GB_LISTEN_LINGER_S));
    }
    if (d->phase == CLOSING && gb_listen_connections(d->listen) == 0) close_everything(d, now);
}

static void pump(gb_driver *d, gb_time now)
{
    if (now >= gb_server_deadline(d->instance->server)) gb_server_tick(d->instance->server, now);
    if (now >= gb_rpc_deadline(d->service)) gb_rpc_tick(d->service, now);
    gb_listen_tick(d->listen, now);
    deliver_events(d);
    start_round(d, now);
    start_copies(d);
    pass_cancels(d);
    deliver_events(d);
    gb_listen_flush(d->listen, now);
    if (d->phase != SERVING) advance_shutdown(d, now);
    if (d->phase != CLOSED) arm_timer(d, now);
}

/* Runs once a turn, after callbacks and before the wait. */
static void on_prepare(uv_prepare_t *handle)
{
    gb_driver *d = handle->data;
    d->turn = GB_NEVER;
    pump(d, now_of(d));
    d->turn = GB_NEVER;    /* whatever ends the wait reads the clock anew */
}

static void on_round_done(void *self, const gb_result *result)
{
    gb_driver *d = self;
    const gb_server_options *shape = gb_server_options_get(d->instance->server);
    gb_server_round_done(d->instance->server, result, now_of(d));
    for (uint32_t r = 0; r < shape->ranks; r++) d->interval.rank_tokens[r] += result->rank_tokens[r];
    if (!result->status || d->status) return;
    gb_log(GB_LOG_ERROR, "the executor failed: %s; ending", gb_status_message(result->status));
    d->status = result->status;
    if (d->phase == SERVING) gb_driver_shutdown(d);
}

static void on_copied(void *self, int status)
{
    gb_driver *d = self;
    gb_server_copies_done(d->instance->server, status, now_of(d));
}

/* ---- shutdown ---- */

void gb_driver_shutdown(gb_driver *d)
{
    gb_time now = now_of(d);
    gb_time wait = d->phase == SERVING ? d->options.shutdown_timeout : 0;
    d->hurry = d->phase != SERVING;
    if (d->phase > DRAINING) {
        gb_listen_finish(d->listen, now, 0);
        return;
    }
    d->drain_until = now + wait;
    if (d->phase == DRAINING) return;
    d->phase = DRAINING;
    gb_log(GB_LOG_INFO, "shutting down: %u open requests have %.0f s to end", live_requests(d), gb_to_ms(wait) / 1000);
    gb_server_drain(d->instance->server);
    gb_listen_stop(d->listen);
    gb_rpc_goaway(d->service, "shutdown", wait);
}

static void on_wake(uv_async_t *handle) { gb_driver_shutdown(handle->data); }

void gb_driver_wake(gb_driver *d) { uv_async_send(&d->wake); }

/* Called in the middle of a connection's input: the shutdown, which may close connections, waits for the loop. */
static void on_shutdown_method(void *self) { gb_driver_wake(self); }

/* Works when no client gets through. What changes, the host logs. */
static void push_red_button(gb_driver *d)
{
    gb_error err = {0};
    gb_lua_change change = {.who = "signal", .now = now_of(d)};
    uint64_t generation = gb_lua_host_generation(d->instance->policies);
    gb_lua_host_switch(d->instance->policies, 0, &change, &err);
    if (generation == gb_lua_host_generation(d->instance->policies))
        gb_log(GB_LOG_WARN, "SIGUSR2: the built-in policy decides everything already");
}

static void on_signal(uv_signal_t *handle, int number)
{
    if (number == SIGUSR2) push_red_button(handle->data);
    else if (number == SIGHUP) gb_log(GB_LOG_INFO, "SIGHUP is reserved and does nothing");
    else gb_driver_shutdown(handle->data);
}

int gb_driver_catch_signals(gb_driver *d, gb_error *err)
{
    static const int numbers[N_SIGNALS] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2};
    for (; d->n_signals < N_SIGNALS; d->n_signals++) {
        uv_signal_t *handle = &d->signals[d->n_signals];
        if (uv_signal_init(&d->loop, handle)) return gb_fail(err, GB_ENOMEM, "signal handlers cannot be installed");
        handle->data = d;
        uv_unref((uv_handle_t *)handle);
        uv_signal_start(handle, on_signal, numbers[d->n_signals]);
    }
    return GB_OK;
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void close_everything(gb_driver *d, gb_time now)
{
    d->phase = CLOSED;
    gb_listen_close(d->listen, now);    /* with the connections go the calls that wait for a check */
    gb_checker_close(d->checker);
    d->checker = NULL;
    gb_watch_close(d->watch);
    d->watch = NULL;
    if (d->worker) gb_worker_close(d->worker);
    close_handle((uv_handle_t *)&d->prepare);
    close_handle((uv_handle_t *)&d->timer);
    close_handle((uv_handle_t *)&d->stats_timer);
    close_handle((uv_handle_t *)&d->wake);
    for (uint32_t i = 0; i < d->n_signals; i++) close_handle((uv_handle_t *)&d->signals[i]);
}

/* ---- statistics ---- */

/* Mean over busiest rank since the last line: 1 = every rank got the same. */
static double rank_balance(const gb_driver *d, uint32_t ranks)
{
    uint64_t most = 0, sum = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        sum += d->interval.rank_tokens[r];
        if (d->interval.rank_tokens[r] > most) most = d->interval.rank_tokens[r];
    }
    return most ? (double)sum / ranks / (double)most : 1;
}

static void begin_interval(gb_driver *d, const gb_server_stats *stats, gb_time now)
{
    d->interval = (interval){.from = now, .prompt_tokens = stats->prompt_tokens, .generated_tokens = stats->generated_tokens};
}

/* Silent when nothing happened. */
static void on_stats(uv_timer_t *timer)
{
    gb_driver *d = timer->data;
    gb_server_stats s;
    gb_time now = now_of(d);
    gb_server_stats_get(d->instance->server, &s);
    uint64_t prompt = s.prompt_tokens - d->interval.prompt_tokens, generated = s.generated_tokens - d->interval.generated_tokens;
    double seconds = gb_to_ms(gb_time_since(d->interval.from, now)) / 1000;
    if ((prompt || generated || s.live) && seconds > 0)
        gb_log(GB_LOG_INFO, "running %u, waiting %u, KV %.1f %%, prompt %.1f tokens/s, generated %.1f tokens/s, rank balance %.2f", s.running,
               s.waiting, 100.0 * s.blocks_used / (s.blocks_total ? s.blocks_total : 1), (double)prompt / seconds,
               (double)generated / seconds, rank_balance(d, gb_server_options_get(d->instance->server)->ranks));
    begin_interval(d, &s, now);
}

/* ---- life ---- */

static void init_handles(gb_driver *d)
{
    uv_prepare_init(&d->loop, &d->prepare);
    uv_timer_init(&d->loop, &d->timer);
    uv_timer_init(&d->loop, &d->stats_timer);
    uv_async_init(&d->loop, &d->wake, on_wake);
    d->prepare.data = d->timer.data = d->stats_timer.data = d->wake.data = d;
    uv_prepare_start(&d->prepare, on_prepare);
    if (d->options.stats_every == GB_NEVER) return;
    uint64_t every_ms = d->options.stats_every / 1000000;
    uv_timer_start(&d->stats_timer, on_stats, every_ms, every_ms);
    uv_unref((uv_handle_t *)&d->stats_timer);
}

static int make_checker(gb_driver *d, gb_error *err)
{
    if (!d->options.executable) return GB_OK;
    return gb_checker_new(&d->checker, &d->loop, d->options.executable, gb_seconds(GB_CHECKER_DEADLINE_S), now_of, d, err);
}

static int make_parts(gb_driver *d, gb_error *err)
{
    gb_rpc_service_options service = {
        .api_key = d->options.api_key, .admin_token = d->options.admin_token, .hello_within = gb_seconds(5),
        .slow_reader = gb_seconds(30), .checks_loads = d->options.checks_loads, .shutdown = on_shutdown_method, .self = d,
    };
    int status = make_checker(d, err);
    if (d->checker) service.checker = gb_checker_seam_of(d->checker);
    if (!status) status = gb_rpc_service_new(&d->service, d->instance, &service, err);
    if (!status) status = gb_listen_new(&d->listen, &d->loop, d->service, now_of, d, err);
    gb_worker_calls calls = {.self = d, .done = on_round_done, .copied = on_copied};
    if (!status) status = gb_worker_new(&d->worker, &d->loop, d->instance->executor, &calls, err);
    const char *dir = d->options.watched_dir;
    if (!status && dir) status = gb_watch_new(&d->watch, &d->loop, d->instance->policies, dir, now_of, d, err);
    return status;
}

int gb_driver_new(gb_driver **out, gb_instance *instance, const gb_driver_options *options, gb_error *err)
{
    gb_driver *d = calloc(1, sizeof *d);
    if (!d) return gb_fail(err, GB_ENOMEM, "out of memory for the loop");
    signal(SIGPIPE, SIG_IGN);    /* a client that is gone is an error of write, not a death */
    if (uv_loop_init(&d->loop)) {
        free(d);
        return gb_fail(err, GB_ENOMEM, "the event loop cannot be made");
    }
    d->instance = instance;
    d->options = *options;
    d->turn = d->armed = d->drain_until = GB_NEVER;
    init_handles(d);
    int status = make_parts(d, err);
    if (status) gb_driver_free(d);
    else *out = d;
    return status;
}

void gb_driver_free(gb_driver *d)
{
    if (!d) return;
    if (d->phase != CLOSED) {
        d->phase = CLOSED;
        if (d->listen) close_everything(d, now_of(d));
    }
    gb_checker_close(d->checker);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    int busy = uv_loop_close(&d->loop);
    GB_ASSERT(busy == 0);
    gb_rpc_service_free(d->service);
    free(d);
}

int gb_driver_listen_unix(gb_driver *d, const char *path, gb_error *err) { return gb_listen_unix(d->listen, path, err); }

int gb_driver_listen_tcp(gb_driver *d, const char *host, uint16_t port, uint16_t *bound, gb_error *err)
{
    return gb_listen_tcp(d->listen, host, port, bound, err);
}

int gb_driver_run(gb_driver *d)
{
    gb_server_stats stats;
    gb_server_stats_get(d->instance->server, &stats);
    begin_interval(d, &stats, now_of(d));
    uv_run(&d->loop, UV_RUN_DEFAULT);
    return d->status;
}
