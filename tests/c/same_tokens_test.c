/* What serving does behind a request's back changes none of its tokens: the bundled model answers the same requests under
   different settings. */
#include "bindings/c/instance.h"

#include "core/base/rng.h"
#include "tests/check.h"

enum { REQUESTS = 24, TOKENS = 24, PROMPT_MAX = 120 };

typedef struct setting {
    const char *key, *value;
} setting;

enum { LAYERS_MAX = 16, EXPERTS_MAX = 64 };

typedef struct checksums {
    uint64_t of[LAYERS_MAX][EXPERTS_MAX];
} checksums;

typedef struct answers {
    int32_t tokens[REQUESTS][TOKENS];
    uint32_t n[REQUESTS];
    gb_server_stats stats;
} answers;

static gb_time fake_clock(void)
{
    static gb_time now;
    return now += gb_us(100);
}

/* Prompts begin with one of three texts of different lengths. */
static uint32_t write_prompt(int32_t *prompt, uint32_t request, uint32_t vocab)
{
    uint64_t text = request % 3;
    uint32_t same = 30 + 35 * (uint32_t)text, n = same + 1 + request % 15;
    for (uint32_t i = 0; i < n; i++) prompt[i] = (int32_t)(gb_mix64((i < same ? text : 100 + request) << 32 | i) % vocab);
    return n;
}

static void submit(gb_instance *instance, uint32_t request)
{
    int32_t prompt[PROMPT_MAX];
    gb_sampling sampling;
    gb_request_id id;
    gb_instance_sampling(instance, &sampling);
    sampling.temperature = request % 2 ? 0.9f : 0;
    sampling.has_seed = true;
    sampling.seed = request;
    sampling.max_tokens = TOKENS;
    sampling.ignore_eos = true;
    gb_request r = {.tokens = prompt, .n_tokens = write_prompt(prompt, request, instance->config.vocab), .deadline = GB_NEVER, .tag = request,
                    .sampling = &sampling};
    CHECK_EQ(gb_server_submit(instance->server, &id, &r, fake_clock(), NULL), GB_OK);
}

static void take_events(gb_instance *instance, answers *a)
{
    gb_event event;
    while (gb_server_poll_event(instance->server, &event)) {
        CHECK(event.kind == GB_EVENT_TOKEN || event.kind == GB_EVENT_DONE);
        if (event.kind == GB_EVENT_TOKEN) a->tokens[event.tag][a->n[event.tag]++] = event.token;
    }
}

/* Of every expert's weights, wherever they are. */
static void take_checksums(const gb_instance *instance, checksums *sums)
{
    const gb_placement *p = gb_server_placement(instance->server);
    CHECK(p->layers <= LAYERS_MAX && p->experts <= EXPERTS_MAX);
    for (uint32_t l = 0; l < p->layers; l++)
        for (uint32_t e = 0; e < p->experts; e++) {
            int32_t place = gb_placement_layer_places(p, l)[gb_placement_routes(p, l, 0)[e]];
            sums->of[l][e] = gb_executor_checksum(instance->executor, l, (uint32_t)place);
        }
}

/* A new request every other round, so that most find others under way. */
static void answer_all(answers *a, const setting *settings)
{
    gb_options options;
    gb_instance *instance;
    gb_error err = {0};
    *a = (answers){0};
    gb_options_init(&options);
    gb_options_set(&options, "model", check_path("examples/models/tiny-moe"), "test", &err);
    gb_options_set(&options, "threads", "2", "test", &err);
    for (; settings->key; settings++) CHECK_EQ(gb_options_set(&options, settings->key, settings->value, "test", &err), GB_OK);
    CHECK_EQ(gb_instance_open(&instance, &options, &err), GB_OK);
    CHECK_STR(err.text, "");
    static checksums before, after;
    take_checksums(instance, &before);
    uint32_t submitted = 0;
    for (uint32_t round = 0; submitted < REQUESTS || gb_instance_step(instance, fake_clock); round++) {
        if (submitted < REQUESTS && round % 2 == 0) submit(instance, submitted++);
        if (submitted < REQUESTS) gb_instance_step(instance, fake_clock);
        take_events(instance, a);
    }
    take_events(instance, a);
    gb_server_stats_get(instance->server, &a->stats);
    take_checksums(instance, &after);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    gb_instance_close(instance);
    gb_options_deinit(&options);
    for (uint32_t r = 0; r < REQUESTS; r++) CHECK_EQ(a->n[r], TOKENS);
}

