#include "bindings/rpc/snapshot.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

static int64_t cell(const json_t *matrix, size_t i, size_t j, size_t k)
{
    return json_integer_value(json_array_get(json_array_get(json_array_get(matrix, i), j), k));
}

static int64_t sum_of(const json_t *value)
{
    int64_t sum = json_integer_value(value);
    for (size_t i = 0; i < json_array_size(value); i++) sum += sum_of(json_array_get(value, i));
    return sum;
}

static void model_info_says_what_is_served(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "model_info", "{}");
    CHECK_STR(json_text(r, "name"), "scripted");
    CHECK_STR(json_text(r, "backend"), "script");
    CHECK_EQ(json_int(r, "vocab"), FIXTURE_VOCAB);
    CHECK_EQ(json_int(r, "engines"), FIXTURE_ENGINES);
    CHECK_EQ(json_int(r, "ranks"), FIXTURE_RANKS);
    CHECK_EQ(json_int(r, "max_model_len"), 256);
    CHECK(json_is_true(json_object_get(r, "tokenizer")));
    CHECK_EQ(json_integer_value(json_array_get(json_object_get(r, "end_tokens"), 0)), FIXTURE_END);
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void server_stats_count_every_request_once(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\"}"));
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true, \"request_id\": \"a\"}"));
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    json_decref(peer_call(&p, "abort", "{\"request_id\": \"a\"}"));
    json_t *r = peer_call(&p, "server_stats", "{}");
    CHECK_EQ(json_int(r, "accepted"), 3);
    CHECK_EQ(json_int(r, "finished"), 1);
    CHECK_EQ(json_int(r, "aborted"), 1);
    CHECK_EQ(json_int(r, "failed"), 0);
    CHECK_EQ(json_int(r, "live"), 1);
    CHECK_EQ(json_int(r, "generated_tokens"), 32);
    CHECK_EQ(json_int(r, "connections"), 1);
    CHECK_EQ(json_int(r, "policy_faults"), 0);
    CHECK_EQ(json_int(r, "migrations_done"), 0);
    CHECK(json_is_false(json_object_get(r, "draining")));
    CHECK(json_object_get(json_object_get(r, "hooks"), "select_engine") != NULL);
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void config_get_has_every_option_and_its_source(void)
{
    fixture f;
    peer p;
    gb_error err;
    fixture_open(&f, NULL);
    CHECK_EQ(gb_options_set(&f.options, "max_num_seqs", "7", "command line", &err), GB_OK);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "config_get", "{}");
    const json_t *config = json_object_get(r, "config"), *sources = json_object_get(r, "sources");
    CHECK_EQ(json_object_size(config), gb_option_count);
    CHECK_EQ(json_object_size(sources), gb_option_count);
    CHECK_EQ(json_int(config, "max_num_seqs"), 7);
    CHECK_STR(json_text(sources, "max_num_seqs"), "command line");
    CHECK_STR(json_text(config, "dtype"), "auto");
    CHECK_STR(json_text(sources, "dtype"), "default");
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void engine_list_has_the_traces_in_milliseconds(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    for (int i = 0; i < 4; i++) json_decref(peer_call(&p, "generate", "{\"prompt\": \"Where is Paris?\", \"stream\": true}"));
    fixture_round(&f);
    json_t *r = peer_call(&p, "engine_list", "{}");
    const json_t *engines = json_object_get(r, "engines"), *second = json_array_get(engines, 1);
    CHECK_EQ(json_array_size(engines), FIXTURE_ENGINES);
    CHECK_EQ(json_int(second, "id"), 1);
    CHECK_EQ(json_integer_value(json_array_get(json_object_get(second, "ranks"), 1)), 3);
    CHECK_EQ(json_int(second, "running"), 2);
    CHECK(json_is_true(json_object_get(second, "healthy")));
    CHECK(json_is_true(json_object_get(second, "valid")));
    CHECK_NEAR(json_real_value(json_object_get(second, "round_time_ms")), 1, 1e-6);
    CHECK(json_real_value(json_object_get(second, "kv_used_ratio")) > 0);
    CHECK_EQ(json_int(second, "trace_seq"), 1);
    CHECK_EQ(json_int(second, "kv_used"), 2);
    CHECK_EQ((json_int(second, "kv_total") - 2) * GB_BLOCK_TOKENS, json_int(second, "kv_free_tokens"));
    json_decref(r);
    peer_close(&p);
    fixture_close(&f);
}

static void expert_matrix_is_a_by_source_and_b_its_sum(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"Where is Paris?\"}"));
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"Where is Paris?\"}"));
    json_t *r = peer_call(&p, "expert_matrix", "{}");
    const json_t *a = json_object_get(r, "A"), *b = json_object_get(r, "B");
    CHECK_EQ(json_array_size(a), FIXTURE_LAYERS);
    CHECK_EQ(json_array_size(json_array_get(a, 0)), FIXTURE_ENGINES);
    CHECK_EQ(json_array_size(json_array_get(json_array_get(a, 0), 0)), FIXTURE_EXPERTS);
    int64_t computed = 2 * (15 + 31);    /* the last token is never computed; the script routes layer l of source s to expert l + s */
    CHECK_EQ(cell(a, 0, 0, 0) + cell(a, 0, 1, 1), computed);
    CHECK_EQ(cell(a, 1, 0, 1) + cell(a, 1, 1, 2), computed);
    CHECK_EQ(sum_of(a), FIXTURE_LAYERS * computed);
    CHECK_EQ(sum_of(b), sum_of(a));
    json_decref(r);
    r = peer_call(&p, "expert_matrix", "{\"layer\": 1, \"window\": 0}");
    CHECK_EQ(json_array_size(json_object_get(r, "A")), 1);
    CHECK_EQ(json_int(r, "first_layer"), 1);
    CHECK(json_is_true(json_object_get(r, "running")));
    json_decref(r);
    peer_call_fails(&p, "expert_matrix", "{\"layer\": 2}", GB_RPC_INVALID_PARAMS, "layer", "MoE layers are 0..1");
    peer_close(&p);
    fixture_close(&f);
}

