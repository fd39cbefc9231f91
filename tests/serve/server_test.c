#include "core/serve/server.h"

#include "tests/check.h"
#include "tests/serve/fake.h"
#include "tests/serve/fake_text.h"

static fake f;
static gb_server *server;

static void start(const gb_server_options *options)
{
    gb_error err = {{0}};
    fake_init(&f, options);
    CHECK_EQ(gb_server_new(&server, options, &err), GB_OK);
    CHECK_STR(err.text, "");
}

static void stop(void)
{
    gb_server_check(server);
    gb_server_free(server);
    fake_deinit(&f);
}

static void start_default(void)
{
    gb_server_options o;
    fake_options(&o);
    start(&o);
}

static void a_request_walks_from_submit_to_done(void)
{
    gb_event event;
    start_default();
    gb_request request = fake_request(40, 3);
    request.tag = 77;
    gb_request_id id = fake_submit(server, &request, gb_ms(10));
    CHECK(fake_round(&f, server, gb_ms(20), gb_ms(30)));
    CHECK(fake_round(&f, server, gb_ms(30), gb_ms(40)));
    CHECK(fake_round(&f, server, gb_ms(40), gb_ms(50)));
    CHECK(!fake_round(&f, server, gb_ms(50), gb_ms(60)));
    int32_t known[43];
    memcpy(known, request.tokens, 40 * sizeof *known);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(gb_server_poll_event(server, &event));
        CHECK_EQ(event.kind, GB_EVENT_TOKEN);
        CHECK(event.id == id);
        CHECK_EQ(event.tag, 77);
        CHECK_EQ(event.index, i);
        CHECK_EQ(event.at, gb_ms(30 + 10 * i));
        known[40 + i] = fake_token(&f.options, known, 40 + i, 1);
        CHECK_EQ(event.token, known[40 + i]);
    }
    CHECK(gb_server_poll_event(server, &event));
    CHECK_EQ(event.kind, GB_EVENT_DONE);
    CHECK_EQ(event.finish, GB_FINISH_LENGTH);
    CHECK_EQ(event.usage.prompt_tokens, 40);
    CHECK_EQ(event.usage.completion_tokens, 3);
    CHECK_EQ(event.timings.queued, gb_ms(10));
    CHECK_EQ(event.timings.prefill, gb_ms(10));
    CHECK_EQ(event.timings.decode, gb_ms(20));
    CHECK_EQ(event.timings.total, gb_ms(40));
    CHECK(!gb_server_poll_event(server, &event));
    stop();
}


/* --- helpers --- */

typedef struct seen {
    uint32_t tokens, ends;
    int32_t token[256];
    gb_event end;
} seen;

/* Takes every event; counts those of one request. */
static seen drain_events(gb_request_id id)
{
    seen s = {0};
    gb_event event;
    while (gb_server_poll_event(server, &event)) {
        if (event.id != id) continue;
        if (event.kind == GB_EVENT_TOKEN) s.token[s.tokens++] = event.token;
        else s.ends++, s.end = event;
    }
    return s;
}

static gb_request_info info_of(gb_request_id id)
{
    uint32_t cursor = 0;
    gb_request_info info;
    while (gb_server_request_next(server, &cursor, &info))
        if (info.id == id) return info;
    return (gb_request_info){0};
}

static gb_server_stats stats(void)
{
    gb_server_stats s;
    gb_server_stats_get(server, &s);
    return s;
}

static gb_time clock_ms = 1;

static bool step(void)
{
    clock_ms += 10;
    bool did = fake_round(&f, server, gb_ms(clock_ms - 10), gb_ms(clock_ms));
    gb_server_check(server);
    return did;
}

/* Rounds until nobody is left; what came for one request. */
static seen finish_all(gb_request_id id)
{
    seen all = {0};
    for (bool more = true; more;) {
        more = step();
        seen s = drain_events(id);
        for (uint32_t i = 0; i < s.tokens; i++) all.token[all.tokens++] = s.token[i];
        if (s.ends) all.end = s.end;
        all.ends += s.ends;
    }
    return all;
}

static void start_with(uint32_t engines, uint32_t blocks, uint32_t seqs)
{
    gb_server_options o;
    fake_options(&o);
    o.engines = engines;
    o.blocks_per_engine = blocks;
    o.max_num_seqs = seqs;
    clock_ms = 1;
    start(&o);
}

static gb_time now(void) { return gb_ms(clock_ms); }

static gb_request_id submit(uint32_t n_tokens, uint32_t max_tokens)
{
    gb_request request = fake_request(n_tokens, max_tokens);
    return fake_submit(server, &request, now());
}

/* --- refusals --- */

static void a_full_server_refuses_until_an_end_was_polled(void)
{
    gb_request_id id, ids[32];
    gb_error err = {{0}};
    start_default();
    gb_request request = fake_request(4, 1);
    for (int i = 0; i < 32; i++) ids[i] = fake_submit(server, &request, 0);
    CHECK_EQ(gb_server_submit(server, &id, &request, 0, &err), GB_EFULL);
    CHECK_CONTAINS(err.text, "32 request slots");
    CHECK_EQ(gb_server_cancel(server, ids[3], 0), GB_OK);
    CHECK_EQ(gb_server_submit(server, &id, &request, 0, NULL), GB_EFULL);    /* its end is still to be told */
    CHECK_EQ(drain_events(ids[3]).ends, 1);
    CHECK_EQ(gb_server_submit(server, &id, &request, 0, NULL), GB_OK);
    CHECK_EQ(stats().accepted, 33);
    CHECK_EQ(stats().refused, 2);
    stop();
}

static void a_draining_server_refuses_new_requests_and_finishes_old_ones(void)
{
    gb_request_id id;
    start_default();
    gb_request request = fake_request(4, 2);
    gb_request_id old = fake_submit(server, &request, 0);
    gb_server_drain(server);
    CHECK(gb_server_draining(server));
    CHECK_EQ(gb_server_submit(server, &id, &request, 0, NULL), GB_EDRAINING);
    while (fake_round(&f, server, gb_ms(1), gb_ms(1)));
    CHECK_EQ(drain_events(old).end.kind, GB_EVENT_DONE);
    stop();
}

