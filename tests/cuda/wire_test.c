/* Messages between a gang and its ranks: what goes in comes out, in however many pieces, and what is damaged is refused. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda/host/wire.h"
#include "tests/check.h"

static const gb_ops_limits limits = {.engines = 2, .ranks = 4, .max_works = 3, .max_tokens = 40, .max_positions = 64, .blocks_per_engine = 12};

static int pair[2];

static void open_pair(void) { CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0); }

static void close_pair(void)
{
    close(pair[0]);
    close(pair[1]);
}

/* --- rows --- */

static const int32_t tokens[] = {5, 6, 7, 8, 9}, blocks[] = {3, 1, 2, 0};
static const gb_span spans[] = {
    {.engine = 0, .work = 2, .row = 0, .count = 5, .start = 44, .tokens = tokens, .blocks = blocks},
    {.engine = 1, .work = 0, .row = 5, .count = 1, .start = 0, .tokens = tokens + 1, .blocks = blocks + 2},
};
static const gb_row_set rows = {.n = 6, .n_spans = 2, .spans = spans};

/* The body of the one message in out. */
static gb_wire_message body_of(const gb_wire_buffer *out, gb_wire_kind kind)
{
    return (gb_wire_message){.kind = kind, .at = out->bytes + 8, .end = out->bytes + out->n};
}

static void rows_come_out_as_they_went_in(void)
{
    gb_wire_buffer out = {0};
    gb_wire_rows got = {0};
    const uint32_t from[] = {0, 7};
    gb_wire_begin(&out, GB_WIRE_COMPACT);
    gb_wire_put_rows(&out, &rows, from);
    gb_wire_message m = body_of(&out, GB_WIRE_COMPACT);
    CHECK_EQ(gb_wire_get_rows(&m, &got, &limits), GB_OK);
    memset(out.bytes, 0, out.n);    /* they are in memory of their own */
    CHECK_EQ(got.set.n, 6);
    CHECK_EQ(got.set.n_spans, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const gb_span *a = &got.set.spans[i], *b = &spans[i];
        CHECK(a->engine == b->engine && a->work == b->work && a->row == b->row && a->count == b->count && a->start == b->start);
        CHECK(memcmp(a->tokens, b->tokens, b->count * sizeof *b->tokens) == 0);
        CHECK(memcmp(a->blocks, b->blocks, (i ? 1 : 4) * sizeof *b->blocks) == 0);
        CHECK_EQ(got.from[i], from[i]);
    }
    gb_wire_free(&out);
    gb_wire_free_rows(&got);
}

static void rows_that_are_cut_anywhere_are_refused(void)
{
    gb_wire_buffer out = {0};
    gb_wire_begin(&out, GB_WIRE_EMBED);
    gb_wire_put_rows(&out, &rows, NULL);
    for (size_t bytes = 0; bytes < out.n - 8; bytes += 8) {
        gb_wire_rows got = {0};
        char *exact = malloc(bytes + 1);    /* so that AddressSanitizer sees what is read beyond it */
        memcpy(exact, out.bytes + 8, bytes);
        gb_wire_message m = {.kind = GB_WIRE_EMBED, .at = exact, .end = exact + bytes};
        CHECK_EQ(gb_wire_get_rows(&m, &got, &limits), GB_EFORMAT);
        gb_wire_free_rows(&got);
        free(exact);
    }
    gb_wire_free(&out);
}

static void check_refused(const gb_span *wrong, uint32_t n)
{
    gb_wire_buffer out = {0};
    gb_wire_rows got = {0};
    const gb_row_set set = {.n_spans = n, .spans = wrong};
    gb_wire_begin(&out, GB_WIRE_EMBED);
    gb_wire_put_rows(&out, &set, NULL);
    gb_wire_message m = body_of(&out, GB_WIRE_EMBED);
    CHECK_EQ(gb_wire_get_rows(&m, &got, &limits), GB_EFORMAT);
    gb_wire_free(&out);
    gb_wire_free_rows(&got);
}

