#define _GNU_SOURCE
#include "bindings/uv/driver.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "bindings/rpc/frame.h"
#include "bindings/rpc/json.h"
#include "core/base/log.h"
#include "tests/check.h"

/* ---- a client: blocking, JSON in and out ---- */

typedef struct client {
    int fd;
    uint32_t msgid;
    gb_frame frame;
    char in[1 << 20];
    size_t n;
} client;

static client *client_open(const char *path)
{
    client *c = calloc(1, sizeof *c);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    c->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(connect(c->fd, (struct sockaddr *)&address, sizeof address), 0);
    gb_frame_init(&c->frame);
    return c;
}

static void client_close(client *c)
{
    close(c->fd);
    free(c);
}

static void client_send(client *c, const char *method, const char *params)
{
    gb_pack out;
    json_t *tree = json_loads(params, 0, NULL);
    CHECK(tree != NULL);
    gb_pack_init(&out, 1 << 20);
    gb_pack_array(&out, 4);
    gb_pack_int(&out, 0);
    gb_pack_uint(&out, ++c->msgid);
    gb_pack_str(&out, method);
    gb_pack_array(&out, 1);
    gb_rpc_json_pack(&out, tree);
    CHECK_EQ(send(c->fd, out.data, out.n, MSG_NOSIGNAL), out.n);
    gb_pack_deinit(&out);
    json_decref(tree);
}

/* The next message; NULL when the server closed the connection. */
static json_t *client_receive(client *c)
{
    while (gb_frame_scan(&c->frame, c->in, c->n, NULL) != GB_FRAME_WHOLE) {
        ssize_t n = recv(c->fd, c->in + c->n, sizeof c->in - c->n, 0);
        if (n <= 0) return NULL;
        c->n += (size_t)n;
    }
    json_t *message = gb_rpc_json_parse(c->in, c->frame.at);
    c->n -= c->frame.at;
    memmove(c->in, c->in + c->frame.at, c->n);
    gb_frame_init(&c->frame);
    return message;
}

static const char *event_name(const json_t *message)
{
    const char *name = json_string_value(json_array_get(message, 1));
    return name ? name : "";
}

static json_t *event_params(const json_t *message) { return json_array_get(json_array_get(message, 2), 0); }

/* Sends a call and returns its whole answer, passing over notifications. */
static json_t *client_call(client *c, const char *method, const char *params)
{
    client_send(c, method, params);
    for (json_t *m; (m = client_receive(c)); json_decref(m)) {
        if (json_integer_value(json_array_get(m, 0)) == 1 && json_integer_value(json_array_get(m, 1)) == c->msgid) return m;
    }
    return NULL;
}

static void client_hello(client *c)
{
    json_t *answer = client_call(c, "hello", "{\"client\": \"driver_test\"}");
    CHECK(answer && json_is_null(json_array_get(answer, 2)));
    json_decref(answer);
}

/* The value of a counter in server_stats. */
static json_int_t client_stat(client *c, const char *name)
{
    json_t *answer = client_call(c, "server_stats", "{}");
    json_int_t value = json_integer_value(json_object_get(json_array_get(answer, 3), name));
    json_decref(answer);
    return value;
}

/* Waits until a counter has a value; how long that takes is nobody's business. */
static void client_await(client *c, const char *name, json_int_t value)
{
    while (client_stat(c, name) != value) usleep(1000);
}

/* How a stream ended: tokens counted, then "done", or the name of its error, or "closed". */
typedef struct ending {
    uint32_t tokens;
    char name[32];
} ending;

static ending client_read_stream(client *c)
{
    ending e = {0, "closed"};
    for (json_t *m; (m = client_receive(c)); json_decref(m)) {
        const char *name = event_name(m);
        if (strcmp(name, "token") == 0) {
            CHECK_EQ(json_integer_value(json_object_get(event_params(m), "seq")), e.tokens);
            e.tokens++;
        } else if (strcmp(name, "done") == 0 || strcmp(name, "failed") == 0) {
            const char *error = json_string_value(json_object_get(json_object_get(event_params(m), "error"), "name"));
            snprintf(e.name, sizeof e.name, "%s", error ? error : name);
            json_decref(m);
            break;
        }
    }
    return e;
}

/* ---- an executor that fails on command ---- */

typedef struct fragile {
    gb_executor executor;
    gb_executor *inner;
    int rounds_left;
} fragile;

static int fragile_run(gb_executor *executor, const gb_round *round, gb_result *result)
{
    fragile *f = (fragile *)executor;
    if (f->rounds_left-- <= 0) return GB_EDOWN;
    return gb_executor_run(f->inner, round, result);
}