static void a_request_that_can_never_fit_is_refused_and_freezes_nobody(void)
{
    gb_request_id id;
    start_with(1, 4, 8);
    gb_request giant = fake_request(65, 1);
    CHECK_EQ(gb_server_submit(server, &id, &giant, now(), NULL), GB_ECONTEXT);
    gb_request_id small = submit(10, 2);
    while (step());
    CHECK_EQ(drain_events(small).end.kind, GB_EVENT_DONE);
    stop();
}

static void max_tokens_beyond_the_context_end_with_length(void)
{
    start_with(1, 64, 8);
    gb_request_id id = submit(250, UINT32_MAX);
    while (step());
    seen s = drain_events(id);
    CHECK_EQ(s.tokens, 6);
    CHECK_EQ(s.end.finish, GB_FINISH_LENGTH);
    stop();
}

/* --- cancelling --- */

static void cancelling_a_waiting_request_ends_it_at_once(void)
{
    start_with(1, 64, 8);
    gb_request_id id = submit(20, 5);
    CHECK_EQ(gb_server_cancel(server, id, now()), GB_OK);
    seen s = drain_events(id);
    CHECK_EQ(s.ends, 1);
    CHECK_EQ(s.end.kind, GB_EVENT_ABORTED);
    CHECK_EQ(s.end.timings.queued, 0);
    CHECK(!step());
    CHECK_EQ(stats().blocks_used, 0);
    CHECK_EQ(stats().aborted, 1);
    stop();
}

static void a_request_cancelled_before_any_trace_saw_it_leaves_no_pending_tokens(void)
{
    start_with(2, 64, 8);
    gb_request_id id = submit(20, 5);
    const double *pending = gb_server_tables(server)->engines.pending_tokens;
    CHECK_NEAR(pending[0] + pending[1], 20, 0);
    gb_server_cancel(server, id, now());
    CHECK_NEAR(pending[0] + pending[1], 0, 0);
    stop();
}

static void cancelling_between_rounds_frees_the_blocks_at_once(void)
{
    start_with(1, 64, 8);
    gb_request_id id = submit(200, 5);
    step();
    CHECK(stats().blocks_used > 0);
    CHECK_EQ(gb_server_cancel(server, id, now()), GB_OK);
    CHECK_EQ(stats().blocks_used, 0);
    CHECK_EQ(drain_events(id).ends, 1);
    stop();
}

static void cancelling_in_flight_tells_the_driver_which_work_to_drop_and_frees_the_blocks_when_it_returns(void)
{
    uint64_t seq;
    uint32_t engine, work;
    start_with(2, 64, 8);
    gb_request_id a = submit(30, 5), b = submit(30, 5), c = submit(30, 5);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    CHECK(!gb_server_poll_cancel(server, &seq, &engine, &work));
    CHECK_EQ(gb_server_cancel(server, c, now()), GB_OK);
    CHECK(gb_server_poll_cancel(server, &seq, &engine, &work));
    CHECK_EQ(seq, f.round.seq);
    CHECK(f.round.batches[engine].works[work].id == c);
    CHECK(!gb_server_poll_cancel(server, &seq, &engine, &work));
    CHECK_EQ(drain_events(c).end.kind, GB_EVENT_ABORTED);
    gb_server_check(server);
    uint32_t held = stats().blocks_used;
    fake_drop(&f, engine, work);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    gb_server_check(server);
    CHECK_EQ(stats().blocks_used, held - 2);
    CHECK_EQ(drain_events(c).ends, 0);
    while (step());
    CHECK_EQ(stats().finished, 2);
    CHECK_EQ(stats().blocks_used, 0);
    (void)a, (void)b;
    stop();
}

static void a_round_that_ignores_the_cancel_changes_nothing(void)
{
    uint64_t seq;
    uint32_t engine, work;
    start_with(1, 64, 8);
    gb_request_id id = submit(30, 5);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    gb_server_cancel(server, id, now());
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    seen s = drain_events(id);
    CHECK_EQ(s.tokens, 0);
    CHECK_EQ(s.ends, 1);
    CHECK_EQ(stats().blocks_used, 0);
    CHECK(!gb_server_poll_cancel(server, &seq, &engine, &work));    /* that round is over */
    CHECK(!step());                                                  /* and no later one holds it */
    stop();
}

static void cancelling_twice_or_after_the_end_is_not_found(void)
{
    start_with(1, 64, 8);
    gb_request_id id = submit(4, 1);
    CHECK_EQ(gb_server_cancel(server, id + 1, now()), GB_ENOTFOUND);
    CHECK_EQ(gb_server_cancel(server, 0, now()), GB_ENOTFOUND);
    step();
    CHECK_EQ(gb_server_cancel(server, id, now()), GB_ENOTFOUND);    /* done, its end not yet polled */
    seen s = drain_events(id);
    CHECK_EQ(s.ends, 1);
    CHECK_EQ(s.end.kind, GB_EVENT_DONE);
    CHECK_EQ(gb_server_cancel(server, id, now()), GB_ENOTFOUND);
    stop();
}

static void cancelling_a_preempted_request_ends_it(void)
{
    start_with(1, 4, 8);
    gb_request_id old = submit(32, 20);
    gb_request_id young = submit(31, 20);
    step();
    step();
    CHECK_EQ(info_of(young).state, GB_PREEMPTED);
    CHECK_EQ(gb_server_cancel(server, young, now()), GB_OK);
    CHECK_EQ(drain_events(young).end.kind, GB_EVENT_ABORTED);
    CHECK_EQ(finish_all(old).end.kind, GB_EVENT_DONE);
    CHECK_EQ(stats().blocks_used, 0);
    stop();
}

