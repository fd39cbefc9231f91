/* attention_decode with attention_merge, and attention_prefill: against float64, and bit for bit against each other. */
#include "tests/cuda/device.h"

#include <stdlib.h>

enum { KV_HEADS = 2, SEQUENCES = 3, MAX_LENGTH = 600, MAX_BLOCKS = 3 * 38 + 7 };

/* Sequences of some lengths over shuffled blocks; the last count positions of each are queries. */
typedef struct scene {
    uint32_t dim, group, window, lengths[SEQUENCES], counts[SEQUENCES], rows;
    int32_t tokens[256], positions[256], engines[256], first_block[256], blocks[MAX_BLOCKS];
    uint16_t *q, *kv;    /* [rows][heads][dim]; one engine */
    size_t kv_elements;
    gb_k_attention_args args;
} scene;

static size_t kv_at(const scene *s, uint32_t sequence_row, uint32_t position, bool value, uint32_t kv_head)
{
    uint32_t block = (uint32_t)s->blocks[(uint32_t)s->first_block[sequence_row] + position / GB_K_BLOCK_TOKENS];
    return ((((size_t)block * 2 + value) * KV_HEADS + kv_head) * GB_K_BLOCK_TOKENS + position % GB_K_BLOCK_TOKENS) * s->dim;
}

static void shuffle(int32_t *v, uint32_t n, gb_rng *rng)
{
    for (uint32_t i = 0; i < n; i++) v[i] = (int32_t)i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)gb_rng_below(rng, i);
        int32_t swap = v[j];
        v[j] = v[i - 1];
        v[i - 1] = swap;
    }
}

static void make_scene(scene *s, uint32_t dim, uint32_t group, uint32_t window, const uint32_t *lengths, const uint32_t *counts)
{
    gb_rng rng;
    fresh_rng(&rng, dim + window);
    *s = (scene){.dim = dim, .group = group, .window = window};
    shuffle(s->blocks, MAX_BLOCKS, &rng);
    s->kv_elements = (size_t)MAX_BLOCKS * 2 * KV_HEADS * GB_K_BLOCK_TOKENS * dim;
    s->kv = malloc(s->kv_elements * 2);
    memset(s->kv, 0xff, s->kv_elements * 2);    /* NaN where no position was written */
    for (uint32_t i = 0, block = 0; i < SEQUENCES; i++) {
        uint32_t first_row = s->rows;
        s->lengths[i] = lengths[i];
        s->counts[i] = counts[i];
        for (uint32_t c = 0; c < counts[i]; c++, s->rows++) {
            s->positions[s->rows] = (int32_t)(lengths[i] - counts[i] + c);
            s->first_block[s->rows] = (int32_t)block;
        }
        block += (lengths[i] + GB_K_BLOCK_TOKENS - 1) / GB_K_BLOCK_TOKENS;
        for (uint32_t p = 0; p < lengths[i]; p++)
            for (uint32_t h = 0; h < KV_HEADS; h++) {
                fill_bf16(s->kv + kv_at(s, first_row, p, false, h), dim, 1.5f, &rng);
                fill_bf16(s->kv + kv_at(s, first_row, p, true, h), dim, 1, &rng);
            }
    }
    s->q = malloc((size_t)s->rows * KV_HEADS * group * dim * 2);
    fill_bf16(s->q, (size_t)s->rows * KV_HEADS * group * dim, 1.5f, &rng);
    s->args = (gb_k_attention_args){
        .q = device_copy(s->q, (size_t)s->rows * KV_HEADS * group * dim, 2),
        .kv = {device_copy(s->kv, s->kv_elements, 2), 1, MAX_BLOCKS, KV_HEADS, dim},
        .rows = {s->rows, DEVICE_COPY(s->tokens), DEVICE_COPY(s->positions), DEVICE_COPY(s->engines), DEVICE_COPY(s->first_block), DEVICE_COPY(s->blocks)},
        .heads = KV_HEADS * group, .window = window, .scale = 1 / sqrtf((float)dim),
    };
}

static void free_scene(scene *s)
{
    free(s->q);
    free(s->kv);
    device_free_all();
}

