/* A fake executor for tests of the serving core. A token is a hash of everything before it, carried through a fake KV cache:
   computing position p reads what was written at p - 1, so a lost, shared or reordered block gives other tokens than the same
   request alone (fake_token). What a work leaves out (its start > 0) must be there to the last position, and no block it writes may
   belong to another work. Experts are chosen by the same hash and counted on the way, as a real dispatch does, and the counts come at once
   or, kept, when they are due; the bytes at the place that the placement names must be those of the expert. */
#ifndef GB_TESTS_SERVE_FAKE_H
#define GB_TESTS_SERVE_FAKE_H

#include "core/serve/internal.h"
#include "core/serve/server.h"

enum { FAKE_EXPERT_BYTES = 40 };

typedef struct fake {
    gb_server_options options;
    gb_arena arena;
    gb_round round;
    gb_result result;
    uint64_t *cells;         /* [engines][blocks][GB_BLOCK_TOKENS] hash of the sequence up to there */
    uint64_t *users;         /* [engines][blocks] 2 * round seq, + 1 when the block is written in that round */
    uint32_t places;         /* of one layer */
    unsigned char *experts;  /* [moe_layers][places][FAKE_EXPERT_BYTES] the weights, each expert's own */
    bool keeps_counts;       /* until they are due */
    gb_matrix kept;
    uint64_t *b;             /* [moe_layers][experts] counted by the fake, but for what failed rounds took with them */
    uint64_t *b_since;       /* the part since counts were last due */
    uint64_t computed;       /* positions of all rounds that succeeded */
} fake;

/* Small shapes: 2 engines, 4 ranks, 2 layers of 8 experts, 100 tokens of vocabulary, context 256, 64 blocks an engine. */
void fake_options(gb_server_options *options);

void fake_init(fake *f, const gb_server_options *options);
void fake_deinit(fake *f);

/* Fills the result of the round in hand; works that were dropped come back cancelled. A round lost with its engines (GB_EDOWN)
   takes the caches' contents with it. */
void fake_run(fake *f, int status);
void fake_drop(fake *f, uint32_t engine, uint32_t work);

/* Copies a list as an executor would. */
void fake_copy(fake *f, const gb_copy_list *list);

/* Whether a place holds the weights of an expert. */
bool fake_place_holds(const fake *f, uint32_t layer, int32_t place, uint32_t expert);

/* One whole round: poll at `start`, back at `end`. False when the server had nothing to do. */
bool fake_round(fake *f, gb_server *server, gb_time start, gb_time end);

/* The token that follows tokens[0..n-1], whatever happened on the way. */
int32_t fake_token(const gb_server_options *options, const int32_t *tokens, uint32_t n, uint64_t seed);
/* The same under bans. */
int32_t fake_token_but(const gb_server_options *options, const int32_t *tokens, uint32_t n, uint64_t seed, const int32_t *banned,
                       uint32_t n_banned);

/* A request of n tokens starting at `first`, greedy, seed 1. Static storage of the latest call. */
gb_request fake_request(uint32_t n_tokens, uint32_t max_tokens);
gb_sampling *fake_sampling(gb_request *request);    /* to change it */

/* Submits and asserts success. */
gb_request_id fake_submit(gb_server *server, const gb_request *request, gb_time now);

#endif