static void rows_beyond_the_limits_are_refused(void)
{
    int32_t many[64] = {0};
    gb_span s = {.count = 1, .tokens = many, .blocks = many};
    check_refused(&s, 0);
    gb_span wrong[] = {s, s, s, s, s};
    wrong[0].engine = 2;
    wrong[1].work = 3;
    wrong[2].row = 1;
    wrong[3].start = 64;
    wrong[4].count = 0;
    for (int i = 0; i < 5; i++) check_refused(&wrong[i], 1);
    gb_span all[7];
    for (uint32_t i = 0; i < 7; i++) {
        all[i] = s;
        all[i].row = i;
    }
    check_refused(all, 7);    /* more works than engines can have */
    all[0].count = all[1].count = 41;
    all[1].row = 41;
    check_refused(all, 2);    /* more rows */
}

/* --- placements, picks --- */

static void a_placement_comes_out_as_it_went_in_and_another_shape_is_refused(void)
{
    gb_arena arena;
    gb_placement p, got, larger;
    gb_wire_buffer out = {0};
    gb_arena_init(&arena);
    CHECK_EQ(gb_placement_init(&p, &arena, 2, 2, 8, 4, 1, NULL), GB_OK);
    CHECK_EQ(gb_placement_init(&got, &arena, 2, 2, 8, 4, 1, NULL), GB_OK);
    CHECK_EQ(gb_placement_init(&larger, &arena, 3, 2, 8, 4, 1, NULL), GB_OK);
    p.version = 9;
    p.place[3] = 12;
    p.other[4] = 2;
    p.other_share[4] = 77;
    gb_wire_begin(&out, GB_WIRE_MAP);
    gb_wire_put_placement(&out, &p);
    gb_wire_message m = body_of(&out, GB_WIRE_MAP), again = m;
    CHECK_EQ(gb_wire_get_placement(&m, &got), GB_OK);
    CHECK_EQ(got.version, 9);
    CHECK_EQ(got.place[3], 12);
    CHECK_EQ(got.other[4], 2);
    CHECK_EQ(got.other_share[4], 77);
    CHECK(memcmp(got.route, p.route, (size_t)2 * 2 * 8 * sizeof *p.route) == 0);
    CHECK_EQ(gb_wire_get_placement(&again, &larger), GB_EFORMAT);
    gb_wire_free(&out);
    gb_arena_deinit(&arena);
}

static void a_pick_takes_along_what_the_sampler_looks_at(void)
{
    gb_wire_buffer out = {0};
    gb_sampling sampling, got_sampling;
    const int32_t banned[] = {1, 2, 3};
    gb_sampling_default(&sampling);
    sampling.seed = 1234;
    sampling.top_p = 0.5f;
    gb_work work = {.id = 77, .tokens = tokens, .n_tokens = 5, .n_prompt = 2, .count = 1, .start = 4, .samples = true, .sampling = &sampling,
                    .banned = banned, .n_banned = 3}, got;
    for (int penalties = 0; penalties < 2; penalties++) {
        uint32_t row;
        sampling.frequency_penalty = penalties ? 0.5f : 0;
        gb_wire_clear(&out);
        gb_wire_begin(&out, GB_WIRE_SAMPLE);
        gb_wire_put_pick(&out, &(gb_pick){.logits_row = 3, .work = &work});
        gb_wire_message m = body_of(&out, GB_WIRE_SAMPLE);
        gb_wire_get_pick(&m, &row, &got, &got_sampling);
        CHECK(!m.cut && m.at == m.end);
        CHECK_EQ(row, 3);
        CHECK(got.id == 77 && got.n_tokens == 5 && got.n_prompt == 2 && got.start == 4 && got.count == 1 && got.samples);
        CHECK(got_sampling.seed == 1234 && got_sampling.top_p == 0.5f && got_sampling.temperature == 1 && got_sampling.logprobs == -1);
        CHECK(got.n_banned == 3 && memcmp(got.banned, banned, sizeof banned) == 0);
        if (penalties) CHECK(memcmp(got.tokens, tokens, sizeof tokens) == 0);
        else CHECK(got.tokens == NULL);
    }
    gb_wire_free(&out);
}