static void a_slot_is_not_reused_while_a_round_holds_the_ended_request(void)
{
    gb_server_options o;
    gb_request_id next;
    fake_options(&o);
    o.engines = 1;
    o.queue_capacity = 1;
    start(&o);
    gb_request_id id = submit(4, 3);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    gb_server_cancel(server, id, now());
    drain_events(id);
    gb_request request = fake_request(4, 1);
    CHECK_EQ(gb_server_submit(server, &next, &request, now(), NULL), GB_EFULL);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(gb_server_submit(server, &next, &request, now(), NULL), GB_OK);
    CHECK(next != id);
    stop();
}

/* --- time --- */

static void a_deadline_fails_a_waiting_request(void)
{
    start_default();
    gb_request request = fake_request(4, 2);
    request.deadline = gb_ms(50);
    gb_request_id id = fake_submit(server, &request, 0);
    CHECK_EQ(gb_server_deadline(server), gb_ms(50));
    gb_server_tick(server, gb_ms(50) - 1);
    CHECK_EQ(drain_events(id).ends, 0);
    gb_server_tick(server, gb_ms(50));
    seen s = drain_events(id);
    CHECK_EQ(s.end.kind, GB_EVENT_FAILED);
    CHECK_EQ(s.end.status, GB_EDEADLINE);
    CHECK(gb_server_deadline(server) == GB_NEVER);
    stop();
}

static void a_deadline_fails_a_running_request_and_keeps_its_tokens_counted(void)
{
    start_default();
    gb_request request = fake_request(4, 100);
    request.deadline = gb_ms(35);
    gb_request_id id = fake_submit(server, &request, 0);
    for (gb_time t = 0; t < 100; t += 10) fake_round(&f, server, gb_ms(t), gb_ms(t + 10));
    seen s = drain_events(id);
    CHECK_EQ(s.tokens, 4);
    CHECK_EQ(s.end.kind, GB_EVENT_FAILED);
    CHECK_EQ(s.end.status, GB_EDEADLINE);
    CHECK_EQ(s.end.usage.completion_tokens, 4);
    CHECK_EQ(s.end.timings.total, gb_ms(40));
    stop();
}

static void queue_promotes_a_request_past_the_aging_threshold(void)
{
    gb_server_options o;
    fake_options(&o);
    o.engines = 1;
    o.max_num_seqs = 1;
    start(&o);
    gb_request longer = fake_request(60, 1), shorter;
    gb_request_id old = fake_submit(server, &longer, 0);
    shorter = fake_request(5, 1);
    gb_request_id young = fake_submit(server, &shorter, gb_seconds(5) - 1);
    CHECK_EQ(gb_server_deadline(server), gb_seconds(5));
    CHECK(gb_server_poll_round(server, &f.round, gb_seconds(5) - 1));    /* shortest first */
    CHECK(f.round.batches[0].works[0].id == young);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, gb_seconds(5) - 1);
    shorter = fake_request(5, 1);
    fake_submit(server, &shorter, gb_seconds(5));
    CHECK(gb_server_poll_round(server, &f.round, gb_seconds(5)));        /* waited 5 s */
    CHECK(f.round.batches[0].works[0].id == old);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, gb_seconds(5));
    CHECK_EQ(gb_server_deadline(server), gb_seconds(10));                 /* the next one's promotion */
    stop();
}

/* Short requests arrive for ever, faster than they are served: shortest-first alone would never take the long one. */
static void a_long_prompt_does_not_starve_under_shortest_first(void)
{
    gb_server_options o;
    fake_options(&o);
    o.engines = 1;
    o.max_num_seqs = 1;
    start(&o);
    gb_request request = fake_request(200, 1);
    gb_request_id longer = fake_submit(server, &request, 0);
    gb_time done = 0;
    for (gb_time t = 0; t < 8000 && !done; t += 100) {
        request = fake_request(5, 1);
        for (int i = 0; i < 2 && stats().live < 30; i++) fake_submit(server, &request, gb_ms(t));
        fake_round(&f, server, gb_ms(t), gb_ms(t + 100));
        if (drain_events(longer).ends) done = t;
    }
    CHECK(done >= 5000);
    CHECK(done <= 5500);
    stop();
}

/* --- rounds --- */

static void one_round_is_in_flight_at_a_time(void)
{
    gb_round other = {0};
    start_default();
    submit(4, 2);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    CHECK(!gb_server_poll_round(server, &other, now()));
    stop();
}

static void an_idle_engine_takes_part_with_an_empty_batch(void)
{
    start_with(2, 64, 8);
    submit(4, 2);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    CHECK_EQ(f.round.n_engines, 2);
    CHECK_EQ(f.round.batches[0].n_works, 1);
    CHECK_EQ(f.round.batches[1].n_works, 0);
    CHECK_EQ(f.round.batches[1].n_tokens, 0);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(gb_server_trace_seq(server, 0), 1);
    CHECK_EQ(gb_server_trace_seq(server, 1), 1);
    CHECK_NEAR(gb_server_tables(server)->engines.valid[1], 1, 0);
    stop();
}

static void every_round_carries_a_valid_placement(void)
{
    start_default();
    submit(4, 1);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    CHECK(f.round.placement == gb_server_placement(server));
    CHECK_EQ(gb_placement_check(f.round.placement, NULL), GB_OK);
    CHECK_EQ(f.round.placement->version, 1);
    stop();
}

static void a_failed_round_fails_its_requests_and_the_server_lives_on(void)
{
    start_with(1, 64, 2);
    gb_request_id a = submit(10, 5), b = submit(11, 5), waits = submit(12, 2);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    fake_run(&f, GB_EIO);
    gb_server_round_done(server, &f.result, now());
    gb_server_check(server);
    CHECK_EQ(stats().failed, 2);
    CHECK_EQ(stats().blocks_used, 0);
    seen s = drain_events(a);
    CHECK_EQ(s.end.kind, GB_EVENT_FAILED);
    CHECK_EQ(s.end.status, GB_EIO);
    while (step());
    CHECK_EQ(drain_events(waits).end.kind, GB_EVENT_DONE);
    (void)b;
    stop();
}