static void expert_matrix_takes_the_closed_window_once_there_is_one(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "expert_matrix", "{}");
    CHECK(json_is_true(json_object_get(r, "running")));
    json_decref(r);
    for (int i = 0; i < 3; i++) json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\"}"));    /* 32 rounds each, 64 a window */
    r = peer_call(&p, "expert_matrix", "{}");
    CHECK(json_is_false(json_object_get(r, "running")));
    CHECK_EQ(json_int(r, "window_id"), 1);
    CHECK_EQ(json_int(r, "rounds"), 64);
    CHECK_EQ(json_int(r, "counted_rounds"), 64);
    CHECK_EQ(json_array_size(json_object_get(r, "persistence")), FIXTURE_LAYERS);
    CHECK_NEAR(json_real_value(json_array_get(json_object_get(r, "variation"), 0)), 1, 1e-9);    /* the script gives each engine its own expert */
    CHECK_NEAR(json_real_value(json_object_get(r, "t1_ms")) - json_real_value(json_object_get(r, "t0_ms")), 64, 1e-6);
    json_decref(r);
    r = peer_call(&p, "expert_matrix", "{\"window\": 2}");
    CHECK(json_is_true(json_object_get(r, "running")));
    json_decref(r);
    peer_call_fails(&p, "expert_matrix", "{\"window\": 7}", GB_RPC_NOT_FOUND, "window", "window 7 is not kept: 2 is running");
    peer_close(&p);
    fixture_close(&f);
}

static void placement_get_shows_where_every_expert_lives(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "placement_get", "{}");
    CHECK_EQ(json_int(r, "version"), 1);
    CHECK_EQ(json_int(r, "slots_per_rank"), 2);
    CHECK_EQ(cell(json_object_get(r, "slots"), 1, 3, 1), 7);
    CHECK_EQ(cell(json_object_get(r, "route"), 0, 1, 5), 5);
    json_decref(r);
    json_decref(peer_call(&p, "placement_get", "{\"version\": 1}"));
    peer_call_fails(&p, "placement_get", "{\"version\": 9}", GB_RPC_NOT_FOUND, "version", "the current one is 1");
    peer_close(&p);
    fixture_close(&f);
}

static void request_list_goes_on_from_a_cursor_and_hides_what_is_others(void)
{
    fixture f;
    peer p, user;
    char params[64];
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_open(&user, &f, false);
    json_decref(peer_call(&user, "hello", "{}"));
    for (int i = 0; i < 5; i++) json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\", \"stream\": true}"));
    size_t seen = 0;
    int64_t cursor = 0;
    for (bool more = true; more;) {
        snprintf(params, sizeof params, "{\"limit\": 2, \"cursor\": %lld}", (long long)cursor);
        json_t *r = peer_call(&p, "request_list", params);
        seen += json_array_size(json_object_get(r, "requests"));
        more = json_object_get(r, "cursor") != NULL;
        if (more) cursor = json_int(r, "cursor");
        json_decref(r);
    }
    CHECK_EQ(seen, 5);
    fixture_round(&f);
    json_t *r = peer_call(&p, "request_list", "{\"state\": \"running\"}");
    CHECK_EQ(json_array_size(json_object_get(r, "requests")), 5);
    json_decref(r);
    r = peer_call(&p, "request_list", "{\"state\": \"waiting\"}");
    CHECK_EQ(json_array_size(json_object_get(r, "requests")), 0);
    json_decref(r);
    peer_call_fails(&p, "request_list", "{\"state\": \"asleep\"}", GB_RPC_INVALID_PARAMS, "state",
                    "waiting, running and preempted");
    r = peer_call(&user, "request_list", "{}");
    CHECK_EQ(json_array_size(json_object_get(r, "requests")), 0);
    json_decref(r);
    peer_close(&p);
    peer_close(&user);
    fixture_close(&f);
}

static void ping_tells_the_time_and_shutdown_calls_the_driver(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "ping", "{}");
    CHECK_EQ(json_int(r, "t_mono_ns"), f.now);
    json_decref(r);
    CHECK(!f.shutdown_called);
    json_decref(peer_call(&p, "shutdown", "{}"));
    CHECK(f.shutdown_called);
    peer_close(&p);
    fixture_close(&f);
}

TESTS(TEST(model_info_says_what_is_served), TEST(server_stats_count_every_request_once),
      TEST(config_get_has_every_option_and_its_source), TEST(engine_list_has_the_traces_in_milliseconds),
      TEST(expert_matrix_is_a_by_source_and_b_its_sum), TEST(expert_matrix_takes_the_closed_window_once_there_is_one),
      TEST(placement_get_shows_where_every_expert_lives), TEST(request_list_goes_on_from_a_cursor_and_hides_what_is_others),
      TEST(ping_tells_the_time_and_shutdown_calls_the_driver))
