#include "tests/serve/fake.h"

#include <stdio.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/rng.h"

enum { LAYERS = 2, EXPERTS = 8, EXPERTS_PER_TOKEN = 2 };

void fake_options(gb_server_options *o)
{
    gb_server_options_default(o);
    o->engines = 2;
    o->ranks = 4;
    o->moe_layers = LAYERS;
    o->experts = EXPERTS;
    o->vocab = 100;
    o->max_model_len = 256;
    o->max_num_seqs = 8;
    o->max_batched_tokens = 64;
    o->queue_capacity = 32;
    o->blocks_per_engine = 64;
    o->window_rounds = 4;
    o->expert_bytes = FAKE_EXPERT_BYTES;
}

static unsigned char weight(uint32_t layer, uint32_t expert, uint32_t byte)
{
    return (unsigned char)gb_mix64((uint64_t)layer << 40 | (uint64_t)expert << 20 | byte);
}

static unsigned char *weights(const fake *f, uint32_t layer, int32_t place)
{
    GB_ASSERT(place >= 0 && (uint32_t)place < f->places);
    return f->experts + ((size_t)layer * f->places + (uint32_t)place) * FAKE_EXPERT_BYTES;
}

/* Experts where the linear placement has them; ranks with memory of their own have a spare place each. */
static void load_experts(fake *f)
{
    const gb_server_options *o = &f->options;
    uint32_t per_rank = o->experts / o->ranks, slots_per_rank = per_rank + o->spare_slots;
    f->places = o->private_ranks ? o->ranks * (slots_per_rank + 1) : o->experts;
    f->experts = GB_ARENA_NEW(&f->arena, unsigned char, (size_t)o->moe_layers * f->places * FAKE_EXPERT_BYTES);
    GB_ASSERT(f->experts);
    for (uint32_t l = 0; l < o->moe_layers; l++)
        for (uint32_t e = 0; e < o->experts; e++) {
            uint32_t place = o->private_ranks ? e / per_rank * slots_per_rank + e % per_rank : e;
            for (uint32_t b = 0; b < FAKE_EXPERT_BYTES; b++) weights(f, l, (int32_t)place)[b] = weight(l, e, b);
        }
}

bool fake_place_holds(const fake *f, uint32_t layer, int32_t place, uint32_t expert)
{
    for (uint32_t b = 0; b < FAKE_EXPERT_BYTES; b++)
        if (weights(f, layer, place)[b] != weight(layer, expert, b)) return false;
    return true;
}

void fake_copy(fake *f, const gb_copy_list *list)
{
    GB_ASSERT(f->options.private_ranks && list->n >= 1 && list->n <= GB_COPIES_MAX);
    for (uint32_t i = 0; i < list->n; i++) {
        const gb_copy *c = &list->copies[i];
        GB_ASSERT(c->bytes >= 1 && c->offset + c->bytes <= FAKE_EXPERT_BYTES);
        memcpy(weights(f, c->layer, c->to) + c->offset, weights(f, c->layer, c->from) + c->offset, c->bytes);
    }
}

void fake_init(fake *f, const gb_server_options *o)
{
    *f = (fake){.options = *o};
    gb_arena_init(&f->arena);
    gb_round_limits limits = {.engines = o->engines, .ranks = o->ranks, .max_works = o->max_num_seqs, .max_tokens = o->max_batched_tokens,
                              .moe_layers = o->moe_layers, .experts = o->experts};
    GB_ASSERT(gb_round_init(&f->round, &f->arena, &limits) == GB_OK && gb_result_init(&f->result, &f->arena, &limits) == GB_OK);
    f->cells = GB_ARENA_NEW(&f->arena, uint64_t, (size_t)o->engines * o->blocks_per_engine * GB_BLOCK_TOKENS);
    f->users = GB_ARENA_NEW(&f->arena, uint64_t, (size_t)o->engines * o->blocks_per_engine);
    f->b = GB_ARENA_NEW(&f->arena, uint64_t, (size_t)o->moe_layers * o->experts);
    f->b_since = GB_ARENA_NEW(&f->arena, uint64_t, (size_t)o->moe_layers * o->experts);
    GB_ASSERT(f->cells && f->users && f->b && f->b_since);
    GB_ASSERT(gb_matrix_init(&f->kept, &f->arena, o->moe_layers, o->engines, o->experts) == GB_OK);
    load_experts(f);
}

