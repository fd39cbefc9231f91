/* Storms: random requests, cancels, deadlines, tiny caches, slow readers, faulty policies swapped in the middle, failed rounds
   and engines that go down, all from one seed. Checkers run after every step; a failure prints the seed, and
   GB_STORM_SEED=N runs that storm alone. GB_STORM_SEEDS=N runs N of them. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "core/moe/trade.h"
#include "tests/check.h"
#include "tests/serve/fake.h"
#include "tests/serve/fake_text.h"

enum { TEXTS = 3, REQUESTS_MAX = 400, LENGTH_MAX = 128, CELLS_MAX = 16, STEPS = 300, SEEDS = 1500 };

/* What the storm knows about a request, from the outside. */
typedef struct shadow {
    gb_request_id id;
    uint32_t n_prompt, n_tokens, max_tokens;
    gb_sampling sampling;
    int32_t tokens[LENGTH_MAX];
    char text[LENGTH_MAX];      /* one byte a token: ids are bytes below 128 */
    uint32_t n_text;
    bool cancelled, ended, was_waiting;
    uint32_t overtaken;         /* by later arrivals while it was the oldest promoted request of its line */
} shadow;

typedef struct storm {
    uint64_t seed;
    gb_rng rng;
    gb_server_options options;
    fake fake;
    gb_server *server;
    gb_time now;
    gb_copy_list copies;
    bool copying;               /* the list is out */
    uint32_t placement_version; /* of the running round */
    bool in_flight, calm;       /* calm: no more requests and mishaps, let everybody finish */
    uint32_t n;
    shadow shadows[REQUESTS_MAX];
    uint64_t hash;
    uint64_t closed_id, *closed_b;    /* B of all closed windows */
    uint32_t token_events, ends;
    uint64_t preemptions, stop_strings, cached_tokens, migrations, experts_moved, rearrangements;
} storm;

static storm s;
static uint64_t running_seed;
static gb_tokenizer *tokenizer;

static uint64_t below(uint64_t n) { return gb_rng_below(&s.rng, n); }
static uint32_t between(uint32_t low, uint32_t high) { return low + (uint32_t)below(high - low + 1); }
static bool chance(uint32_t percent) { return below(100) < percent; }