static void a_round_lost_with_its_engines_takes_them_down_until_they_are_up_again(void)
{
    gb_request_id id;
    gb_error err = {{0}};
    start_with(2, 64, 1);
    gb_request_id a = submit(10, 5), waits = submit(12, 2);
    submit(10, 5);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    fake_run(&f, GB_EDOWN);
    gb_server_round_done(server, &f.result, now());
    gb_server_check(server);
    CHECK_EQ(stats().failed, 3);
    CHECK_EQ(drain_events(waits).end.status, GB_EDOWN);
    gb_request request = fake_request(4, 1);
    CHECK_EQ(gb_server_submit(server, &id, &request, now(), &err), GB_EDOWN);
    CHECK_CONTAINS(err.text, "2 engines are down");
    gb_server_engine_up(server, 1);
    CHECK_EQ(gb_server_submit(server, &id, &request, now(), NULL), GB_OK);
    CHECK_EQ(info_of(id).engine, 1);
    while (step());
    CHECK_EQ(drain_events(id).end.kind, GB_EVENT_DONE);
    (void)a;
    stop();
}

static void an_engine_that_goes_down_in_flight_keeps_its_blocks_until_the_round_returns(void)
{
    start_with(2, 64, 8);
    gb_request_id a = submit(40, 5), b = submit(40, 5);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    gb_server_engine_down(server, 0, now());
    gb_server_check(server);
    CHECK_EQ(stats().failed, 1);
    CHECK_EQ(stats().blocks_used, 6);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(stats().blocks_used, 3);
    while (step());
    CHECK_EQ(stats().finished, 1);
    CHECK_NEAR(gb_server_tables(server)->engines.healthy[0], 0, 0);
    (void)a, (void)b;
    stop();
}

static void a_missing_token_fails_that_request_only(void)
{
    start_with(1, 64, 8);
    gb_request_id bad = submit(10, 5), good = submit(11, 2);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    fake_run(&f, GB_OK);
    for (uint32_t w = 0; w < 2; w++)
        if (f.round.batches[0].works[w].id == bad) f.result.sampled[0][w].token = w == 0 ? -1 : 100;
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(stats().failed, 1);
    while (step());
    CHECK_EQ(drain_events(good).end.kind, GB_EVENT_DONE);
    stop();
}

static void a_work_dropped_by_the_executor_is_planned_again(void)
{
    start_with(1, 64, 8);
    gb_request_id id = submit(40, 2);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    fake_drop(&f, 0, 0);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(info_of(id).computed_tokens, 0);
    while (step());
    CHECK_EQ(drain_events(id).tokens, 2);
    stop();
}

static void no_round_starts_while_events_are_not_taken(void)
{
    gb_event event;
    start_with(1, 64, 2);
    submit(4, 100);
    submit(4, 100);
    int rounds = 0;
    while (step()) rounds++;
    CHECK_EQ(rounds, 2);                               /* two rounds of two tokens fit */
    CHECK(gb_server_poll_event(server, &event));
    CHECK(!step());                                    /* lent */
    CHECK(gb_server_poll_event(server, &event));
    CHECK(!step());
    CHECK(gb_server_poll_event(server, &event));       /* one round's tokens are left */
    CHECK(step());
    stop();
}

/* --- preemption --- */

static void a_preempted_request_keeps_its_tokens_and_gives_the_same_ones_as_alone(void)
{
    start_with(1, 4, 8);
    gb_request_id old = submit(32, 20), young = submit(31, 25);
    int32_t known[31 + 25];
    gb_request request = fake_request(31, 25);
    memcpy(known, request.tokens, 31 * sizeof *known);
    for (int i = 0; i < 2; i++) step();
    CHECK_EQ(info_of(young).state, GB_PREEMPTED);
    CHECK_EQ(info_of(young).generated_tokens, 1);
    CHECK_EQ(info_of(young).computed_tokens, 0);
    seen all = finish_all(young);
    CHECK_EQ(all.tokens, 25);
    CHECK_EQ(all.end.kind, GB_EVENT_DONE);
    for (uint32_t i = 0; i < 25; i++) {
        known[31 + i] = fake_token(&f.options, known, 31 + i, 1);
        CHECK_EQ(all.token[i], known[31 + i]);
    }
    (void)old;
    stop();
}

static void the_last_request_left_is_never_stuck(void)
{
    start_with(1, 4, 8);
    gb_request_id id = submit(30, 35);    /* ends with every block in use */
    CHECK_EQ(finish_all(id).tokens, 35);
    CHECK_EQ(stats().preempted, 0);
    stop();
}

static void everybody_finishes_in_a_cache_far_too_small_for_all(void)
{
    start_with(1, 6, 8);
    for (uint32_t i = 0; i < 12; i++) submit(20 + i, 40);
    finish_all(0);
    CHECK_EQ(stats().finished, 12);
    CHECK(stats().preempted > 0);
    stop();
}

/* --- what it reports --- */

static void seeds_of_the_server_differ_between_requests_and_repeat_with_the_server(void)
{
    uint64_t seeds[2][3];
    for (int run = 0; run < 2; run++) {
        start_with(1, 64, 8);
        for (int i = 0; i < 3; i++) {
            gb_request request = fake_request(4, 1);
            fake_sampling(&request)->has_seed = false;
            fake_submit(server, &request, now());
        }
        CHECK(gb_server_poll_round(server, &f.round, now()));
        for (int i = 0; i < 3; i++) seeds[run][i] = f.round.batches[0].works[i].sampling->seed;
        stop();
    }
    CHECK(seeds[0][0] != seeds[0][1] && seeds[0][1] != seeds[0][2]);
    CHECK(memcmp(seeds[0], seeds[1], sizeof seeds[0]) == 0);
}

static void windows_hold_the_counts_of_their_rounds(void)
{
    uint64_t id, b[16];
    gb_time from, to;
    start_with(2, 64, 8);
    submit(30, 6);
    submit(20, 6);
    for (int i = 0; i < 4; i++) step();                /* window_rounds */
    const gb_matrix *a = gb_server_window(server, false, &id, &from, &to);
    CHECK_EQ(id, 1);
    CHECK_EQ(from, gb_ms(1));
    CHECK_EQ(to, gb_ms(41));
    gb_matrix_sum_sources(a, b);
    for (int i = 0; i < 16; i++) CHECK_EQ(b[i], f.b[i]);
    step();
    gb_server_window(server, true, &id, &from, &to);
    CHECK_EQ(id, 2);
    CHECK_EQ(from, gb_ms(41));
    stop();
}