void fake_deinit(fake *f) { gb_arena_deinit(&f->arena); }

static uint64_t extend(uint64_t hash, int32_t token) { return gb_mix64(hash ^ ((uint64_t)(uint32_t)token + 0x9E3779B97F4A7C15u)); }

static int32_t pick(const gb_server_options *o, uint64_t hash, uint64_t seed, const int32_t *banned, uint32_t n_banned)
{
    int32_t token = (int32_t)(gb_mix64(hash ^ seed) % o->vocab);
    for (uint32_t i = 0; i < n_banned; i++)
        if (banned[i] == token) {
            token = (int32_t)(((uint32_t)token + 1) % o->vocab);
            i = UINT32_MAX;    /* from the start */
        }
    return token;
}

int32_t fake_token_but(const gb_server_options *o, const int32_t *tokens, uint32_t n, uint64_t seed, const int32_t *banned,
                       uint32_t n_banned)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < n; i++) hash = extend(hash, tokens[i]);
    return pick(o, hash, seed, banned, n_banned);
}

int32_t fake_token(const gb_server_options *o, const int32_t *tokens, uint32_t n, uint64_t seed)
{
    return fake_token_but(o, tokens, n, seed, NULL, 0);
}

static uint64_t *cell(fake *f, uint32_t engine, const gb_work *work, uint32_t position)
{
    uint32_t block = (uint32_t)work->blocks[position / GB_BLOCK_TOKENS];
    GB_ASSERT(block < f->options.blocks_per_engine);
    return f->cells + ((size_t)engine * f->options.blocks_per_engine + block) * GB_BLOCK_TOKENS + position % GB_BLOCK_TOKENS;
}

static void route(fake *f, uint32_t engine, uint64_t hash)
{
    gb_matrix *a = &f->kept;
    for (uint32_t l = 0; l < a->layers; l++)
        for (uint32_t k = 0; k < EXPERTS_PER_TOKEN; k++) {
            uint32_t e = (uint32_t)((gb_mix64(hash + l) + k) % a->experts);
            int32_t slot = gb_placement_slot(f->round.placement, l, engine, e, hash);
            GB_ASSERT(fake_place_holds(f, l, gb_placement_layer_places(f->round.placement, l)[slot], e));
            gb_matrix_row(a, l, engine)[e]++;
            f->result.rank_tokens[gb_placement_rank_of_slot(f->round.placement, slot)]++;
            f->b[(size_t)l * a->experts + e]++;
            f->b_since[(size_t)l * a->experts + e]++;
        }
}

/* A block is read by many or written by one. */
static void check_blocks(fake *f, uint32_t engine, const gb_work *work)
{
    for (uint32_t i = 0; i < gb_kv_blocks_for(work->start + work->count); i++) {
        uint64_t *user = &f->users[(size_t)engine * f->options.blocks_per_engine + (uint32_t)work->blocks[i]];
        bool writes = (i + 1) * GB_BLOCK_TOKENS > work->start;
        GB_ASSERT(*user / 2 != f->round.seq || (!writes && *user % 2 == 0));
        *user = 2 * f->round.seq + writes;
    }
}

/* The text up to where the work starts, as the cache has it. */
static uint64_t read_cache(fake *f, uint32_t engine, const gb_work *work)
{
    uint64_t hash = 0;
    for (uint32_t p = 0; p < work->start; p++) {
        hash = extend(hash, work->tokens[p]);
        GB_ASSERT(*cell(f, engine, work, p) == hash);
    }
    return hash;
}

static void run_work(fake *f, uint32_t engine, const gb_work *work, gb_sampled *sampled)
{
    check_blocks(f, engine, work);
    uint64_t hash = read_cache(f, engine, work);
    GB_ASSERT(work->count >= 1 && work->start + work->count <= work->n_tokens && work->n_tokens <= f->options.max_model_len);
    GB_ASSERT(work->samples == (work->start + work->count == work->n_tokens));
    for (uint32_t p = work->start; p < work->start + work->count; p++) {
        hash = extend(hash, work->tokens[p]);
        *cell(f, engine, work, p) = hash;
        route(f, engine, hash);
    }
    f->computed += work->count;
    *sampled = (gb_sampled){.token = -1};
    if (!work->samples) return;
    sampled->token = pick(&f->options, hash, work->sampling->seed, work->banned, work->n_banned);
    sampled->logprobs = (gb_logprobs){.chosen = -(float)sampled->token};
}

