#include "bindings/lua/lua_snapshot.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "tests/check.h"

static gb_error err;

static gb_lua_snapshot *read_text(const char *text)
{
    gb_lua_snapshot *s = NULL;
    err.text[0] = 0;
    CHECK_EQ(gb_lua_snapshot_read(&s, "snap.json", text, strlen(text), &err), 0);
    CHECK_STR(err.text, "");
    return s;
}

static gb_lua_snapshot *there_and_back(gb_lua_snapshot *s)
{
    char *text = gb_lua_snapshot_write(s);
    CHECK(text != NULL);
    gb_lua_snapshot *again = read_text(text);
    free(text);
    gb_lua_snapshot_free(s);
    return again;
}

static void a_selection_comes_back_from_text_as_it_was(void)
{
    gb_arena arena;
    gb_tables tables;
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, 3, 1), 0);
    tables.engines.next = 2;
    for (uint32_t i = 0; i < 3; i++) tables.engines.kv_used_ratio[i] = 0.1 * (i + 1);
    tables.request = (gb_request_row){.prompt_tokens = 77, .deadline_ns = INFINITY, .session = 9007199254740991.0};
    gb_lua_snapshot *s = NULL;
    CHECK_EQ(gb_lua_snapshot_take(&s, GB_HOOK_SELECT, &tables.request, &tables.engines, NULL, gb_seconds(7) + 1), 0);
    gb_rng_init(&s->rng, 42);
    gb_rng rng = s->rng;
    s = there_and_back(s);
    CHECK_EQ(s->hook, GB_HOOK_SELECT);
    CHECK_EQ(s->now, gb_seconds(7) + 1);
    CHECK_EQ(memcmp(&s->rng, &rng, sizeof rng), 0);
    CHECK_EQ(s->tables.engines.n, 3);
    CHECK_EQ(s->tables.engines.next, 2);
    CHECK(s->tables.engines.kv_used_ratio[2] == tables.engines.kv_used_ratio[2]);
    CHECK(s->tables.request.prompt_tokens == 77 && isinf(s->tables.request.deadline_ns));
    CHECK(s->tables.request.session == 9007199254740991.0);
    gb_lua_snapshot_free(s);
    gb_arena_deinit(&arena);
}

static void a_long_queue_is_cut_and_says_so(void)
{
    gb_arena arena;
    gb_tables tables;
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&tables, &arena, 1, GB_LUA_SNAPSHOT_ROWS_MAX + 1), 0);
    tables.queue.n = GB_LUA_SNAPSHOT_ROWS_MAX + 1;
    tables.queue.engine = 5;
    tables.queue.key[0] = NAN;
    tables.queue.wait_ns[GB_LUA_SNAPSHOT_ROWS_MAX - 1] = 12.5;
    gb_lua_snapshot *s = NULL;
    CHECK_EQ(gb_lua_snapshot_take(&s, GB_HOOK_ORDER, NULL, NULL, &tables.queue, 1), 0);
    gb_rng_init(&s->rng, 1);
    s = there_and_back(s);
    CHECK(s->cut);
    CHECK_EQ(s->tables.queue.n, GB_LUA_SNAPSHOT_ROWS_MAX);
    CHECK_EQ(s->tables.queue.engine, 5);
    CHECK(isnan(s->tables.queue.key[0]));
    CHECK(s->tables.queue.wait_ns[GB_LUA_SNAPSHOT_ROWS_MAX - 1] == 12.5);
    gb_lua_snapshot_free(s);
    gb_arena_deinit(&arena);
}