static void a_failed_round_loses_the_counts_of_its_window_and_no_other(void)
{
    uint64_t id, b[16];
    gb_time from, to;
    uint32_t counted;
    start_with(2, 64, 8);                              /* 4 rounds a window */
    submit(30, 10);
    for (int i = 0; i < 6; i++) step();
    CHECK(gb_server_poll_round(server, &f.round, now()));
    fake_run(&f, GB_EIO);
    gb_server_round_done(server, &f.result, now());
    const gb_matrix *a = gb_server_window(server, true, &id, &from, &to);
    CHECK_EQ(id, 2);
    CHECK_EQ(gb_server_window_rounds(server, true, &counted), 0);
    for (size_t i = 0; i < gb_matrix_cells(a); i++) CHECK_EQ(a->counts[i], 0);
    submit(20, 6);
    for (int i = 0; i < 4; i++) step();
    CHECK_EQ(gb_server_window_rounds(server, false, &counted), 4);
    gb_matrix_sum_sources(gb_server_window(server, false, &id, &from, &to), b);
    CHECK_EQ(id, 2);
    uint64_t sum = 0;
    for (int i = 0; i < 16; i++) sum += b[i];
    CHECK_EQ(sum, (20 + 3) * 2 * 2);                   /* positions of 4 rounds, 2 layers, 2 experts each */
    stop();
}

static void counts_are_due_with_the_round_that_closes_a_window(void)
{
    uint64_t id;
    gb_time from, to;
    uint32_t counted;
    gb_server_options o;
    fake_options(&o);
    o.window_rounds = 100;
    o.window_longest = gb_ms(25);
    start(&o);
    f.keeps_counts = true;
    submit(30, 20);
    for (int i = 0; i < 12; i++) {
        CHECK(gb_server_poll_round(server, &f.round, now()));
        CHECK_EQ(f.round.counts_due, i % 4 == 3);      /* rounds of 10 ms: the fourth begins when 30 ms are over */
        fake_run(&f, GB_OK);
        clock_ms += 10;
        gb_server_round_done(server, &f.result, now());
    }
    gb_server_window(server, false, &id, &from, &to);
    CHECK_EQ(id, 3);
    step();
    CHECK_EQ(gb_server_window_rounds(server, true, &counted), 1);
    CHECK_EQ(counted, 0);
    stop();
}

static void the_pressure_of_an_engine_follows_the_tokens_on_its_ranks(void)
{
    start_with(2, 64, 8);
    submit(30, 6);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    fake_run(&f, GB_OK);
    for (int r = 0; r < 4; r++) f.result.rank_tokens[r] = r < 2 ? 30 : 10;
    gb_server_round_done(server, &f.result, now());
    CHECK_NEAR(gb_server_tables(server)->engines.moe_pressure[0], 1.5, 1e-12);
    CHECK_NEAR(gb_server_tables(server)->engines.moe_pressure[1], 0.5, 1e-12);
    stop();
}

static void traces_get_old_only_while_something_is_in_flight(void)
{
    gb_request_id id;
    start_with(2, 64, 8);
    submit(4, 50);
    step();
    gb_request request = fake_request(4, 1);
    const gb_engine_table *t = &gb_server_tables(server)->engines;
    gb_server_submit(server, &id, &request, now() + gb_seconds(3), NULL);
    CHECK_NEAR(t->age_ns[0], 0, 0);
    CHECK_EQ(stats().ordered_dispatches, 1);           /* the very first: no trace existed */
    CHECK(gb_server_poll_round(server, &f.round, now() + gb_seconds(3)));
    gb_server_submit(server, &id, &request, now() + gb_seconds(6), NULL);
    CHECK_NEAR(t->age_ns[0], 6e9, 0);
    CHECK_EQ(stats().ordered_dispatches, 2);
    stop();
}

static void a_request_is_listed_in_the_state_it_is_in(void)
{
    start_with(1, 64, 1);
    gb_request request = fake_request(100, 3);
    request.tag = 5;
    request.priority = -2;
    gb_request_id a = fake_submit(server, &request, now()), b = submit(120, 3);
    step();
    gb_request_info info = info_of(a);
    CHECK_EQ(info.state, GB_RUNNING);
    CHECK_EQ(info.tag, 5);
    CHECK_EQ(info.priority, -2);
    CHECK_EQ(info.prompt_tokens, 100);
    CHECK_EQ(info.computed_tokens, 64);
    CHECK_EQ(info.max_tokens, 3);
    CHECK_EQ(info_of(b).state, GB_WAITING);
    CHECK_EQ(stats().running, 1);
    CHECK_EQ(stats().waiting, 1);
    CHECK_EQ(stats().live, 2);
    stop();
}

static void stop_ids_and_end_tokens_end_a_request(void)
{
    gb_server_options o;
    gb_request request = fake_request(9, 50);
    fake_options(&o);
    int32_t next = fake_token(&o, request.tokens, 9, 1);
    o.n_end_ids = 1;
    o.end_ids[0] = next;
    start(&o);
    gb_request_id ends = fake_submit(server, &request, 0);
    fake_round(&f, server, 1, 2);
    seen s = drain_events(ends);
    CHECK_EQ(s.tokens, 1);                             /* the end token is part of the tokens */
    CHECK_EQ(s.end.finish, GB_FINISH_STOP);
    CHECK_EQ(s.end.stop_token, next);
    CHECK_EQ(s.end.stop_string, -1);
    fake_sampling(&request)->ignore_eos = true;
    gb_request_id ignores = fake_submit(server, &request, 3);
    fake_round(&f, server, 3, 4);
    CHECK_EQ(drain_events(ignores).ends, 0);
    gb_server_cancel(server, ignores, 5);
    fake_sampling(&request)->n_stop_ids = 1;
    fake_sampling(&request)->stop_ids[0] = next;
    gb_request_id stops = fake_submit(server, &request, 6);
    fake_round(&f, server, 6, 7);
    CHECK_EQ(drain_events(stops).end.stop_token, next);
    stop();
}

