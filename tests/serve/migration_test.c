/* Experts on the move in a server; what a migration is made of is tested in tests/moe/migrate_test.c. */
#include "core/serve/server.h"

#include "core/base/log.h"
#include "core/moe/trade.h"
#include "tests/check.h"
#include "tests/serve/fake.h"

static fake f;
static gb_server *server;
static gb_server_options options;
static gb_arena arena;
static gb_placement to;
static gb_copy_list list;
static gb_time clock_ms;

static void start(void)
{
    gb_error err = {{0}};
    fake_init(&f, &options);
    CHECK_EQ(gb_server_new(&server, &options, &err), GB_OK);
    CHECK_STR(err.text, "");
    gb_arena_init(&arena);
    CHECK_EQ(gb_placement_init(&to, &arena, options.moe_layers, options.engines, options.experts, options.ranks, options.spare_slots, NULL), GB_OK);
    gb_placement_copy(&to, gb_server_placement(server));
    clock_ms = 1;
}

static void start_private(void)
{
    fake_options(&options);
    options.private_ranks = true;
    start();
}

static void stop(void)
{
    gb_server_check(server);
    gb_server_free(server);
    gb_arena_deinit(&arena);
    fake_deinit(&f);
}

static gb_time now(void) { return gb_ms(++clock_ms); }

static gb_server_stats stats(void)
{
    gb_server_stats s;
    gb_server_stats_get(server, &s);
    return s;
}

static void submit(uint32_t n_tokens, uint32_t max_tokens)
{
    gb_request request = fake_request(n_tokens, max_tokens);
    fake_submit(server, &request, now());
}

static bool copy_all(void)
{
    if (!gb_server_poll_copies(server, &list)) return false;
    fake_copy(&f, &list);
    gb_server_copies_done(server, GB_OK, now());
    gb_server_check(server);
    return true;
}

static bool run_round(void)
{
    clock_ms += 2;
    return fake_round(&f, server, gb_ms(clock_ms - 1), gb_ms(clock_ms));
}

static int32_t slot_of(uint32_t layer, uint32_t expert) { return gb_placement_routes(gb_server_placement(server), layer, 0)[expert]; }