static void check_same(const answers *a, const answers *b)
{
    for (uint32_t r = 0; r < REQUESTS; r++)
        if (memcmp(a->tokens[r], b->tokens[r], sizeof a->tokens[r]) != 0) check_fail(__FILE__, __LINE__, "request %u got other tokens", r);
}

static void the_prefix_cache_changes_no_token(void)
{
    static answers with, without;
    answer_all(&without, (setting[]){{"enable_prefix_caching", "false"}, {"data_parallel_size", "2"}, {0}});
    answer_all(&with, (setting[]){{"enable_prefix_caching", "true"}, {"data_parallel_size", "2"}, {"max_num_seqs", "24"}, {"max_num_batched_tokens", "48"}, {0}});
    check_same(&with, &without);
    CHECK_EQ(without.stats.cached_tokens, 0);
    CHECK(with.stats.cached_tokens > 500);
}

/* A cache of a few sequences: blocks are given away and requests are preempted and find part of their text again. */
static void a_small_cache_changes_no_token(void)
{
    static answers roomy, tight;
    answer_all(&roomy, (setting[]){{0}});
    answer_all(&tight, (setting[]){{"kv_cache_memory", "640K"}, {"max_model_len", "160"}, {"max_num_seqs", "8"}, {0}});
    check_same(&roomy, &tight);
    CHECK_EQ(roomy.stats.preempted, 0);
    CHECK(tight.stats.preempted > 0);
    CHECK(tight.stats.cached_tokens > 0);
}

#define EP4 {"data_parallel_size", "2"}, {"expert_parallel_size", "4"}

static void experts_that_move_every_three_rounds_change_no_token(void)
{
    static answers still, private_ranks, shared_ranks;
    answer_all(&still, (setting[]){EP4, {0}});
    answer_all(&private_ranks, (setting[]){EP4, {"rank_memory", "private"}, {"force_migration_every", "3"}, {0}});
    answer_all(&shared_ranks, (setting[]){EP4, {"rank_memory", "shared"}, {"force_migration_every", "3"}, {0}});
    check_same(&still, &private_ranks);
    check_same(&still, &shared_ranks);
    CHECK_EQ(still.stats.migrations_done + still.stats.bytes_moved, 0);
    CHECK(private_ranks.stats.migrations_done >= private_ranks.stats.rounds / 3 - 1);
    CHECK(private_ranks.stats.experts_moved >= 2 * private_ranks.stats.migrations_done);
    CHECK(private_ranks.stats.bytes_moved > 0);
    CHECK(shared_ranks.stats.migrations_done >= shared_ranks.stats.rounds / 3 - 1);
    CHECK_EQ(shared_ranks.stats.bytes_moved, 0);
}

/* Bytes that trickle: many rounds read the old map while a migration is under way. */
static void experts_that_move_in_small_pieces_change_no_token(void)
{
    static answers still, moving;
    answer_all(&still, (setting[]){EP4, {0}});
    answer_all(&moving, (setting[]){EP4, {"rank_memory", "private"}, {"force_migration_every", "1"}, {"migration_bytes", "50000"}, {0}});
    check_same(&still, &moving);
    CHECK(moving.stats.experts_moved > 0);
}

TESTS(TEST(experts_that_move_every_three_rounds_change_no_token), TEST(experts_that_move_in_small_pieces_change_no_token),
      TEST(the_prefix_cache_changes_no_token), TEST(a_small_cache_changes_no_token))