#define STORM_CHECK(condition) \
    do { if (!(condition)) check_fail(__FILE__, __LINE__, "seed %llu: %s is false", (unsigned long long)s.seed, #condition); } while (0)

/* --- policies, good and bad --- */

static int odd_engine(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now)
{
    (void)self, (void)now;
    return (int)((uint64_t)request->prompt_tokens % (engines->n + 2)) - 1;    /* -1 .. n: nil, valid, out of range */
}

static int always_faulty_select(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now)
{
    (void)self, (void)request, (void)engines, (void)now;
    return GB_POLICY_FAULT;
}

static int longest_first(void *self, gb_queue_table *queue, gb_time now)
{
    (void)self, (void)now;
    for (uint32_t i = 0; i < queue->n; i++) queue->key[i] = -queue->prefill_tokens[i];
    return 0;
}

static int sometimes_nan(void *self, gb_queue_table *queue, gb_time now)
{
    (void)self, (void)now;
    for (uint32_t i = 0; i < queue->n; i++) queue->key[i] = queue->n % 3 == 0 && i == queue->n / 2 ? NAN : queue->wait_ns[i];
    return queue->n % 5 == 4 ? GB_POLICY_FAULT : 0;
}

static void swap_policy(void)
{
    static const gb_policy selects[] = {{.name = "odd", .select_engine = odd_engine}, {.name = "faulty", .select_engine = always_faulty_select},
                                        {.name = "empty"}};
    static const gb_policy orders[] = {{.name = "longest", .order_queue = longest_first}, {.name = "nan", .order_queue = sometimes_nan},
                                       {.name = "empty"}};
    uint32_t which = between(0, 3);
    if (chance(50)) gb_server_set_policy(s.server, GB_HOOK_SELECT, which < 3 ? &selects[which] : NULL);
    else gb_server_set_policy(s.server, GB_HOOK_ORDER, which < 3 ? &orders[which] : NULL);
}

/* --- requests --- */

static void fill_sampling(gb_sampling *sampling)
{
    gb_sampling_default(sampling);
    sampling->has_seed = true;
    sampling->seed = below(1000);
    sampling->max_tokens = chance(10) ? UINT32_MAX : between(1, 40);
    sampling->min_tokens = chance(20) ? between(0, sampling->max_tokens < 8 ? sampling->max_tokens : 8) : 0;
    sampling->ignore_eos = chance(30);
    sampling->logprobs = chance(20) ? 0 : -1;
    sampling->n_stop_ids = chance(20) ? 1 : 0;
    sampling->stop_ids[0] = (int32_t)below(s.options.vocab);
    sampling->include_stop = chance(30);
    sampling->n_stop_strings = chance(30) ? between(1, 3) : 0;
    for (uint32_t i = 0; i < sampling->n_stop_strings; i++) {
        sampling->stop_string_bytes[i] = (uint16_t)between(1, 3);
        for (uint32_t b = 0; b < sampling->stop_string_bytes[i]; b++) sampling->stop_strings[i][b] = (char)below(s.options.vocab);
    }
}

/* Half the prompts begin with one of a few texts, or with what an earlier request has become. */
static void write_prompt(shadow *r)
{
    uint32_t same = 0;
    const shadow *earlier = s.n > 0 && chance(50) ? &s.shadows[below(s.n)] : NULL;
    if (chance(60)) same = earlier && earlier->n_tokens < r->n_prompt ? earlier->n_tokens : r->n_prompt;
    if (chance(50)) same = between(0, same);
    uint64_t text = below(TEXTS);
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        r->tokens[i] = (int32_t)below(s.options.vocab);
        if (i < same) r->tokens[i] = earlier ? earlier->tokens[i] : (int32_t)(gb_mix64(text << 32 | i) % s.options.vocab);
    }
}

static void submit(void)
{
    if (s.n == REQUESTS_MAX) return;
    shadow *r = &s.shadows[s.n];
    *r = (shadow){.n_prompt = between(1, chance(20) ? LENGTH_MAX : 50)};
    write_prompt(r);
    r->n_tokens = r->n_prompt;
    fill_sampling(&r->sampling);
    gb_request request = {.tokens = r->tokens, .n_tokens = r->n_prompt, .priority = (int32_t)between(0, 4) / 3, .tag = s.n,
                          .deadline = chance(15) ? s.now + gb_ms(below(400)) : GB_NEVER, .sampling = &r->sampling};
    int rc = gb_server_submit(s.server, &r->id, &request, s.now, NULL);
    STORM_CHECK(rc == GB_OK || rc == GB_EFULL || rc == GB_ECONTEXT || rc == GB_EDEADLINE || rc == GB_EDOWN);
    uint32_t kv_room = s.options.blocks_per_engine * GB_BLOCK_TOKENS;
    STORM_CHECK(rc != GB_ECONTEXT || r->n_prompt >= s.options.max_model_len || r->n_prompt > kv_room);
    if (rc) return;
    uint32_t room = s.options.max_model_len - r->n_prompt;
    if (kv_room - r->n_prompt + 1 < room) room = kv_room - r->n_prompt + 1;
    r->max_tokens = r->sampling.max_tokens < room ? r->sampling.max_tokens : room;
    s.n++;
}

static void cancel(void)
{
    if (s.n == 0) return;
    shadow *r = &s.shadows[below(s.n)];
    int rc = gb_server_cancel(s.server, chance(5) ? r->id + ((gb_request_id)1 << 40) : r->id, s.now);
    STORM_CHECK(rc == GB_OK || rc == GB_ENOTFOUND);
    STORM_CHECK(rc == GB_ENOTFOUND || !r->ended);
    if (rc == GB_OK) r->cancelled = true;
}

/* --- events --- */

static void mix(uint64_t x) { s.hash = gb_mix64(s.hash ^ x); }

static int32_t expected_token(const shadow *r)
{
    int32_t banned[GB_STOP_IDS_MAX + GB_SERVER_END_IDS_MAX];
    uint32_t n = 0;
    if (r->n_tokens - r->n_prompt < r->sampling.min_tokens) {
        for (uint32_t i = 0; i < r->sampling.n_stop_ids; i++) banned[n++] = r->sampling.stop_ids[i];
        for (uint32_t i = 0; !r->sampling.ignore_eos && i < s.options.n_end_ids; i++) banned[n++] = s.options.end_ids[i];
    }
    return fake_token_but(&s.options, r->tokens, r->n_tokens, r->sampling.seed, banned, n);
}

static bool is_end(const shadow *r, int32_t token)
{
    if (r->sampling.n_stop_ids && r->sampling.stop_ids[0] == token) return true;
    for (uint32_t i = 0; !r->sampling.ignore_eos && i < s.options.n_end_ids; i++)
        if (s.options.end_ids[i] == token) return true;
    return false;
}

/* The stop string that the token at `end` - 1 completes, by definition; one token is one byte. */
static int32_t completed_stop_string(const shadow *r, uint32_t end)
{
    int32_t best = -1;
    uint32_t from = r->n_prompt + r->sampling.min_tokens;    /* matching begins behind min_tokens */
    for (uint32_t i = 0; i < r->sampling.n_stop_strings; i++) {
        uint32_t n = r->sampling.stop_string_bytes[i], same = 0;
        if (end < from + n) continue;
        while (same < n && r->tokens[end - n + same] == r->sampling.stop_strings[i][same]) same++;
        if (same == n && (best < 0 || n > r->sampling.stop_string_bytes[best])) best = (int32_t)i;
    }
    return best;
}

static void take_text(shadow *r, const gb_event *event)
{
    STORM_CHECK(r->n_text + event->text_bytes <= LENGTH_MAX);
    memcpy(r->text + r->n_text, event->text, event->text_bytes);
    r->n_text += (uint32_t)event->text_bytes;
}

static void check_text(const shadow *r, const gb_event *event)
{
    uint32_t n = r->n_tokens - r->n_prompt;
    if (event->stop_token >= 0 && !r->sampling.include_stop) n--;
    if (event->stop_string >= 0 && !r->sampling.include_stop) n -= r->sampling.stop_string_bytes[event->stop_string];
    STORM_CHECK(r->n_text == n);
    for (uint32_t i = 0; i < n && i < r->n_text; i++) STORM_CHECK(r->text[i] == r->tokens[r->n_prompt + i]);
}

static void take_token(shadow *r, const gb_event *event)
{
    s.token_events++;
    STORM_CHECK(event->index == r->n_tokens - r->n_prompt);
    STORM_CHECK(event->index < r->max_tokens);
    STORM_CHECK(event->token == expected_token(r));
    STORM_CHECK((event->logprobs != NULL) == (r->sampling.logprobs >= 0));
    if (r->n_tokens > r->n_prompt) STORM_CHECK(!is_end(r, r->tokens[r->n_tokens - 1]) && completed_stop_string(r, r->n_tokens) < 0);
    r->tokens[r->n_tokens++] = event->token;
    take_text(r, event);
}

static void take_end(shadow *r, const gb_event *event)
{
    uint32_t generated = r->n_tokens - r->n_prompt;
    r->ended = true;
    s.ends++;
    STORM_CHECK(event->usage.prompt_tokens == r->n_prompt && event->usage.completion_tokens == generated);
    STORM_CHECK(event->usage.cached_tokens < r->n_prompt && event->usage.cached_tokens % GB_BLOCK_TOKENS == 0);
    if (event->kind == GB_EVENT_ABORTED) STORM_CHECK(r->cancelled);
    if (event->kind == GB_EVENT_FAILED) STORM_CHECK(event->status == GB_EIO || event->status == GB_EDOWN || event->status == GB_EDEADLINE);
    if (event->kind != GB_EVENT_DONE) return;
    bool by_id = is_end(r, r->tokens[r->n_tokens - 1]);
    int32_t by_string = by_id ? -1 : completed_stop_string(r, r->n_tokens);
    STORM_CHECK(!r->cancelled && generated > 0);
    STORM_CHECK(event->finish == (by_id || by_string >= 0 ? GB_FINISH_STOP : GB_FINISH_LENGTH));
    STORM_CHECK(by_id || by_string >= 0 || generated == r->max_tokens);
    STORM_CHECK(event->stop_token == (by_id ? r->tokens[r->n_tokens - 1] : -1));
    STORM_CHECK(event->stop_string == by_string);
    s.stop_strings += by_string >= 0;
    take_text(r, event);
    check_text(r, event);
}

static void take_events(uint32_t most)
{
    gb_event event;
    for (uint32_t i = 0; i < most && gb_server_poll_event(s.server, &event); i++) {
        shadow *r = &s.shadows[event.tag];
        STORM_CHECK(event.tag < s.n && event.id == r->id);
        STORM_CHECK(!r->ended);
        mix(event.id), mix(event.kind), mix((uint32_t)event.token), mix(event.at);
        if (event.kind == GB_EVENT_TOKEN) take_token(r, &event);
        else take_end(r, &event);
    }
}

/* --- rounds --- */

static void note_who_waits(void)
{
    gb_request_info info;
    for (uint32_t i = 0; i < s.n; i++) s.shadows[i].was_waiting = false;
    for (uint32_t cursor = 0; gb_server_request_next(s.server, &cursor, &info);) s.shadows[info.tag].was_waiting = info.state != GB_RUNNING;
}

/* The oldest promoted request of each line that is still waiting was overtaken by every later arrival admitted just now. */
static void check_overtaking(void)
{
    gb_request_info info, other;
    for (uint32_t e = 0; e < s.options.engines; e++) {
        gb_request_info head = {.arrived = GB_NEVER};
        for (uint32_t cursor = 0; gb_server_request_next(s.server, &cursor, &info);)
            if (info.engine == e && info.state != GB_RUNNING && s.now >= info.arrived + s.options.aging && info.arrived < head.arrived) head = info;
        if (head.arrived == GB_NEVER) continue;
        for (uint32_t cursor = 0; gb_server_request_next(s.server, &cursor, &other);)
            if (other.engine == e && other.state == GB_RUNNING && s.shadows[other.tag].was_waiting && other.arrived > head.arrived)
                s.shadows[head.tag].overtaken++;
        STORM_CHECK(s.shadows[head.tag].overtaken <= s.options.max_bypass);
    }
}

static void start_round(void)
{
    note_who_waits();
    s.in_flight = gb_server_poll_round(s.server, &s.fake.round, s.now);
    if (!s.in_flight) return;
    check_overtaking();
    s.placement_version = s.fake.round.placement->version;
    for (uint32_t e = 0; e < s.options.engines; e++) mix(s.fake.round.batches[e].n_tokens);
}

static void drop_works(void)
{
    uint64_t seq;
    uint32_t engine, work;
    while (gb_server_poll_cancel(s.server, &seq, &engine, &work)) {
        STORM_CHECK(seq == s.fake.round.seq);
        if (chance(70)) fake_drop(&s.fake, engine, work);
    }
    if (s.calm || !chance(5)) return;
    engine = (uint32_t)below(s.options.engines);
    if (s.fake.round.batches[engine].n_works > 0) fake_drop(&s.fake, engine, (uint32_t)below(s.fake.round.batches[engine].n_works));
}

static void mix_window(const gb_matrix *counts, gb_time from, gb_time to)
{
    const gb_estimate *estimate = &gb_server_planner(s.server)->estimate;
    mix(from);
    mix(to);
    for (size_t i = 0; i < gb_matrix_cells(counts); i++) mix(counts->counts[i]);
    for (uint32_t l = 0; l < s.options.moe_layers; l++) {
        mix((uint64_t)(estimate->variation[l] * 1e12));
        mix((uint64_t)(estimate->persistence[l] * 1e12));
    }
}

/* A summed over sources, of all windows there were, is what the executor counted by expert and has not kept. */
static void check_windows(void)
{
    uint64_t id, b[CELLS_MAX];
    gb_time from, to;
    uint32_t cells = s.options.moe_layers * s.options.experts, counted;
    const gb_matrix *closed = gb_server_window(s.server, false, &id, &from, &to);
    STORM_CHECK(id == s.closed_id || id == s.closed_id + 1);
    if (id > s.closed_id) {
        gb_matrix_sum_sources(closed, b);
        for (uint32_t i = 0; i < cells; i++) s.closed_b[i] += b[i];
        s.closed_id = id;
        mix_window(closed, from, to);
        STORM_CHECK(gb_server_window_rounds(s.server, false, &counted) == counted);
    }
    gb_matrix_sum_sources(gb_server_window(s.server, true, &id, &from, &to), b);
    for (uint32_t i = 0; i < cells; i++) STORM_CHECK(s.closed_b[i] + b[i] == s.fake.b[i] - (s.fake.keeps_counts ? s.fake.b_since[i] : 0));
}

static void finish_round(void)
{
    int status = s.calm || !chance(4) ? GB_OK : chance(70) ? GB_EIO : GB_EDOWN;
    drop_works();
    STORM_CHECK(s.fake.round.placement->version == s.placement_version);
    fake_run(&s.fake, status);
    gb_server_round_done(s.server, &s.fake.result, s.now);
    s.in_flight = false;
    check_windows();
}

static void change_health(void)
{
    uint32_t e = (uint32_t)below(s.options.engines);
    if (chance(15)) gb_server_engine_down(s.server, e, s.now);
    else gb_server_engine_up(s.server, e);
}

/* --- the storm --- */

static void choose_options(void)
{
    gb_server_options *o = &s.options;
    fake_options(o);
    o->engines = between(1, 3);
    o->ranks = o->engines * (o->engines == 3 ? 1 : between(1, 2));
    o->experts = o->engines == 3 ? 6 : 8;
    o->blocks_per_engine = between(2, chance(50) ? 8 : 40);
    o->max_model_len = between(2, LENGTH_MAX);
    o->max_num_seqs = between(1, 6);
    o->max_batched_tokens = between(1, 48);
    o->queue_capacity = between(1, 24);
    o->max_preemptions = between(0, 8);
    o->max_bypass = between(0, 6);
    o->aging = gb_ms(between(0, 300));
    o->stale_after = gb_ms(between(1, 100));
    o->window_rounds = between(1, 6);
    if (chance(30)) o->window_longest = gb_ms(between(0, 20));
    o->tokenizer = tokenizer;
    o->prefix_caching = chance(80);
    o->private_ranks = chance(70);
    o->migration_bytes = between(1, 3 * FAKE_EXPERT_BYTES);
    o->spare_slots = o->ranks > 1 && chance(30) ? between(1, 2) : 0;
    o->placement.every = between(0, 3);
    o->placement.solve.weights = chance(50) ? gb_place_weights_latency() : (gb_place_weights){1, 1, 0, GB_IMBALANCE_SQUARES};
    o->placement.solve.max_moves = chance(50) ? between(0, 6) : GB_MOVES_ANY;
    o->force_migration_every = chance(60) ? between(1, 6) : 0;
    o->migration_stalled_after = gb_ms(between(1, 50));
    if (chance(50)) o->vocab = 20;
    o->n_end_ids = between(0, 2);
    for (uint32_t i = 0; i < o->n_end_ids; i++) o->end_ids[i] = (int32_t)below(o->vocab);
}

/* --- experts on the move --- */

/* Asking again while a list is out gives nothing and leaves the list alone. */
static void start_copies(void)
{
    bool polled = gb_server_poll_copies(s.server, &s.copies);
    STORM_CHECK(!polled || !s.copying);
    s.copying |= polled;
}

/* Copies come back at any time, whole or failed in the middle. */
static void finish_copies(void)
{
    bool fails = !s.calm && chance(3);
    if (!s.copying) return;
    if (fails) s.copies.n = (uint32_t)below(s.copies.n);
    if (s.copies.n > 0) fake_copy(&s.fake, &s.copies);
    s.copying = false;
    gb_server_copies_done(s.server, fails ? GB_EIO : GB_OK, s.now);
}

static void migrate(void)
{
    gb_placement to;
    gb_arena arena;
    gb_arena_init(&arena);
    const gb_placement *live = gb_server_placement(s.server);
    CHECK_EQ(gb_placement_init(&to, &arena, live->layers, live->sources, live->experts, live->ranks, s.options.spare_slots, NULL), GB_OK);
    gb_placement_copy(&to, live);
    for (uint32_t i = between(1, 6); i > 0; i--) gb_trade_at_random(&to, &s.rng);
    int rc = gb_server_migrate(s.server, &to, NULL, s.now, NULL);
    STORM_CHECK(rc == GB_OK || rc == GB_EFULL || (rc == GB_EDRAINING && gb_server_draining(s.server)));
    gb_arena_deinit(&arena);
}

static void act_on_experts(void)
{
    uint32_t dice = between(0, 99);
    if (dice < 4) migrate();
    else if (dice < 6) gb_server_cancel_migration(s.server);
    else if (dice < 12) gb_server_rearrange(s.server, s.now);
    else if (dice < 50) start_copies();
    else finish_copies();
}

static void act(void)
{
    uint32_t dice = between(0, 99);
    act_on_experts();
    if (dice < 25) submit();
    else if (dice < 31) cancel();
    else if (dice < 33) swap_policy();
    else if (dice < 35) change_health();
    else if (dice < 45) take_events(between(0, 8));
    else if (dice < 50) gb_server_tick(s.server, s.now);
    else if (s.in_flight) finish_round();
    else start_round();
}

/* Everybody left must finish within the rounds that computing each request anew after every preemption would take. */
static void let_everybody_finish(void)
{
    uint64_t rounds = 0, most = 10;
    s.calm = true;
    for (uint32_t i = 0; i < s.n; i++) most += (uint64_t)(s.options.max_preemptions + 1) * LENGTH_MAX + 1;
    for (uint32_t e = 0; e < s.options.engines; e++) gb_server_engine_up(s.server, e);
    for (bool more = true; more; rounds++) {
        s.now += gb_ms(1);
        if (s.in_flight) finish_round();
        take_events(UINT32_MAX);
        start_copies();
        finish_copies();
        start_round();
        gb_server_check(s.server);
        more = s.in_flight && rounds < most;
    }
    STORM_CHECK(rounds < most);
    take_events(UINT32_MAX);
    for (uint32_t i = 0; i < s.n; i++) STORM_CHECK(s.shadows[i].ended);
}

static void check_the_books(void)
{
    gb_server_stats stats;
    gb_server_stats_get(s.server, &stats);
    s.preemptions = stats.preempted;
    s.cached_tokens = stats.cached_tokens;
    s.migrations = stats.migrations_done;
    s.experts_moved = stats.experts_moved;
    s.rearrangements = stats.rearrangements_accepted;
    STORM_CHECK(stats.bytes_moved == (s.options.private_ranks ? stats.experts_moved * FAKE_EXPERT_BYTES : 0));
    STORM_CHECK(s.options.ranks > 1 || stats.experts_moved == 0);
    STORM_CHECK(s.options.prefix_caching || stats.cached_tokens + stats.blocks_cached == 0);
    STORM_CHECK(stats.accepted == s.n && stats.finished + stats.failed + stats.aborted == s.ends && s.ends == s.n);
    STORM_CHECK(stats.generated_tokens == s.token_events);
    STORM_CHECK(stats.live == 0 && stats.running == 0 && stats.waiting == 0 && stats.blocks_used == 0);
    STORM_CHECK(s.server->pool.n_free == s.options.queue_capacity);
    for (int h = 0; h < GB_HOOKS; h++) STORM_CHECK(stats.hooks[h].nils + stats.hooks[h].faults <= stats.hooks[h].calls);
}

static uint64_t run_storm(uint64_t seed, bool keeps_counts)
{
    uint64_t closed_b[CELLS_MAX] = {0};
    s = (storm){.seed = seed, .closed_b = closed_b};
    running_seed = seed;
    gb_rng_init(&s.rng, seed);
    choose_options();
    fake_init(&s.fake, &s.options);
    s.fake.keeps_counts = keeps_counts;
    CHECK_EQ(gb_server_new(&s.server, &s.options, NULL), GB_OK);
    for (int i = 0; i < STEPS && check_failures == 0; i++) {
        s.now += gb_us(below(chance(5) ? 200000 : 4000));
        act();
        gb_server_check(s.server);
    }
    if (check_failures == 0) let_everybody_finish();
    if (check_failures == 0) check_the_books();
    gb_server_free(s.server);
    fake_deinit(&s.fake);
    return s.hash;
}

static void say_the_seed(int signal_number)
{
    char line[64];
    int n = snprintf(line, sizeof line, "GB_STORM_SEED=%llu\n", (unsigned long long)running_seed);
    (void)!write(STDERR_FILENO, line, (size_t)n);
    signal(signal_number, SIG_DFL);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void a_storm_breaks_no_invariant(void)
{
    uint64_t only = number_from("GB_STORM_SEED", 0), n = only ? only : number_from("GB_STORM_SEEDS", SEEDS);
    uint64_t tokens = 0, requests = 0, preemptions = 0, stop_strings = 0, cached_tokens = 0, migrations = 0, experts_moved = 0, rearrangements = 0;
    tokenizer = fake_tokenizer(NULL, NULL);
    signal(SIGABRT, say_the_seed);
    for (uint64_t seed = only ? only : 1; seed <= n && check_failures == 0; seed++) {
        run_storm(seed, seed % 2);
        tokens += s.token_events;
        requests += s.n;
        preemptions += s.preemptions;
        stop_strings += s.stop_strings;
        cached_tokens += s.cached_tokens;
        migrations += s.migrations;
        experts_moved += s.experts_moved;
        rearrangements += s.rearrangements;
    }
    printf("    seeds up to %llu: %llu requests, %llu tokens, %llu preemptions, %llu stop strings, %llu cached tokens, "
           "%llu migrations of %llu experts, %llu for a gain\n",
           (unsigned long long)n, (unsigned long long)requests, (unsigned long long)tokens, (unsigned long long)preemptions,
           (unsigned long long)stop_strings, (unsigned long long)cached_tokens, (unsigned long long)migrations,
           (unsigned long long)experts_moved, (unsigned long long)rearrangements);
    CHECK(tokens > 0 && (only || (preemptions > 0 && stop_strings > 0 && cached_tokens > 0 && experts_moved > 0 && rearrangements > 0)));
    gb_tokenizer_free(tokenizer);
}

static void the_same_seed_gives_the_same_storm_and_another_gives_another(void)
{
    tokenizer = fake_tokenizer(NULL, NULL);
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t first = run_storm(seed, false), again = run_storm(seed, false), other = run_storm(seed + 1000, false);
        CHECK(first == again);
        CHECK(first != other);
    }
    gb_tokenizer_free(tokenizer);
}

/* The same tokens, windows, estimates and placements, whatever fails, goes down or moves in between. */
static void counts_that_come_only_when_they_are_due_change_nothing(void)
{
    uint64_t rearrangements = 0, windows = 0;
    tokenizer = fake_tokenizer(NULL, NULL);
    for (uint64_t seed = 1; seed <= 200 && check_failures == 0; seed++) {
        uint64_t at_once = run_storm(seed, false), when_due = run_storm(seed, true);
        STORM_CHECK(at_once == when_due);
        rearrangements += s.rearrangements;
        windows += s.closed_id;
    }
    CHECK(rearrangements > 100 && windows > 1000);
    gb_tokenizer_free(tokenizer);
}

TESTS(TEST(a_storm_breaks_no_invariant), TEST(the_same_seed_gives_the_same_storm_and_another_gives_another),
      TEST(counts_that_come_only_when_they_are_due_change_nothing))