static void an_idle_server_moves_experts_without_rounds(void)
{
    start_private();
    gb_trade_slots(&to, 1, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    while (copy_all());
    CHECK_EQ(slot_of(1, 0), 7);
    CHECK_EQ(slot_of(1, 7), 0);
    CHECK_EQ(stats().migrations_done, 1);
    CHECK_EQ(stats().experts_moved, 2);
    CHECK_EQ(stats().bytes_moved, 2 * FAKE_EXPERT_BYTES);
    CHECK_EQ(stats().rounds, 0);
    stop();
}

static void the_placement_of_a_round_in_flight_stays_as_it_is(void)
{
    start_private();
    submit(20, 10);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    gb_trade_slots(&to, 0, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    while (copy_all());
    CHECK_EQ(slot_of(0, 0), 0);
    CHECK_EQ(stats().moves_left, 2);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(slot_of(0, 0), 0);
    CHECK(gb_server_poll_round(server, &f.round, now()));    /* the border */
    CHECK_EQ(slot_of(0, 0), 7);
    CHECK_EQ(stats().moves_left, 0);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    stop();
}

static void rounds_go_on_while_copies_are_out(void)
{
    start_private();
    submit(20, 30);
    gb_trade_slots(&to, 0, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    CHECK(gb_server_poll_copies(server, &list));
    for (int i = 0; i < 5; i++) CHECK(run_round());
    CHECK(!gb_server_poll_copies(server, &list));
    CHECK_EQ(slot_of(0, 0), 0);
    fake_copy(&f, &list);
    gb_server_copies_done(server, GB_OK, now());
    CHECK_EQ(slot_of(0, 0), 7);
    stop();
}

static void beside_a_round_goes_one_list_of_copies(void)
{
    fake_options(&options);
    options.private_ranks = true;
    options.migration_bytes = FAKE_EXPERT_BYTES;
    start();
    submit(20, 30);
    for (uint32_t l = 0; l < options.moe_layers; l++) gb_trade_slots(&to, l, 0, 7);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    for (uint32_t copied = 1;; copied++) {
        CHECK(copy_all());
        CHECK(!copy_all());    /* whatever is left waits for the next round */
        fake_run(&f, GB_OK);
        gb_server_round_done(server, &f.result, now());
        if (copied == 2 * options.moe_layers) break;
        CHECK(gb_server_poll_round(server, &f.round, now()));
    }
    CHECK(gb_server_poll_round(server, &f.round, now()));
    CHECK_EQ(stats().migrations_done, 1);
    CHECK_EQ(stats().bytes_moved, 2 * options.moe_layers * FAKE_EXPERT_BYTES);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    stop();
}

static void a_draining_server_leaves_experts_where_they_are(void)
{
    start_private();
    gb_trade_slots(&to, 0, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    gb_server_drain(server);
    CHECK_EQ(stats().migrations_cancelled, 1);
    CHECK(!gb_server_poll_copies(server, &list));
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_EDRAINING);
    stop();
}

/* Rounds until nobody is left, with copies between them. */
static void serve_all(void)
{
    gb_event event;
    for (bool more = true; more;) {
        more = run_round();
        gb_server_check(server);
        copy_all();
        while (gb_server_poll_event(server, &event)) CHECK(event.kind != GB_EVENT_FAILED);
    }
}

static void forced_migrations_move_two_experts_of_every_layer_every_so_many_rounds(void)
{
    fake_options(&options);
    options.private_ranks = true;
    options.force_migration_every = 3;
    start();
    submit(20, 60);
    serve_all();
    CHECK(stats().rounds >= 60);
    CHECK(stats().migrations_done >= stats().rounds / 3 - 1 && stats().migrations_done <= stats().rounds / 3 + 1);
    CHECK_EQ(stats().experts_moved, 2 * options.moe_layers * stats().migrations_done);
    CHECK_EQ(stats().bytes_moved, stats().experts_moved * FAKE_EXPERT_BYTES);
    stop();
}

static void ranks_that_share_memory_move_experts_without_bytes(void)
{
    fake_options(&options);
    options.force_migration_every = 1;
    start();
    submit(20, 30);
    serve_all();
    CHECK(stats().migrations_done >= 30);
    CHECK_EQ(stats().bytes_moved, 0);
    stop();
}

static void a_failed_copy_ends_the_migration_and_the_next_one_works(void)
{
    start_private();
    gb_trade_slots(&to, 0, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    CHECK(gb_server_poll_copies(server, &list));
    gb_server_copies_done(server, GB_EIO, now());
    CHECK_EQ(stats().migrations_failed, 1);
    CHECK_EQ(stats().moves_left, 0);
    CHECK_EQ(slot_of(0, 0), 0);
    submit(20, 3);
    serve_all();
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    while (copy_all());
    CHECK_EQ(slot_of(0, 0), 7);
    stop();
}

static void an_engine_that_goes_down_ends_the_migration(void)
{
    start_private();
    gb_trade_slots(&to, 0, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    CHECK(gb_server_poll_copies(server, &list));
    gb_server_engine_down(server, 1, now());
    CHECK_EQ(stats().migrations_cancelled, 1);
    gb_server_copies_done(server, GB_OK, now());
    CHECK(!gb_server_poll_copies(server, &list));
    CHECK_EQ(slot_of(0, 0), 0);
    stop();
}

static void a_migration_can_be_cancelled_and_one_runs_at_a_time(void)
{
    start_private();
    gb_trade_slots(&to, 0, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_EFULL);
    gb_server_cancel_migration(server);
    CHECK_EQ(stats().migrations_cancelled, 1);
    CHECK(!gb_server_poll_copies(server, &list));
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    while (copy_all());
    CHECK_EQ(stats().migrations_done, 1);
    stop();
}

static void a_bad_placement_is_refused(void)
{
    gb_error err = {{0}};
    start_private();
    gb_placement_layer_slots(&to, 1)[3] = 2;
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "layer 1");
    CHECK_EQ(stats().moves_left, 0);
    stop();
}

/* Requests of one engine after the other, so that sources differ; every window is followed by a decision. */
static void serve_and_rearrange(void)
{
    gb_event event;
    for (uint32_t i = 0; i < 12; i++) submit(20, 30);
    for (bool more = true; more;) {
        more = gb_server_poll_round(server, &f.round, now());
        gb_server_rearrange(server, now());
        if (more) fake_run(&f, GB_OK);
        if (more) gb_server_round_done(server, &f.result, now());
        gb_server_check(server);
        while (copy_all());
        while (gb_server_poll_event(server, &event)) CHECK(event.kind != GB_EVENT_FAILED);
    }
}

static void rearrange_every_window(gb_place_weights weights)
{
    fake_options(&options);
    options.private_ranks = true;
    options.placement.every = 1;
    options.placement.solve.weights = weights;
    start();
}

static double fullest(const gb_placement *p, const double *traffic)
{
    gb_place_report report;
    gb_place_weights weights = gb_place_weights_paper();
    gb_score_placement(&report, &weights, &gb_server_planner(server)->links, traffic, p, NULL, 1);
    return report.max_over_mean;
}

static void windows_end_in_better_placements_while_requests_are_served(void)
{
    gb_place_weights balance = {0, 1, 0, GB_IMBALANCE_SQUARES};
    rearrange_every_window(balance);
    serve_and_rearrange();
    CHECK(stats().windows >= 4);
    CHECK(stats().rearrangements >= 4);
    CHECK(stats().rearrangements_accepted >= 1);
    CHECK_EQ(stats().migrations_done, stats().rearrangements_accepted);
    CHECK(stats().bytes_moved > 0);
    gb_placement linear;
    CHECK_EQ(gb_placement_init(&linear, &arena, options.moe_layers, options.engines, options.experts, options.ranks, 0, NULL), GB_OK);
    const double *traffic = gb_server_planner(server)->estimate.traffic;
    CHECK(fullest(gb_server_placement(server), traffic) < fullest(&linear, traffic));
    stop();
}

static void nothing_moves_where_nothing_is_gained(void)
{
    rearrange_every_window((gb_place_weights){1, 0.0025, 1e6, GB_IMBALANCE_SQUARES});    /* moves are dear */
    serve_and_rearrange();
    CHECK(stats().rearrangements >= 4);
    CHECK_EQ(stats().rearrangements_accepted, 0);
    CHECK_EQ(gb_server_placement(server)->version, 1);
    stop();
}

static int stays(void *self, gb_rearrangement *r, gb_time when)
{
    (void)when;
    ++*(uint32_t *)self;
    memcpy(r->rank_of, r->home, (size_t)options.moe_layers * options.experts * sizeof *r->rank_of);
    return 0;
}

static void a_policy_can_place_instead_of_the_built_in_search(void)
{
    uint32_t calls = 0;
    rearrange_every_window((gb_place_weights){0, 1, 0, GB_IMBALANCE_SQUARES});
    gb_server_set_planner(server, stays, &calls);
    serve_and_rearrange();
    CHECK_EQ(calls, stats().rearrangements);
    CHECK_EQ(stats().rearrangements_accepted, 0);
    gb_server_set_planner(server, NULL, NULL);
    serve_and_rearrange();
    CHECK(stats().rearrangements_accepted >= 1);
    stop();
}

static void no_decision_is_made_while_experts_move_an_engine_is_down_or_the_server_drains(void)
{
    rearrange_every_window((gb_place_weights){0, 1, 0, GB_IMBALANCE_SQUARES});
    submit(20, 60);
    for (int i = 0; i < 4; i++) CHECK(run_round());
    gb_trade_slots(&to, 0, 0, 7);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), NULL), GB_OK);
    CHECK(!gb_server_rearrange(server, now()));
    gb_server_cancel_migration(server);
    gb_server_engine_down(server, 1, now());
    CHECK(!gb_server_rearrange(server, now()));
    gb_server_engine_up(server, 1);
    CHECK_EQ(stats().rearrangements, 0);
    gb_server_rearrange(server, now());
    CHECK_EQ(stats().rearrangements, 1);
    for (int i = 0; i < 4; i++) CHECK(run_round());
    gb_server_drain(server);
    CHECK(!gb_server_rearrange(server, now()));
    CHECK_EQ(stats().rearrangements, 1);
    stop();
}

static void bad_placements_are_refused_in_words_and_nothing_changes(void)
{
    gb_error err = {{0}};
    fake_options(&options);
    options.spare_slots = 1;
    start();
    gb_placement_layer_slots(&to, 1)[2] = 0;    /* rank 0 has experts 0, 1 and room for one */
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), &err), GB_EINVAL);
    CHECK_STR(err.text, "placement: layer 1 rank 0 holds expert 0 twice");
    gb_placement_layer_slots(&to, 1)[2] = -1;
    gb_placement_layer_slots(&to, 1)[0] = -1;
    CHECK_EQ(gb_server_migrate(server, &to, NULL, now(), &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "layer 1 source 0 sends expert 0 to slot 0, which does not hold it");
    CHECK_EQ(stats().moves_left, 0);
    CHECK_EQ(gb_server_placement(server)->version, 1);
    CHECK_EQ(gb_placement_check(gb_server_placement(server), NULL), GB_OK);
    stop();
}

