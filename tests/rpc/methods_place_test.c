#include "bindings/rpc/errors.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

/* Two layers of eight experts on four ranks; layer 1 has experts `a` and `b` exchanged. */
static char *slots_with(int a, int b)
{
    static char text[256];
    int n = sprintf(text, "{\"slots\": [");
    for (int l = 0; l < FIXTURE_LAYERS; l++)
        for (int e = 0; e < FIXTURE_EXPERTS; e++) n += sprintf(text + n, "%s%d", l + e ? ", " : "", l == 0 ? e : e == a ? b : e == b ? a : e);
    sprintf(text + n, "]}");
    return text;
}

static int64_t stat_of(peer *p, const char *name)
{
    json_t *r = peer_call(p, "server_stats", "{}");
    int64_t value = json_integer_value(json_object_get(r, name));
    json_decref(r);
    return value;
}

static int64_t expert_at(peer *p, int layer, int rank, int slot)
{
    json_t *r = peer_call(p, "placement_get", "{}");
    int64_t value = json_integer_value(json_array_get(json_array_get(json_array_get(json_object_get(r, "slots"), (size_t)layer), (size_t)rank), (size_t)slot));
    json_decref(r);
    return value;
}

static void placement_set_moves_experts_at_the_next_round(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_t *r = peer_call(&p, "placement_set", slots_with(0, 7));
    CHECK_EQ(json_integer_value(json_object_get(r, "moves")), 2);
    json_decref(r);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\"}"));
    CHECK_EQ(stat_of(&p, "migrations_done"), 1);
    CHECK_EQ(expert_at(&p, 1, 0, 0), 7);
    CHECK_EQ(expert_at(&p, 1, 3, 1), 0);
    CHECK_EQ(expert_at(&p, 0, 0, 0), 0);
    peer_close(&p);
    fixture_close(&f);
}

static void a_placement_that_is_not_valid_is_refused_and_nothing_moves(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    char *missing = slots_with(-1, -1);
    peer_call_fails(&p, "placement_set", "{\"slots\": [0, 1]}", GB_RPC_INVALID_PARAMS, "slots", "slots has 2 entries, but 2 layers x 4 ranks x 2 slots");
    peer_call_fails(&p, "placement_set", "{\"slots\": [9000]}", GB_RPC_INVALID_PARAMS, "slots[0]", "must be -1..1023");
    peer_call_fails(&p, "placement_set", "{}", GB_RPC_INVALID_PARAMS, "slots", "slots");
    *strrchr(missing, '7') = '6';
    peer_call_fails(&p, "placement_set", missing, GB_RPC_INVALID_PARAMS, "slots", "expert 7 of layer 1 lives on no rank");
    CHECK_EQ(stat_of(&p, "moves_left"), 0);
    CHECK_EQ(expert_at(&p, 1, 3, 1), 7);
    peer_close(&p);
    fixture_close(&f);
}

static void one_migration_runs_at_a_time_and_can_be_cancelled(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    json_decref(peer_call(&p, "placement_set", slots_with(0, 7)));
    CHECK_EQ(stat_of(&p, "moves_left"), 2);
    peer_call_fails(&p, "placement_set", slots_with(0, 6), GB_RPC_OVERLOADED, NULL, "a migration is running");
    json_t *r = peer_call(&p, "migration_cancel", "{}");
    CHECK_EQ(json_integer_value(json_object_get(r, "moves")), 2);
    json_decref(r);
    r = peer_call(&p, "migration_cancel", "{}");
    CHECK_EQ(json_integer_value(json_object_get(r, "moves")), 0);
    json_decref(r);
    json_decref(peer_call(&p, "generate", "{\"prompt\": \"x\"}"));
    CHECK_EQ(stat_of(&p, "migrations_cancelled"), 1);
    CHECK_EQ(expert_at(&p, 1, 0, 0), 0);
    peer_close(&p);
    fixture_close(&f);
}

static void moving_experts_is_an_admin_act(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, false);
    json_decref(peer_call(&p, "hello", "{}"));
    peer_call_fails(&p, "placement_set", slots_with(0, 7), GB_RPC_FORBIDDEN, NULL, "admin");
    peer_call_fails(&p, "migration_cancel", "{}", GB_RPC_FORBIDDEN, NULL, "admin");
    peer_close(&p);
    fixture_close(&f);
}

TESTS(TEST(placement_set_moves_experts_at_the_next_round), TEST(a_placement_that_is_not_valid_is_refused_and_nothing_moves),
      TEST(one_migration_runs_at_a_time_and_can_be_cancelled), TEST(moving_experts_is_an_admin_act))