static void text_streams_with_the_tokens_and_a_stop_string_ends_it(void)
{
    gb_server_options o;
    gb_event event;
    char text[64] = "", expected[6];
    int32_t known[9 + 5];
    uint32_t tokens = 0;
    gb_request request = fake_request(9, 50);
    fake_options(&o);
    o.tokenizer = fake_tokenizer(NULL, NULL);          /* an id is its byte */
    memcpy(known, request.tokens, 9 * sizeof *known);
    for (uint32_t i = 0; i < 5; i++) {
        known[9 + i] = fake_token(&o, known, 9 + i, 1);
        expected[i] = (char)known[9 + i];
    }
    fake_sampling(&request)->n_stop_strings = 1;
    fake_sampling(&request)->stop_string_bytes[0] = 2;
    memcpy(fake_sampling(&request)->stop_strings[0], expected + 3, 2);
    start(&o);
    fake_submit(server, &request, 0);
    for (bool more = true; more;) {
        more = fake_round(&f, server, 1, 1);
        while (gb_server_poll_event(server, &event)) {
            strncat(text, event.text, event.text_bytes);
            tokens += event.kind == GB_EVENT_TOKEN;
        }
    }
    expected[3] = 0;
    CHECK_STR(text, expected);
    CHECK_EQ(tokens, 5);
    CHECK_EQ(event.kind, GB_EVENT_DONE);
    CHECK_EQ(event.finish, GB_FINISH_STOP);
    CHECK_EQ(event.stop_string, 0);
    stop();
    gb_tokenizer_free((gb_tokenizer *)o.tokenizer);
}

static void min_tokens_bans_ends_until_they_are_there(void)
{
    gb_server_options o;
    gb_request request = fake_request(9, 50);
    fake_options(&o);
    o.n_end_ids = 1;
    o.end_ids[0] = fake_token(&o, request.tokens, 9, 1);
    start(&o);
    fake_sampling(&request)->min_tokens = 5;
    gb_request_id id = fake_submit(server, &request, 0);
    for (int i = 0; i < 5; i++) fake_round(&f, server, 1, 1);
    seen s = drain_events(id);
    CHECK_EQ(s.tokens, 5);
    CHECK_EQ(s.ends, 0);
    stop();
}

static void logprobs_travel_with_the_token_that_asked_for_them(void)
{
    gb_event event;
    start_default();
    gb_request request = fake_request(9, 1);
    fake_sampling(&request)->logprobs = 0;
    fake_submit(server, &request, 0);
    fake_round(&f, server, 1, 2);
    CHECK(gb_server_poll_event(server, &event));
    CHECK(event.logprobs && event.logprobs->chosen == -(float)event.token);
    CHECK(gb_server_poll_event(server, &event));
    CHECK(event.logprobs == NULL);
    stop();
}

/* --- policies --- */

static int select_calls, order_calls;

static int always_one(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time t)
{
    (void)self, (void)request, (void)engines, (void)t;
    select_calls++;
    return 1;
}

static int longest_first(void *self, gb_queue_table *queue, gb_time t)
{
    (void)self, (void)t;
    order_calls++;
    for (uint32_t i = 0; i < queue->n; i++) queue->key[i] = -queue->prefill_tokens[i];
    return 0;
}

static void a_policy_decides_from_the_moment_it_is_set_until_it_is_replaced(void)
{
    gb_policy policy = {.name = "one", .version = 3, .select_engine = always_one};
    start_with(2, 64, 8);
    CHECK_STR(gb_server_policy(server, GB_HOOK_SELECT)->name, "builtin");
    CHECK_EQ(gb_server_policy(server, GB_HOOK_SELECT)->version, 0);
    gb_server_set_policy(server, GB_HOOK_SELECT, &policy);
    CHECK_EQ(gb_server_policy(server, GB_HOOK_SELECT)->version, 3);
    select_calls = 0;
    for (int i = 0; i < 4; i++) CHECK_EQ(info_of(submit(4, 1)).engine, 1);
    CHECK_EQ(select_calls, 4);
    gb_server_set_policy(server, GB_HOOK_SELECT, NULL);
    CHECK_STR(gb_server_policy(server, GB_HOOK_SELECT)->name, "builtin");
    CHECK_EQ(info_of(submit(4, 1)).engine, 0);
    CHECK_EQ(select_calls, 4);
    CHECK_EQ(stats().hooks[GB_HOOK_SELECT].calls, 5);
    stop();
}

static void the_order_hook_is_asked_once_a_round_and_only_for_a_line_that_changed_or_aged(void)
{
    gb_policy policy = {.name = "longest", .order_queue = longest_first};
    gb_server_options o;
    fake_options(&o);
    o.engines = 1;
    o.max_batched_tokens = 300;
    o.blocks_per_engine = 8;
    start(&o);
    clock_ms = 1;
    order_calls = 0;
    submit(100, 20);
    step();                                            /* 7 of 8 blocks are taken */
    gb_server_set_policy(server, GB_HOOK_ORDER, &policy);
    submit(30, 2);
    submit(40, 2);
    step();
    CHECK_EQ(order_calls, 1);
    step();
    CHECK_EQ(order_calls, 1);                          /* nothing changed */
    clock_ms = 5100;
    step();
    CHECK_EQ(order_calls, 2);                          /* both were promoted */
    step();
    CHECK_EQ(order_calls, 2);
    gb_server_set_policy(server, GB_HOOK_ORDER, NULL);
    gb_server_set_policy(server, GB_HOOK_ORDER, &policy);
    step();
    CHECK_EQ(order_calls, 3);                          /* another policy, another order */
    stop();
}