/* --- sockets --- */

static void messages_are_found_whatever_pieces_they_come_in(void)
{
    gb_wire_buffer out = {0};
    gb_wire_reader in;
    gb_wire_message m;
    open_pair();
    in = (gb_wire_reader){.socket = pair[1]};
    for (uint32_t i = 0; i < 3; i++) {
        gb_wire_begin(&out, GB_WIRE_NORM);
        gb_wire_put_numbers(&out, i, 10 * i);
    }
    gb_wire_begin(&out, GB_WIRE_CLOSE);
    for (size_t at = 0; at < out.n; at++) {
        CHECK_EQ(write(pair[0], out.bytes + at, 1), 1);
        CHECK_EQ(gb_wire_fill(&in), GB_OK);
    }
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t a, b;
        CHECK_EQ(gb_wire_receive(&in, &m, GB_NEVER), GB_OK);
        gb_wire_get_numbers(&m, &a, &b);
        CHECK(m.kind == GB_WIRE_NORM && a == i && b == 10 * i && !m.cut);
    }
    CHECK_EQ(gb_wire_receive(&in, &m, GB_NEVER), GB_OK);
    CHECK(m.kind == GB_WIRE_CLOSE && m.at == m.end);
    gb_wire_free(&out);
    gb_wire_free(&in.bytes);
    close_pair();
}

static void check_damage(uint32_t kind, uint32_t bytes)
{
    const uint32_t header[] = {kind, bytes};
    gb_wire_reader in;
    gb_wire_message m;
    open_pair();
    in = (gb_wire_reader){.socket = pair[1]};
    CHECK_EQ(write(pair[0], header, sizeof header), (ssize_t)sizeof header);
    CHECK_EQ(gb_wire_receive(&in, &m, GB_NEVER), GB_EFORMAT);
    gb_wire_free(&in.bytes);
    close_pair();
}

static void a_header_that_cannot_be_is_refused(void)
{
    check_damage(GB_WIRE_KINDS, 8);
    check_damage(GB_WIRE_NORM, 7);
    check_damage(GB_WIRE_NORM, GB_WIRE_BYTES_MAX + 8u);
}

static void waiting_ends_at_the_deadline_and_with_the_other_side(void)
{
    gb_wire_buffer out = {0};
    gb_wire_reader in;
    gb_wire_message m;
    open_pair();
    in = (gb_wire_reader){.socket = pair[1]};
    CHECK_EQ(gb_wire_receive(&in, &m, gb_wire_now()), GB_EDEADLINE);
    gb_wire_begin(&out, GB_WIRE_MAP);
    CHECK(gb_wire_room(&out, 1 << 24, 1) != NULL);    /* more than a socket holds while nobody reads */
    CHECK_EQ(gb_wire_send(pair[0], &out, gb_wire_now()), GB_EDEADLINE);
    close(pair[1]);
    CHECK_EQ(gb_wire_send(pair[0], &out, GB_NEVER), GB_EDOWN);
    close(pair[0]);
    open_pair();
    in.socket = pair[1];
    close(pair[0]);
    CHECK_EQ(gb_wire_receive(&in, &m, GB_NEVER), GB_EDOWN);
    close(pair[1]);
    gb_wire_free(&out);
    gb_wire_free(&in.bytes);
}

TESTS(TEST(rows_come_out_as_they_went_in), TEST(rows_that_are_cut_anywhere_are_refused), TEST(rows_beyond_the_limits_are_refused),
      TEST(a_placement_comes_out_as_it_went_in_and_another_shape_is_refused), TEST(a_pick_takes_along_what_the_sampler_looks_at),
      TEST(messages_are_found_whatever_pieces_they_come_in), TEST(a_header_that_cannot_be_is_refused),
      TEST(waiting_ends_at_the_deadline_and_with_the_other_side))