static uint32_t first_chunk(const scene *s, uint32_t position)
{
    return s->window && position + 1 > s->window ? (position + 1 - s->window) / GB_K_CHUNK : 0;
}

/* All rows by attention_decode, n positions to a tile. */
static void decode(scene *s, uint16_t *out, uint32_t n)
{
    gb_k_tile tiles[512];
    gb_k_merge_tile merges[256];
    uint32_t n_tiles = 0, n_merges = 0;
    for (uint32_t i = 0, row = 0; i < SEQUENCES; row += s->counts[i++])
        for (uint32_t at = 0; at < s->counts[i]; at += n) {
            uint32_t take = s->counts[i] - at < n ? s->counts[i] - at : n, position = (uint32_t)s->positions[row + at];
            uint32_t first = first_chunk(s, position), last = (position + take - 1) / GB_K_CHUNK;
            merges[n_merges++] = (gb_k_merge_tile){row + at, take, n_tiles, last - first + 1};
            for (uint32_t chunk = first; chunk <= last; chunk++) tiles[n_tiles++] = (gb_k_tile){row + at, take, position, chunk, chunk};
        }
    gb_k_attention_args a = s->args;
    size_t elements = (size_t)s->rows * a.heads * s->dim;
    a.partial = device_new((size_t)n_tiles * KV_HEADS * GB_K_TILE_ROWS * (s->dim + 2), 4);
    a.tiles = device_copy(tiles, n_tiles, sizeof *tiles);
    a.n_tiles = n_tiles;
    gb_k_merge_args m = {.out = device_new(elements, 2), .partial = a.partial, .tiles = device_copy(merges, n_merges, sizeof *merges),
                         .n_tiles = n_merges, .heads = a.heads, .kv_heads = KV_HEADS, .head_dim = s->dim};
    CHECK_EQ(gb_k_attention_decode(&a, 0), GB_OK);
    CHECK_EQ(gb_k_attention_merge(&m, 0), GB_OK);
    device_read(out, m.out, elements, 2);
}

static void prefill(scene *s, uint16_t *out, uint32_t n)
{
    gb_k_tile tiles[256];
    uint32_t n_tiles = 0;
    for (uint32_t i = 0, row = 0; i < SEQUENCES; row += s->counts[i++])
        for (uint32_t at = 0; at < s->counts[i]; at += n) {
            uint32_t take = s->counts[i] - at < n ? s->counts[i] - at : n, position = (uint32_t)s->positions[row + at];
            tiles[n_tiles++] = (gb_k_tile){row + at, take, position, first_chunk(s, position), (position + take - 1) / GB_K_CHUNK};
        }
    gb_k_attention_args a = s->args;
    size_t elements = (size_t)s->rows * a.heads * s->dim;
    a.out = device_new(elements, 2);
    a.tiles = device_copy(tiles, n_tiles, sizeof *tiles);
    a.n_tiles = n_tiles;
    CHECK_EQ(gb_k_attention_prefill(&a, 0), GB_OK);
    device_read(out, a.out, elements, 2);
}

static void expect_row(const scene *s, const uint16_t *out, uint32_t row, uint32_t head)
{
    uint32_t position = (uint32_t)s->positions[row], kv_head = head / s->group;
    uint32_t first = s->window && position + 1 > s->window ? position + 1 - s->window : 0;
    const uint16_t *q = s->q + ((size_t)row * KV_HEADS * s->group + head) * s->dim;
    static double scores[MAX_LENGTH];
    double highest = -INFINITY, sum = 0;
    for (uint32_t p = first; p <= position; p++) {
        const uint16_t *key = s->kv + kv_at(s, row, p, false, kv_head);
        scores[p] = 0;
        for (uint32_t d = 0; d < s->dim; d++) scores[p] += (double)gb_bf16_to_f32(q[d]) * gb_bf16_to_f32(key[d]);
        scores[p] /= sqrt(s->dim);
        highest = fmax(highest, scores[p]);
    }
    for (uint32_t p = first; p <= position; p++) sum += scores[p] = exp(scores[p] - highest);
    for (uint32_t d = 0; d < s->dim; d++) {
        double want = 0;
        for (uint32_t p = first; p <= position; p++) want += scores[p] / sum * gb_bf16_to_f32(s->kv[kv_at(s, row, p, true, kv_head) + d]);
        CHECK_NEAR(gb_bf16_to_f32(out[((size_t)row * KV_HEADS * s->group + head) * s->dim + d]), want, 0.008);
    }
}

