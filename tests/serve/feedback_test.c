/* The paper's feedback edge, from the ranks back to dispatch: tokens that arrive at an engine's ranks -> pressure -> trace -> selection. */
#include "core/serve/server.h"

#include "tests/check.h"
#include "tests/serve/fake.h"

enum { ROUNDS = 48, SETTLED = 8 };    /* rounds of a phase, and those before its traces are known */

static fake f;
static gb_server *server;
static gb_server_options options;
static gb_pressure_params params;
static gb_time clock_ms;

static void start(double w_moe)
{
    fake_options(&options);
    options.prefix_caching = false;    /* all prompts are alike: nothing else is to draw them */
    fake_init(&f, &options);
    CHECK_EQ(gb_server_new(&server, &options, NULL), GB_OK);
    gb_pressure_params_default(&params);
    params.w_moe = w_moe;
    gb_policy policy = {.name = "gimbal", .self = &params, .select_engine = gb_builtin_select};
    gb_server_set_policy(server, GB_HOOK_SELECT, &policy);
    clock_ms = 1;
}

static void stop(void)
{
    gb_server_free(server);
    fake_deinit(&f);
}

static gb_time now(void) { return gb_ms(++clock_ms); }

/* Other tokens than these requests' keep the ranks of engine 0 (0 and 1) so many times as busy as those of engine 1. */
static void load_ranks(uint64_t times)
{
    for (uint32_t r = 0; r < options.ranks; r++) f.result.rank_tokens[r] = r < 2 ? 1000 * times : 1000;
}

/* One short request a round; how many of them engine 0 gets once the traces know. */
static uint32_t requests_to_engine_0(uint64_t times)
{
    uint32_t taken = 0;
    for (int round = 0; round < ROUNDS; round++) {
        gb_event event;
        gb_request_info info;
        uint32_t cursor = 0;
        gb_request request = fake_request(20, 1);
        fake_submit(server, &request, now());
        CHECK(gb_server_request_next(server, &cursor, &info));
        taken += round >= SETTLED && info.engine == 0;
        CHECK(gb_server_poll_round(server, &f.round, now()));
        fake_run(&f, GB_OK);
        load_ranks(times);
        gb_server_round_done(server, &f.result, now());
        while (gb_server_poll_event(server, &event)) CHECK(event.kind != GB_EVENT_FAILED);
    }
    return taken;
}

static void without_feedback_an_engine_whose_ranks_are_loaded_keeps_getting_requests(void)
{
    start(0);
    CHECK_EQ(requests_to_engine_0(3), (ROUNDS - SETTLED) / 2);
    stop();
}

static void with_feedback_an_engine_whose_ranks_are_loaded_gets_no_more_requests(void)
{
    start(2048);
    CHECK_EQ(requests_to_engine_0(3), 0);
    stop();
}

static void an_engine_whose_ranks_are_relieved_gets_requests_again(void)
{
    start(2048);
    CHECK_EQ(requests_to_engine_0(1), (ROUNDS - SETTLED) / 2);
    CHECK_EQ(requests_to_engine_0(3), 0);
    requests_to_engine_0(1);    /* the pressure fades */
    CHECK_EQ(requests_to_engine_0(1), (ROUNDS - SETTLED) / 2);
    stop();
}

TESTS(TEST(without_feedback_an_engine_whose_ranks_are_loaded_keeps_getting_requests),
      TEST(with_feedback_an_engine_whose_ranks_are_loaded_gets_no_more_requests), TEST(an_engine_whose_ranks_are_relieved_gets_requests_again))