static void fragile_free(gb_executor *executor)
{
    gb_executor_free(((fragile *)executor)->inner);
    free(executor);
}

static const gb_executor_table fragile_table = {.run = fragile_run, .free = fragile_free};

static void make_fragile(gb_instance *instance, int rounds)
{
    fragile *f = calloc(1, sizeof *f);
    *f = (fragile){.executor = {.table = &fragile_table, .info = instance->executor->info}, .inner = instance->executor, .rounds_left = rounds};
    instance->executor = &f->executor;
}

/* ---- a server on its own thread ---- */

typedef struct fixture {
    gb_options options;
    gb_instance *instance;
    gb_driver *driver;
    uv_thread_t thread;
    int status;
    char path[64];
} fixture;

static void run_driver(void *arg)
{
    fixture *f = arg;
    f->status = gb_driver_run(f->driver);
}

static void start_with(fixture *f, gb_driver_options options, int rounds_until_failure)
{
    gb_error err = {0};
    *f = (fixture){.status = -1};
    snprintf(f->path, sizeof f->path, "/tmp/gimbal_driver_%d.sock", (int)getpid());
    gb_options_init(&f->options);
    gb_options_set(&f->options, "model", check_path("examples/models/tiny-moe"), "test", &err);
    gb_options_set(&f->options, "data_parallel_size", "2", "test", &err);
    gb_options_set(&f->options, "expert_parallel_size", "4", "test", &err);
    gb_options_set(&f->options, "max_num_seqs", "8", "test", &err);
    gb_options_set(&f->options, "kv_cache_memory", "64M", "test", &err);
    CHECK_EQ(gb_instance_open(&f->instance, &f->options, &err), GB_OK);
    CHECK_STR(err.text, "");
    if (rounds_until_failure >= 0) make_fragile(f->instance, rounds_until_failure);
    CHECK_EQ(gb_driver_new(&f->driver, f->instance, &options, &err), GB_OK);
    CHECK_EQ(gb_driver_catch_signals(f->driver, &err), GB_OK);
    CHECK_EQ(gb_driver_listen_unix(f->driver, f->path, &err), GB_OK);
    CHECK_EQ(uv_thread_create(&f->thread, run_driver, f), 0);
}

static void start(fixture *f, gb_time shutdown_timeout, int rounds_until_failure)
{
    start_with(f, (gb_driver_options){.shutdown_timeout = shutdown_timeout, .stats_every = GB_NEVER}, rounds_until_failure);
}

static void finish(fixture *f, int status)
{
    uv_thread_join(&f->thread);
    CHECK_EQ(f->status, status);
    CHECK(access(f->path, F_OK) != 0);    /* the socket's file is gone */
    gb_driver_free(f->driver);
    gb_instance_close(f->instance);
    gb_options_deinit(&f->options);
}

#define PROMPT "\"tokens\": [4094, 1, 2, 3]"
#define ENDLESS "{" PROMPT ", \"stream\": true, \"window\": 0, \"sampling\": {\"ignore_eos\": true, \"max_tokens\": 2000}}"
#define SHORT "{" PROMPT ", \"stream\": true, \"sampling\": {\"ignore_eos\": true, \"max_tokens\": 12}}"

static void expect_event(client *c, const char *name)
{
    json_t *m = client_receive(c);
    while (m && strcmp(event_name(m), name) != 0) {
        json_decref(m);
        m = client_receive(c);
    }
    CHECK(m != NULL);
    json_decref(m);
}

static void expect_closed(client *c)
{
    json_t *m;
    while ((m = client_receive(c))) json_decref(m);
}

/* ---- claims ---- */

static void streams_of_several_clients_arrive_whole_and_in_order(void)
{
    fixture f;
    client *clients[5];
    start(&f, gb_seconds(30), -1);
    for (int i = 0; i < 5; i++) clients[i] = client_open(f.path), client_hello(clients[i]), client_send(clients[i], "generate", SHORT);
    for (int i = 0; i < 5; i++) {
        ending e = client_read_stream(clients[i]);
        CHECK_EQ(e.tokens, 12);
        CHECK_STR(e.name, "done");
    }
    client_await(clients[0], "blocks_used", 0);
    CHECK_EQ(client_stat(clients[0], "live"), 0);
    CHECK_EQ(client_stat(clients[0], "finished"), 5);
    gb_driver_wake(f.driver);
    for (int i = 0; i < 5; i++) expect_closed(clients[i]), client_close(clients[i]);
    finish(&f, GB_OK);
}