static void a_new_order_policy_reorders_those_who_wait_already(void)
{
    gb_policy policy = {.name = "longest", .order_queue = longest_first};
    start_with(1, 64, 1);
    submit(4, 2);
    step();
    gb_request_id shorter = submit(10, 1), longer = submit(20, 1);
    gb_server_set_policy(server, GB_HOOK_ORDER, &policy);
    step();
    drain_events(0);
    step();
    CHECK_EQ(info_of(shorter).state, GB_WAITING);
    CHECK_EQ(drain_events(longer).end.kind, GB_EVENT_DONE);
    stop();
}

/* --- memory --- */

static void ten_thousand_requests_leave_the_memory_as_it_was(void)
{
    start_with(2, 64, 8);
    size_t used = server->arena.used_bytes;
    uint32_t highest = 0;
    for (int i = 0; i < 10000; i++) {
        gb_request_id id = submit(4, 1);
        if ((uint32_t)id > highest) highest = (uint32_t)id;
        clock_ms++;
        fake_round(&f, server, now(), now());
        drain_events(id);
    }
    CHECK_EQ(server->arena.used_bytes, used);
    CHECK_EQ(highest, 0);
    CHECK_EQ(stats().finished, 10000);
    stop();
}

/* --- the prefix cache --- */

static double seen_cached[4];

static int note_cached_and_take_the_second(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time at)
{
    (void)self, (void)request, (void)at;
    for (uint32_t e = 0; e < engines->n; e++) seen_cached[e] = engines->cached_tokens[e];
    return 1;
}

static int note_cached_of_the_queue(void *self, gb_queue_table *queue, gb_time at)
{
    (void)self, (void)at;
    for (uint32_t i = 0; i < queue->n; i++) {
        queue->key[i] = i;
        seen_cached[i] = queue->cached_tokens[i];
    }
    return 0;
}

static void a_prompt_seen_before_is_not_computed_again_and_gives_the_same_tokens(void)
{
    start_with(1, 64, 8);
    seen first = finish_all(submit(50, 6));
    uint64_t computed = f.computed;
    CHECK_EQ(computed, 55);
    CHECK_EQ(first.end.usage.cached_tokens, 0);
    seen again = finish_all(submit(50, 6));
    CHECK_EQ(again.end.usage.prompt_tokens, 50);
    CHECK_EQ(again.end.usage.cached_tokens, 48);
    CHECK_EQ(f.computed - computed, 7);
    CHECK_EQ(again.tokens, 6);
    CHECK(memcmp(first.token, again.token, sizeof first.token) == 0);
    CHECK_EQ(stats().cached_tokens, 48);
    CHECK_EQ(stats().blocks_cached, 3);
    stop();
}

static void without_prefix_caching_every_prompt_is_computed(void)
{
    gb_server_options o;
    fake_options(&o);
    o.prefix_caching = false;
    start(&o);
    finish_all(submit(50, 6));
    finish_all(submit(50, 6));
    CHECK_EQ(f.computed, 110);
    CHECK_EQ(stats().cached_tokens, 0);
    stop();
}

/* A conversation: the prompt is what the first request was given and answered, and goes on. */
static void an_answer_is_cached_too(void)
{
    int32_t text[90];
    start_with(1, 64, 8);
    gb_request request = fake_request(40, 25);
    memcpy(text, request.tokens, 40 * sizeof *text);
    seen answer = finish_all(fake_submit(server, &request, now()));
    memcpy(text + 40, answer.token, 25 * sizeof *text);
    for (int i = 65; i < 90; i++) text[i] = i;
    request = fake_request(90, 2);
    request.tokens = text;
    seen next = finish_all(fake_submit(server, &request, now()));
    CHECK_EQ(next.end.usage.cached_tokens, 64);
    CHECK_EQ(next.token[0], fake_token(&f.options, text, 90, 1));
    stop();
}

static void the_select_hook_sees_what_each_engine_has_of_the_prompt(void)
{
    gb_policy policy = {.name = "note", .select_engine = note_cached_and_take_the_second};
    start_with(2, 64, 8);
    gb_server_set_policy(server, GB_HOOK_SELECT, &policy);
    finish_all(submit(50, 2));
    CHECK_NEAR(seen_cached[1], 0, 0);
    finish_all(submit(50, 2));
    CHECK_NEAR(seen_cached[0], 0, 0);
    CHECK_NEAR(seen_cached[1], 48, 0);
    stop();
}

static void the_order_hook_sees_what_its_engine_has_of_each_request(void)
{
    gb_policy policy = {.name = "note", .order_queue = note_cached_of_the_queue};
    start_with(1, 64, 8);
    finish_all(submit(50, 2));
    gb_server_set_policy(server, GB_HOOK_ORDER, &policy);
    submit(49, 2);
    submit(50, 2);
    step();
    CHECK_NEAR(seen_cached[0], 0, 0);
    CHECK_NEAR(seen_cached[1], 48, 0);
    stop();
}

static void what_only_the_cache_keeps_is_not_in_use(void)
{
    start_with(1, 10, 8);
    finish_all(submit(100, 2));
    const gb_engine_table *engines = &gb_server_tables(server)->engines;
    CHECK_EQ(stats().blocks_used, 0);
    CHECK_EQ(stats().blocks_cached, 6);
    CHECK_NEAR(engines->kv_used_ratio[0], 0, 0);
    CHECK_NEAR(engines->kv_free_tokens[0], 160, 0);
    seen other = finish_all(submit(150, 2));    /* takes blocks that were idle */
    CHECK_EQ(other.end.kind, GB_EVENT_DONE);
    CHECK_EQ(other.end.usage.cached_tokens, 0);
    CHECK_EQ(finish_all(submit(100, 2)).end.usage.cached_tokens, 0);
    stop();
}

/* Positions that two requests compute in a cache too small for both, with one preempted on the way. */
static uint64_t computed_under_pressure(bool prefix_caching)
{
    gb_server_options o;
    fake_options(&o);
    o.engines = 1;
    o.blocks_per_engine = 5;
    o.prefix_caching = prefix_caching;
    start(&o);
    submit(32, 20);
    finish_all(submit(31, 20));
    CHECK_EQ(stats().finished, 2);
    CHECK_EQ(stats().preempted, 1);
    CHECK_EQ(stats().cached_tokens, 0);
    uint64_t computed = f.computed;
    stop();
    return computed;
}