static void check_refused(const char *text, const char *refusal)
{
    gb_lua_snapshot *s = NULL;
    CHECK_EQ(gb_lua_snapshot_read(&s, "snap.json", text, strlen(text), &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, refusal);
    CHECK_CONTAINS(err.text, "snap.json");
    CHECK(s == NULL);
}

#define HEAD "{\"gimbal_snapshot\": 1, \"now_ns\": 5, "

static void a_text_that_is_no_snapshot_is_refused_with_what_is_wrong(void)
{
    check_refused("", "a snapshot is one JSON object");
    check_refused("{}", "is no snapshot of format 1");
    check_refused("{\"gimbal_snapshot\": 2}", "is no snapshot of format 1");
    check_refused("{\"gimbal_snapshot\": 1, \"now_ns\": -1}", "now_ns must be a whole number");
    check_refused(HEAD "\"hook\": \"place\"}", "hook must be select_engine, order_queue, score_expert or placement_cost");
    check_refused(HEAD "\"hook\": \"select_engine\"}", "engines.n must be a whole number of 1 to 512");
    check_refused(HEAD "\"hook\": \"select_engine\", \"engines\": {\"n\": 2, \"next\": 2}}", "engines.next must be a whole number of 0 to 1");
    check_refused(HEAD "\"hook\": \"select_engine\", \"engines\": {\"n\": 2, \"next\": 0}}", "needs request");
    check_refused(HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 9999999, \"engine\": 0}}", "queue.n must be");
    check_refused(HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 1, \"engine\": 0, \"wait\": [1]}}", "queue has no column \"wait\"");
    check_refused(HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 1, \"engine\": 0, \"wait_ns\": [1, 2]}}", "queue.wait_ns must be a list of 1 numbers");
    check_refused(HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 1, \"engine\": 0, \"wait_ns\": [\"x\"]}}", "queue.wait_ns has something that is no number");
    check_refused(HEAD "\"random\": [\"0\", \"0\", \"0\", \"0\"], \"hook\": \"order_queue\", \"queue\": {\"n\": 1, \"engine\": 0}}", "random must not be all zeros");
}

static void a_column_that_is_left_out_is_zero(void)
{
    gb_lua_snapshot *s = read_text(HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 2, \"engine\": 0, \"wait_ns\": [3, \"inf\"]}}");
    CHECK(s->tables.queue.wait_ns[0] == 3 && isinf(s->tables.queue.wait_ns[1]));
    CHECK(s->tables.queue.prompt_tokens[1] == 0);
    gb_lua_snapshot_free(s);
}

static const char whole[] =
    HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 1, \"engine\": 0}, \"params\": {\"w\": 2.5, \"on\": true, \"mode\": \"fast\"}, "
         "\"fault\": {\"seq\": 3, \"decision\": 70, \"kind\": \"nan\", \"policy\": \"mine\", \"version\": 4, \"sha256\": \"ab\", "
         "\"message\": \"mine.lua:2: no\"}}";

static void check_whole(gb_lua_snapshot *s)
{
    CHECK_EQ(s->n_params, 3);
    CHECK_STR(s->params[0].name, "w");
    CHECK(s->params[0].value.type == GB_LUA_NUMBER && s->params[0].value.number == 2.5);
    CHECK(s->params[1].value.type == GB_LUA_BOOLEAN && s->params[1].value.boolean);
    CHECK(s->params[2].value.type == GB_LUA_TEXT);
    CHECK_STR(s->params[2].value.text, "fast");
    CHECK(s->fault.seq == 3 && s->fault.decision == 70 && s->fault.version == 4 && s->fault.kind == GB_LUA_FAULT_NAN);
    CHECK_STR(s->fault.name, "mine");
    CHECK_STR(s->fault.message, "mine.lua:2: no");
}

static void params_and_fault_come_back_from_text_as_they_were(void)
{
    gb_lua_snapshot *s = there_and_back(read_text(whole));
    check_whole(s);
    gb_lua_snapshot_free(s);
}

static void the_answer_of_policy_log_is_read_too(void)
{
    json_t *answer = json_pack("{s:[], s:[{s:i}, {s:i, s:s}]}", "events", "faults", "seq", 2, "seq", 3, "snapshot", whole);
    char *text = json_dumps(answer, 0);
    gb_lua_snapshot *s = read_text(text);
    check_whole(s);
    gb_lua_snapshot_free(s);
    free(text);
    json_decref(answer);
    check_refused("{\"faults\": [{\"seq\": 2}]}", "ask for one fault");
    check_refused("{\"faults\": [{\"snapshot\": \"{\"}]}", "is broken");
}

static void a_param_that_no_policy_can_have_is_refused(void)
{
    check_refused(HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 1, \"engine\": 0}, \"params\": {\"w\": [1]}}", "params.w must be a number");
    check_refused(HEAD "\"hook\": \"order_queue\", \"queue\": {\"n\": 1, \"engine\": 0}, \"params\": {\"w\": null}}", "params.w must be a number");
}

TESTS(TEST(params_and_fault_come_back_from_text_as_they_were), TEST(the_answer_of_policy_log_is_read_too),
      TEST(a_param_that_no_policy_can_have_is_refused), TEST(a_selection_comes_back_from_text_as_it_was), TEST(a_long_queue_is_cut_and_says_so),
      TEST(a_text_that_is_no_snapshot_is_refused_with_what_is_wrong), TEST(a_column_that_is_left_out_is_zero))
