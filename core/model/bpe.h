/* Byte pair encoding of one word: pairs are merged in the order of their rank, leftmost first, as the reference does it.
   O(n log n) in the bytes of the word. A gb_bpe is immutable once filled; scratch belongs to one thread. */
#ifndef GB_MODEL_BPE_H
#define GB_MODEL_BPE_H

#include <stddef.h>
#include <stdint.h>

typedef struct gb_bpe {
    int32_t byte_ids[256];         /* the token of each byte alone */
    struct gb_bpe_merge *merges;   /* open addressing by pair */
    size_t n_slots;                /* a power of two */
} gb_bpe;

int  gb_bpe_init(gb_bpe *bpe, size_t merges);    /* room for so many merges; GB_ENOMEM */
void gb_bpe_deinit(gb_bpe *bpe);
void gb_bpe_set_merge(gb_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id);    /* the last one of a pair counts */

typedef struct gb_bpe_scratch {
    struct gb_bpe_symbol *symbols;
    uint64_t *heap;                /* of merges that may be next: rank above position */
    size_t capacity, n_heap;
} gb_bpe_scratch;    /* zero-initialise */

void gb_bpe_scratch_deinit(gb_bpe_scratch *scratch);

/* Tokens in a caller's array: counted all, written while they fit. */
typedef struct gb_token_list {
    int32_t *tokens;
    size_t capacity, n;
} gb_token_list;

static inline void gb_token_list_add(gb_token_list *list, int32_t token)
{
    if (list->n < list->capacity) list->tokens[list->n] = token;
    list->n++;
}

/* Appends the tokens of a word of at most 2^31 - 1 bytes. GB_ENOMEM. */
int gb_bpe_encode(const gb_bpe *bpe, gb_token_list *out, const char *word, size_t bytes, gb_bpe_scratch *scratch);

#endif