static void a_client_that_goes_away_frees_its_blocks(void)
{
    fixture f;
    start(&f, 0, -1);
    client *watcher = client_open(f.path);
    client_hello(watcher);
    for (int i = 0; i < 3; i++) {
        client *c = client_open(f.path);
        client_hello(c);
        client_send(c, "generate", ENDLESS);
        expect_event(c, "token");
        client_close(c);
    }
    client_await(watcher, "aborted", 3);
    client_await(watcher, "blocks_used", 0);    /* at once, or when the round that holds them is back */
    CHECK_EQ(client_stat(watcher, "live"), 0);
    gb_driver_wake(f.driver);
    expect_closed(watcher);
    client_close(watcher);
    finish(&f, GB_OK);
}

static void a_shutdown_lets_open_streams_end_and_refuses_new_ones(void)
{
    fixture f;
    start(&f, gb_seconds(600), -1);
    client *c = client_open(f.path), *late = client_open(f.path);
    client_hello(c);
    client_hello(late);
    client_send(c, "generate", "{" PROMPT ", \"stream\": true, \"window\": 0, \"sampling\": {\"ignore_eos\": true, \"max_tokens\": 300}}");
    expect_event(c, "token");
    gb_driver_wake(f.driver);
    expect_event(late, "goaway");
    json_t *answer = client_call(late, "generate", SHORT);
    if (answer) CHECK_STR(json_string_value(json_object_get(json_array_get(answer, 2), "name")), "DRAINING");    /* NULL: it was over already */
    json_decref(answer);
    json_t *m;
    uint32_t ended = 0;
    while ((m = client_receive(c))) ended += strcmp(event_name(m), "done") == 0, json_decref(m);
    CHECK_EQ(ended, 1);
    client_close(c), client_close(late);
    finish(&f, GB_OK);
}

static void a_shutdown_without_patience_aborts_what_is_open(void)
{
    fixture f;
    start(&f, 0, -1);
    client *c = client_open(f.path);
    client_hello(c);
    client_send(c, "generate", ENDLESS);
    expect_event(c, "token");
    gb_driver_wake(f.driver);
    expect_event(c, "failed");
    expect_closed(c);
    client_close(c);
    finish(&f, GB_OK);
}

static void a_second_shutdown_does_not_wait(void)
{
    fixture f;
    start(&f, gb_seconds(86400), -1);
    client *c = client_open(f.path);
    client_hello(c);
    client_send(c, "generate", ENDLESS);
    expect_event(c, "token");
    gb_driver_wake(f.driver);
    expect_event(c, "goaway");
    gb_driver_wake(f.driver);
    expect_closed(c);
    client_close(c);
    finish(&f, GB_OK);
}

static void a_dead_executor_fails_every_request_and_ends_the_loop_with_its_status(void)
{
    fixture f;
    start(&f, gb_seconds(600), 6);
    client *clients[3];
    for (int i = 0; i < 3; i++) clients[i] = client_open(f.path), client_hello(clients[i]);
    for (int i = 0; i < 3; i++) client_send(clients[i], "generate", ENDLESS);
    for (int i = 0; i < 3; i++) {
        ending e = client_read_stream(clients[i]);
        CHECK_STR(e.name, "ENGINE_DOWN");
        expect_closed(clients[i]);
        client_close(clients[i]);
    }
    finish(&f, GB_EDOWN);
}

static void calls_are_answered_while_a_round_runs(void)
{
    fixture f;
    start(&f, 0, -1);
    client *busy = client_open(f.path), *other = client_open(f.path);
    client_hello(busy);
    client_hello(other);
    client_send(busy, "generate", ENDLESS);
    expect_event(busy, "token");
    json_int_t before = client_stat(other, "generated_tokens");
    for (int i = 0; i < 20; i++) json_decref(client_call(other, "ping", "{}"));
    while (client_stat(other, "generated_tokens") == before) {}    /* both go on */
    gb_driver_wake(f.driver);
    expect_closed(busy), expect_closed(other);
    client_close(busy), client_close(other);
    finish(&f, GB_OK);
}

/* Log lines of the statistics. */
static struct {
    uv_mutex_t lock;
    uint32_t lines;
    char last[512];
} stats_log;

static void keep_stats_lines(void *self, gb_log_level level, const char *line)
{
    (void)self, (void)level;
    if (!strstr(line, "rank balance")) return;
    uv_mutex_lock(&stats_log.lock);
    stats_log.lines++;
    snprintf(stats_log.last, sizeof stats_log.last, "%s", line);
    uv_mutex_unlock(&stats_log.lock);
}

static uint32_t stats_lines(void)
{
    uv_mutex_lock(&stats_log.lock);
    uint32_t lines = stats_log.lines;
    uv_mutex_unlock(&stats_log.lock);
    return lines;
}

