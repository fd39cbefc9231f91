#include "bindings/c/instance.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/check.h"

static gb_time fake_clock(void)
{
    static gb_time now;
    return now += gb_us(100);
}

/* Opens a model below the source tree with up to two options beside its name. */
static int open_model(gb_instance **instance, gb_options *options, gb_error *err, const char *relative, const char *key, const char *value)
{
    *err = (gb_error){0};
    *instance = NULL;
    gb_options_init(options);
    gb_options_set(options, "model", relative[0] == '/' ? relative : check_path(relative), "test", err);
    gb_options_set(options, "max_num_seqs", "2", "test", err);
    if (key) CHECK_EQ(gb_options_set(options, key, value, "test", err), GB_OK);
    return gb_instance_open(instance, options, err);
}

static void close_model(gb_instance *instance, gb_options *options)
{
    gb_instance_close(instance);
    gb_options_deinit(options);
}

/* Continues a prompt to its end without threads; returns how many tokens came. */
static uint32_t generate(gb_instance *instance, int32_t *out, uint32_t n)
{
    static const int32_t prompt[] = {1, 2, 3};
    gb_sampling sampling;
    gb_request_id id;
    gb_event event;
    uint32_t got = 0;
    gb_instance_sampling(instance, &sampling);
    sampling.temperature = 0;
    sampling.max_tokens = n;
    sampling.ignore_eos = true;
    gb_request request = {.tokens = prompt, .n_tokens = 3, .deadline = GB_NEVER, .sampling = &sampling};
    CHECK_EQ(gb_server_submit(instance->server, &id, &request, fake_clock(), NULL), GB_OK);
    for (;;) {
        while (gb_server_poll_event(instance->server, &event)) {
            if (event.kind != GB_EVENT_TOKEN) return got;
            out[got++] = event.token;
        }
        gb_instance_step(instance, fake_clock);
    }
}

static void an_opened_model_generates_step_by_step_and_then_rests(void)
{
    gb_instance *instance;
    gb_options options;
    gb_error err;
    int32_t once[8], again[8];
    CHECK_EQ(open_model(&instance, &options, &err, "tests/golden/plain", NULL, NULL), GB_OK);
    CHECK_EQ(generate(instance, once, 8), 8);
    CHECK_EQ(generate(instance, again, 8), 8);
    CHECK_EQ(memcmp(once, again, sizeof once), 0);
    CHECK(!gb_instance_step(instance, fake_clock));
    close_model(instance, &options);
}

static void the_model_is_named_after_its_directory_or_as_wished(void)
{
    gb_instance *instance;
    gb_options options;
    gb_error err;
    CHECK_EQ(open_model(&instance, &options, &err, "tests/golden/plain/", NULL, NULL), GB_OK);
    CHECK_STR(instance->model_name, "plain");
    close_model(instance, &options);
    CHECK_EQ(open_model(&instance, &options, &err, "tests/golden/plain", "served_model_name", "mine"), GB_OK);
    CHECK_STR(instance->model_name, "mine");
    close_model(instance, &options);
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_EQ(open_model(&instance, &options, &err, "tests/golden/plain", "served_model_name", name), GB_EINVAL);
    CHECK_CONTAINS(err.text, "299 bytes");
    close_model(instance, &options);
}

static void silent_requests_get_what_generation_config_says(void)
{
    gb_instance *instance;
    gb_options options;
    gb_error err;
    gb_sampling s;
    CHECK_EQ(open_model(&instance, &options, &err, "examples/models/tiny-moe", NULL, NULL), GB_OK);
    gb_instance_sampling(instance, &s);
    CHECK_NEAR(s.temperature, 0, 0);    /* do_sample false */
    CHECK_EQ(s.max_tokens, UINT32_MAX);
    CHECK(!s.has_seed);
    instance->generation = (gb_generation_config){
        .has_temperature = true, .temperature = 0.5, .has_top_p = true, .top_p = 0.75, .has_top_k = true, .top_k = 20,
        .has_min_p = true, .min_p = 0.25, .has_repetition_penalty = true, .repetition_penalty = 1.5,
    };
    gb_instance_sampling(instance, &s);
    CHECK_NEAR(s.temperature, 0.5, 1e-6);
    CHECK_NEAR(s.top_p, 0.75, 1e-6);
    CHECK_EQ(s.top_k, 20);
    CHECK_NEAR(s.min_p, 0.25, 1e-6);
    CHECK_NEAR(s.repetition_penalty, 1.5, 1e-6);
    instance->generation = (gb_generation_config){0};
    gb_instance_sampling(instance, &s);
    CHECK_NEAR(s.temperature, 1, 0);
    close_model(instance, &options);
}