static void a_preempted_request_finds_its_own_text_again(void)
{
    uint64_t anew = computed_under_pressure(false), again = computed_under_pressure(true);
    CHECK(again <= anew - GB_BLOCK_TOKENS);
}

static void a_work_that_was_cancelled_leaves_nothing_to_share(void)
{
    uint64_t seq;
    uint32_t engine, work;
    start_with(1, 64, 8);
    gb_request_id id = submit(50, 6);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    gb_server_cancel(server, id, now());
    CHECK(gb_server_poll_cancel(server, &seq, &engine, &work));
    fake_drop(&f, engine, work);
    fake_run(&f, GB_OK);
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(stats().blocks_cached, 0);
    CHECK_EQ(finish_all(submit(50, 6)).end.usage.cached_tokens, 0);
    stop();
}

static void a_failed_round_leaves_nothing_to_share(void)
{
    start_with(1, 64, 8);
    submit(50, 6);
    CHECK(gb_server_poll_round(server, &f.round, now()));
    fake_run(&f, GB_EIO);
    gb_server_round_done(server, &f.result, now());
    CHECK_EQ(stats().blocks_cached, 0);
    CHECK_EQ(finish_all(submit(50, 6)).end.usage.cached_tokens, 0);
    stop();
}

static void an_engine_that_comes_up_again_has_forgotten_everything(void)
{
    start_with(1, 64, 8);
    finish_all(submit(50, 6));
    CHECK_EQ(stats().blocks_cached, 3);
    gb_server_engine_down(server, 0, now());
    gb_server_engine_up(server, 0);
    CHECK_EQ(stats().blocks_cached, 0);
    CHECK_EQ(finish_all(submit(50, 6)).end.usage.cached_tokens, 0);
    stop();
}

TESTS(TEST(a_prompt_seen_before_is_not_computed_again_and_gives_the_same_tokens),
      TEST(without_prefix_caching_every_prompt_is_computed), TEST(an_answer_is_cached_too),
      TEST(the_select_hook_sees_what_each_engine_has_of_the_prompt),
      TEST(the_order_hook_sees_what_its_engine_has_of_each_request), TEST(what_only_the_cache_keeps_is_not_in_use),
      TEST(a_preempted_request_finds_its_own_text_again), TEST(a_work_that_was_cancelled_leaves_nothing_to_share),
      TEST(a_failed_round_leaves_nothing_to_share), TEST(an_engine_that_comes_up_again_has_forgotten_everything),
      TEST(a_request_walks_from_submit_to_done),
      TEST(a_full_server_refuses_until_an_end_was_polled),
      TEST(a_draining_server_refuses_new_requests_and_finishes_old_ones),
      TEST(a_request_that_can_never_fit_is_refused_and_freezes_nobody),
      TEST(max_tokens_beyond_the_context_end_with_length),
      TEST(cancelling_a_waiting_request_ends_it_at_once),
      TEST(a_request_cancelled_before_any_trace_saw_it_leaves_no_pending_tokens),
      TEST(cancelling_between_rounds_frees_the_blocks_at_once),
      TEST(cancelling_in_flight_tells_the_driver_which_work_to_drop_and_frees_the_blocks_when_it_returns),
      TEST(a_round_that_ignores_the_cancel_changes_nothing),
      TEST(cancelling_twice_or_after_the_end_is_not_found),
      TEST(cancelling_a_preempted_request_ends_it),
      TEST(a_slot_is_not_reused_while_a_round_holds_the_ended_request),
      TEST(a_deadline_fails_a_waiting_request),
      TEST(a_deadline_fails_a_running_request_and_keeps_its_tokens_counted),
      TEST(queue_promotes_a_request_past_the_aging_threshold),
      TEST(a_long_prompt_does_not_starve_under_shortest_first),
      TEST(one_round_is_in_flight_at_a_time),
      TEST(an_idle_engine_takes_part_with_an_empty_batch),
      TEST(every_round_carries_a_valid_placement),
      TEST(a_failed_round_fails_its_requests_and_the_server_lives_on),
      TEST(a_round_lost_with_its_engines_takes_them_down_until_they_are_up_again),
      TEST(an_engine_that_goes_down_in_flight_keeps_its_blocks_until_the_round_returns),
      TEST(a_missing_token_fails_that_request_only),
      TEST(a_work_dropped_by_the_executor_is_planned_again),
      TEST(no_round_starts_while_events_are_not_taken),
      TEST(a_preempted_request_keeps_its_tokens_and_gives_the_same_ones_as_alone),
      TEST(the_last_request_left_is_never_stuck),
      TEST(everybody_finishes_in_a_cache_far_too_small_for_all),
      TEST(seeds_of_the_server_differ_between_requests_and_repeat_with_the_server),
      TEST(windows_hold_the_counts_of_their_rounds),
      TEST(a_failed_round_loses_the_counts_of_its_window_and_no_other), TEST(counts_are_due_with_the_round_that_closes_a_window),
      TEST(the_pressure_of_an_engine_follows_the_tokens_on_its_ranks),
      TEST(traces_get_old_only_while_something_is_in_flight),
      TEST(a_request_is_listed_in_the_state_it_is_in),
      TEST(stop_ids_and_end_tokens_end_a_request),
      TEST(text_streams_with_the_tokens_and_a_stop_string_ends_it),
      TEST(min_tokens_bans_ends_until_they_are_there),
      TEST(logprobs_travel_with_the_token_that_asked_for_them),
      TEST(a_policy_decides_from_the_moment_it_is_set_until_it_is_replaced),
      TEST(the_order_hook_is_asked_once_a_round_and_only_for_a_line_that_changed_or_aged),
      TEST(a_new_order_policy_reorders_those_who_wait_already),
      TEST(ten_thousand_requests_leave_the_memory_as_it_was))