static void a_busy_server_logs_statistics_and_an_idle_one_is_silent(void)
{
    fixture f;
    uv_mutex_init(&stats_log.lock);
    gb_log_set_sink(keep_stats_lines, NULL, GB_LOG_INFO);
    start_with(&f, (gb_driver_options){.stats_every = gb_ms(5)}, -1);
    client *c = client_open(f.path);
    client_hello(c);
    for (int i = 0; i < 10; i++) usleep(5000), json_decref(client_call(c, "ping", "{}"));
    CHECK_EQ(stats_lines(), 0);
    client_send(c, "generate", ENDLESS);
    while (stats_lines() < 3) expect_event(c, "token");
    gb_driver_wake(f.driver);
    expect_closed(c);
    client_close(c);
    finish(&f, GB_OK);
    CHECK_CONTAINS(stats_log.last, "running ");
    CHECK_CONTAINS(stats_log.last, "generated ");
    CHECK_CONTAINS(stats_log.last, "KV ");
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
    uv_mutex_destroy(&stats_log.lock);
}

static void tcp_takes_a_free_port_and_refuses_one_in_use(void)
{
    fixture f;
    gb_error err = {0};
    uint16_t first = 0, second = 0;
    gb_driver *other = NULL;
    gb_driver_options options = {.stats_every = GB_NEVER};
    start(&f, 0, -1);
    gb_instance *instance = NULL;
    CHECK_EQ(gb_instance_open(&instance, &f.options, &err), GB_OK);
    CHECK_EQ(gb_driver_new(&other, instance, &options, &err), GB_OK);
    CHECK_EQ(gb_driver_listen_tcp(other, "localhost", 0, &first, &err), GB_OK);
    CHECK(first != 0);
    CHECK_EQ(gb_driver_listen_unix(other, f.path, &err), GB_EEXIST);
    gb_driver *third = NULL;
    CHECK_EQ(gb_driver_new(&third, instance, &options, &err), GB_OK);
    CHECK_EQ(gb_driver_listen_tcp(third, "localhost", first, &second, &err), GB_EEXIST);
    CHECK_CONTAINS(err.text, "in use");
    CHECK_EQ(gb_driver_listen_tcp(third, "no.such.host.invalid", 0, &second, &err), GB_EINVAL);
    gb_driver_free(third);
    gb_driver_free(other);
    gb_instance_close(instance);
    gb_driver_wake(f.driver);
    finish(&f, GB_OK);
}

/* The version that decides for a hook: 0 = the C built-in. */
static json_int_t deciding(client *c, size_t hook)
{
    json_t *answer = client_call(c, "policy_status", "{}");
    json_t *seat = json_array_get(json_object_get(json_array_get(answer, 3), "hooks"), hook);
    json_int_t version = json_integer_value(json_object_get(seat, "version"));
    json_decref(answer);
    return version;
}

static void sigusr2_gives_every_hook_to_the_builtin_and_streams_go_on(void)
{
    fixture f;
    start(&f, gb_seconds(30), -1);
    client *reader = client_open(f.path), *watcher = client_open(f.path);
    client_hello(reader);
    client_hello(watcher);
    client_send(reader, "generate", SHORT);
    CHECK(deciding(watcher, 0) > 0);
    CHECK(deciding(watcher, 1) > 0);
    CHECK_EQ(kill(getpid(), SIGUSR2), 0);
    while (deciding(watcher, 0) || deciding(watcher, 1)) usleep(1000);
    ending e = client_read_stream(reader);
    CHECK_EQ(e.tokens, 12);
    CHECK_STR(e.name, "done");
    gb_driver_wake(f.driver);
    expect_closed(reader), client_close(reader);
    expect_closed(watcher), client_close(watcher);
    finish(&f, GB_OK);
}

TESTS(TEST(streams_of_several_clients_arrive_whole_and_in_order), TEST(a_client_that_goes_away_frees_its_blocks),
      TEST(a_shutdown_lets_open_streams_end_and_refuses_new_ones), TEST(a_shutdown_without_patience_aborts_what_is_open),
      TEST(a_second_shutdown_does_not_wait), TEST(a_dead_executor_fails_every_request_and_ends_the_loop_with_its_status),
      TEST(calls_are_answered_while_a_round_runs), TEST(a_busy_server_logs_statistics_and_an_idle_one_is_silent),
      TEST(tcp_takes_a_free_port_and_refuses_one_in_use),
      TEST(sigusr2_gives_every_hook_to_the_builtin_and_streams_go_on))