static void check_batch(const fake *f, const gb_batch *batch)
{
    uint32_t n_tokens = 0;
    GB_ASSERT(batch->n_works <= f->options.max_num_seqs);
    for (uint32_t w = 0; w < batch->n_works; w++) n_tokens += batch->works[w].count;
    GB_ASSERT(n_tokens == batch->n_tokens && n_tokens <= f->options.max_batched_tokens);
}

void fake_drop(fake *f, uint32_t engine, uint32_t work)
{
    GB_ASSERT(work < f->round.batches[engine].n_works);
    f->round.batches[engine].works[work].n_tokens = 0;    /* the mark: no real work is empty */
}

static void bring_counts(fake *f)
{
    f->result.counts_pending = f->keeps_counts && !f->round.counts_due;
    if (f->result.counts_pending) return;
    gb_matrix_add(&f->result.counts, &f->kept);
    gb_matrix_clear(&f->kept);
    if (f->round.counts_due) memset(f->b_since, 0, (size_t)f->options.moe_layers * f->options.experts * sizeof *f->b_since);
}

/* With a round that failed. */
static void lose_counts(fake *f)
{
    gb_matrix_clear(&f->kept);
    for (uint32_t i = 0; i < f->options.moe_layers * f->options.experts; i++) {
        f->b[i] -= f->b_since[i];
        f->b_since[i] = 0;
    }
}

void fake_run(fake *f, int status)
{
    gb_result *result = &f->result;
    result->seq = f->round.seq;
    result->status = status;
    gb_matrix_clear(&result->counts);
    memset(result->rank_tokens, 0, f->options.ranks * sizeof *result->rank_tokens);
    if (status == GB_EDOWN)
        memset(f->cells, 0xDD, (size_t)f->options.engines * f->options.blocks_per_engine * GB_BLOCK_TOKENS * sizeof *f->cells);
    for (uint32_t e = 0; status == GB_OK && e < f->round.n_engines; e++) {
        gb_batch *batch = &f->round.batches[e];
        check_batch(f, batch);
        for (uint32_t w = 0; w < batch->n_works; w++) {
            if (batch->works[w].n_tokens > 0) run_work(f, e, &batch->works[w], &result->sampled[e][w]);
            else result->sampled[e][w] = (gb_sampled){.token = -1, .cancelled = true};
        }
    }
    if (status == GB_OK) bring_counts(f);
    else lose_counts(f);
}

bool fake_round(fake *f, gb_server *server, gb_time start, gb_time end)
{
    if (!gb_server_poll_round(server, &f->round, start)) return false;
    fake_run(f, GB_OK);
    gb_server_round_done(server, &f->result, end);
    return true;
}

static gb_sampling latest_sampling;

gb_request fake_request(uint32_t n_tokens, uint32_t max_tokens)
{
    static int32_t tokens[1 << 16];
    GB_ASSERT(n_tokens <= 1 << 16);
    for (uint32_t i = 0; i < n_tokens; i++) tokens[i] = (int32_t)(i * 7 + n_tokens) % 90;
    gb_sampling_default(&latest_sampling);
    latest_sampling.temperature = 0;
    latest_sampling.has_seed = true;
    latest_sampling.seed = 1;
    latest_sampling.max_tokens = max_tokens;
    return (gb_request){.tokens = tokens, .n_tokens = n_tokens, .deadline = GB_NEVER, .sampling = &latest_sampling};
}

gb_sampling *fake_sampling(gb_request *request)
{
    GB_ASSERT(request->sampling == &latest_sampling);
    return &latest_sampling;
}

gb_request_id fake_submit(gb_server *server, const gb_request *request, gb_time now)
{
    gb_request_id id = 0;
    gb_error err = {{0}};
    int rc = gb_server_submit(server, &id, request, now, &err);
    if (rc) fprintf(stderr, "fake_submit: %s\n", err.text);
    GB_ASSERT(rc == GB_OK);
    return id;
}