static char said[512];

static void keep(void *self, gb_log_level level, const char *line)
{
    (void)self, (void)level;
    snprintf(said, sizeof said, "%s", line);
}

static void a_migration_that_stalls_is_cancelled_and_reported(void)
{
    start_private();
    gb_trade_slots(&to, 0, 0, 7);
    CHECK(gb_server_deadline(server) == GB_NEVER);
    CHECK_EQ(gb_server_migrate(server, &to, NULL, gb_seconds(1), NULL), GB_OK);
    CHECK_EQ(gb_server_deadline(server), gb_seconds(31));
    CHECK(gb_server_poll_copies(server, &list));
    gb_log_set_sink(keep, NULL, GB_LOG_WARN);
    gb_server_tick(server, gb_seconds(30));
    CHECK_STR(said, "");
    gb_server_tick(server, gb_seconds(31));
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
    CHECK_CONTAINS(said, "cancelled with 2 moves left");
    CHECK_CONTAINS(said, "not back");
    CHECK_EQ(stats().migrations_stalled, 1);
    CHECK_EQ(stats().moves_left, 0);
    CHECK(gb_server_deadline(server) == GB_NEVER);
    stop();
}

TESTS(TEST(windows_end_in_better_placements_while_requests_are_served), TEST(nothing_moves_where_nothing_is_gained),
      TEST(a_policy_can_place_instead_of_the_built_in_search), TEST(bad_placements_are_refused_in_words_and_nothing_changes),
      TEST(no_decision_is_made_while_experts_move_an_engine_is_down_or_the_server_drains), TEST(an_idle_server_moves_experts_without_rounds), TEST(the_placement_of_a_round_in_flight_stays_as_it_is),
      TEST(rounds_go_on_while_copies_are_out), TEST(beside_a_round_goes_one_list_of_copies), TEST(a_draining_server_leaves_experts_where_they_are), TEST(forced_migrations_move_two_experts_of_every_layer_every_so_many_rounds),
      TEST(ranks_that_share_memory_move_experts_without_bytes), TEST(a_failed_copy_ends_the_migration_and_the_next_one_works),
      TEST(an_engine_that_goes_down_ends_the_migration), TEST(a_migration_can_be_cancelled_and_one_runs_at_a_time),
      TEST(a_bad_placement_is_refused), TEST(a_migration_that_stalls_is_cancelled_and_reported))