static void check_scene(scene *s, uint32_t decode_positions, uint32_t prefill_positions)
{
    size_t elements = (size_t)s->rows * KV_HEADS * s->group * s->dim;
    uint16_t *split = malloc(elements * 2), *whole = malloc(elements * 2);
    decode(s, split, decode_positions);
    prefill(s, whole, prefill_positions);
    CHECK(memcmp(split, whole, elements * 2) == 0);
    for (uint32_t row = 0; row < s->rows; row++)
        for (uint32_t head = 0; head < KV_HEADS * s->group; head++) expect_row(s, split, row, head);
    free(split);
    free(whole);
}

static void rows_over_several_chunks_agree_with_float64_and_with_themselves(void)
{
    scene s;
    make_scene(&s, 64, 2, 0, (const uint32_t[]){1, 257, 600}, (const uint32_t[]){1, 2, 1});
    check_scene(&s, 1, 32);
    free_scene(&s);
}

static void ragged_prompts_agree_with_float64_and_with_decoding_row_by_row(void)
{
    scene s;
    make_scene(&s, 32, 4, 0, (const uint32_t[]){37, 16, 260}, (const uint32_t[]){37, 3, 20});
    check_scene(&s, 1, 16);
    free_scene(&s);
}

static void a_window_hides_what_lies_before_it(void)
{
    scene s;
    make_scene(&s, 32, 1, 20, (const uint32_t[]){300, 25, 10}, (const uint32_t[]){40, 9, 10});
    check_scene(&s, 16, 64);
    free_scene(&s);
}

static void heads_of_96_and_128_elements_and_groups_of_16_fit(void)
{
    scene s;
    make_scene(&s, 96, 16, 0, (const uint32_t[]){20, 5, 33}, (const uint32_t[]){2, 1, 4});
    check_scene(&s, 1, 4);
    free_scene(&s);
    make_scene(&s, 128, 8, 0, (const uint32_t[]){40, 1, 17}, (const uint32_t[]){3, 1, 9});
    check_scene(&s, 2, 8);
    free_scene(&s);
}

static void shapes_that_do_not_fit_are_refused_and_no_tiles_are_no_work(void)
{
    gb_k_attention_args a = {.kv = {NULL, 1, 1, 2, 80}, .heads = 4, .n_tiles = 1};
    CHECK_EQ(gb_k_attention_decode(&a, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "heads of 80 elements");
    a.kv.head_dim = 64;
    a.heads = 40;
    CHECK_EQ(gb_k_attention_prefill(&a, 0), GB_EINVAL);
    CHECK_CONTAINS(gb_k_message(), "40 heads over 2 kv heads");
    a.heads = 4;
    a.n_tiles = 0;
    CHECK_EQ(gb_k_attention_decode(&a, 0), GB_OK);
    CHECK_EQ(gb_k_attention_prefill(&a, 0), GB_OK);
    gb_k_merge_args m = {.heads = 3, .kv_heads = 2, .head_dim = 64, .n_tiles = 1};
    CHECK_EQ(gb_k_attention_merge(&m, 0), GB_EINVAL);
    m = (gb_k_merge_args){.heads = 4, .kv_heads = 2, .head_dim = 64};
    CHECK_EQ(gb_k_attention_merge(&m, 0), GB_OK);
}

TESTS(TEST(rows_over_several_chunks_agree_with_float64_and_with_themselves), TEST(ragged_prompts_agree_with_float64_and_with_decoding_row_by_row),
      TEST(a_window_hides_what_lies_before_it), TEST(heads_of_96_and_128_elements_and_groups_of_16_fit),
      TEST(shapes_that_do_not_fit_are_refused_and_no_tiles_are_no_work))