static void ends_come_from_generation_config_else_from_config(void)
{
    gb_instance *instance;
    gb_options options;
    gb_error err;
    CHECK_EQ(open_model(&instance, &options, &err, "examples/models/tiny-moe", NULL, NULL), GB_OK);
    const gb_server_options *server = gb_server_options_get(instance->server);
    CHECK_EQ(server->n_end_ids, 2);
    CHECK_EQ(server->end_ids[0], 4095);
    CHECK_EQ(server->end_ids[1], 4093);
    close_model(instance, &options);
    CHECK_EQ(open_model(&instance, &options, &err, "tests/golden/plain", NULL, NULL), GB_OK);
    server = gb_server_options_get(instance->server);
    CHECK_EQ(server->n_end_ids, instance->config.n_end_ids);
    close_model(instance, &options);
}

static void a_length_beyond_the_models_is_allowed_and_served(void)
{
    gb_instance *instance;
    gb_options options;
    gb_error err;
    CHECK_EQ(open_model(&instance, &options, &err, "examples/models/tiny-moe", "max_model_len", "3000"), GB_OK);
    CHECK_EQ(instance->executor->info.max_positions, 3000);
    CHECK_EQ(gb_server_options_get(instance->server)->max_model_len, 3000);
    close_model(instance, &options);
}

static void a_directory_that_is_none_is_an_error_that_names_it(void)
{
    gb_instance *instance;
    gb_options options;
    gb_error err;
    char empty[] = "/tmp/gimbal_instance_XXXXXX";
    CHECK(mkdtemp(empty) != NULL);
    CHECK_EQ(open_model(&instance, &options, &err, "/nonexistent/x", NULL, NULL), GB_ENOTFOUND);
    CHECK_CONTAINS(err.text, "/nonexistent/x");
    close_model(instance, &options);
    CHECK_EQ(open_model(&instance, &options, &err, "CMakeLists.txt", NULL, NULL), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "is not a directory");
    close_model(instance, &options);
    CHECK(open_model(&instance, &options, &err, empty, NULL, NULL) != GB_OK);
    CHECK_CONTAINS(err.text, "config.json");
    close_model(instance, &options);
    rmdir(empty);
}

static void a_policy_that_does_not_exist_leaves_nothing_behind(void)
{
    gb_instance *instance;
    gb_options options;
    gb_error err;
    CHECK(open_model(&instance, &options, &err, "tests/golden/plain", "policy_select", "no_such_policy") != GB_OK);
    CHECK_CONTAINS(err.text, "no_such_policy");
    CHECK(instance == NULL);
    close_model(instance, &options);
}

static void check_decides(const char *policy, const char *other_key, const char *other, const char *select, const char *order)
{
    gb_instance *instance;
    gb_options options;
    gb_error err = {{0}};
    CHECK_EQ(gb_options_init(&options), 0);
    CHECK_EQ(gb_options_set(&options, "policy", policy, "command line", &err), 0);
    if (other_key) CHECK_EQ(gb_options_set(&options, other_key, other, "command line", &err), 0);
    CHECK_EQ(gb_options_set(&options, "model", check_path("tests/golden/plain"), "command line", &err), 0);
    CHECK_EQ(gb_options_set(&options, "kv_cache_memory", "1M", "command line", &err), 0);
    CHECK_EQ(gb_instance_open(&instance, &options, &err), 0);
    CHECK_STR(err.text, "");
    const char *expected[] = {select, order};
    for (int hook = GB_HOOK_SELECT; hook <= GB_HOOK_ORDER; hook++) {
        gb_lua_info info = {.name = "builtin"};
        uint32_t version = gb_lua_host_active(instance->policies, (gb_hook)hook);
        if (version) CHECK_EQ(gb_lua_host_find(instance->policies, version, &info), 0);
        CHECK_STR(info.name, expected[hook]);
    }
    close_model(instance, &options);
}

static void one_policy_takes_every_hook_it_has_unless_another_is_named(void)
{
    check_decides("gimbal_dp", NULL, NULL, "gimbal_dp", "gimbal_dp");
    check_decides("vllm", NULL, NULL, "vllm", "gimbal");
    check_decides("gimbal_ep", "policy_order", "hrrn", "gimbal_ep", "hrrn");
    check_decides("builtin", NULL, NULL, "builtin", "builtin");
    check_decides("builtin", "policy_select", "p2c", "p2c", "builtin");
}

TESTS(TEST(an_opened_model_generates_step_by_step_and_then_rests), TEST(the_model_is_named_after_its_directory_or_as_wished),
      TEST(silent_requests_get_what_generation_config_says), TEST(ends_come_from_generation_config_else_from_config),
      TEST(a_length_beyond_the_models_is_allowed_and_served), TEST(a_directory_that_is_none_is_an_error_that_names_it),
      TEST(a_policy_that_does_not_exist_leaves_nothing_behind), TEST(one_policy_takes_every_hook_it_has_unless_another_is_named))
