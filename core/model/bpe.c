#include "core/model/bpe.h"

#include <stdbool.h>
#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/rng.h"
#include "core/base/status.h"

typedef struct gb_bpe_merge {
    int32_t left, right, id;    /* left < 0: a free slot */
    uint32_t rank;
} merge;

enum { NO_MERGE = UINT32_MAX };    /* a rank that no merge has */

/* A doubly linked list over the positions of a word; merging keeps the left one. */
typedef struct gb_bpe_symbol {
    int32_t id, prev, next;     /* prev, next < 0: the ends */
    uint32_t rank;              /* of the merge with the right neighbour; NO_MERGE when there is none, or it was merged away */
} symbol;

/* ---- merges ---- */

int gb_bpe_init(gb_bpe *bpe, size_t merges)
{
    size_t slots = 16;
    while (slots < 2 * merges) slots *= 2;
    *bpe = (gb_bpe){.merges = malloc(slots * sizeof *bpe->merges), .n_slots = slots};
    if (!bpe->merges) return GB_ENOMEM;
    for (size_t i = 0; i < slots; i++) bpe->merges[i].left = -1;
    return GB_OK;
}

void gb_bpe_deinit(gb_bpe *bpe) { free(bpe->merges); }

/* The slot of a pair, or the free one where it belongs. */
static merge *slot_of(const gb_bpe *bpe, int32_t left, int32_t right)
{
    size_t i = (size_t)gb_mix64((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    for (;; i++) {
        merge *m = &bpe->merges[i & (bpe->n_slots - 1)];
        if (m->left < 0 || (m->left == left && m->right == right)) return m;
    }
}

void gb_bpe_set_merge(gb_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    *slot_of(bpe, left, right) = (merge){.left = left, .right = right, .id = id, .rank = rank};
}

static const merge *find_merge(const gb_bpe *bpe, int32_t left, int32_t right)
{
    const merge *m = slot_of(bpe, left, right);
    return m->left < 0 ? NULL : m;
}

/* ---- scratch ---- */

void gb_bpe_scratch_deinit(gb_bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (gb_bpe_scratch){0};
}

/* A word of n symbols has at most n - 1 candidates at first; each of its at most n - 1 merges takes one and pushes two. */
static int reserve(gb_bpe_scratch *s, size_t n)
{
    if (n <= s->capacity) return GB_OK;
    size_t capacity = n > 256 ? n : 256;
    gb_bpe_scratch_deinit(s);
    s->symbols = malloc(capacity * sizeof *s->symbols);
    s->heap = malloc(2 * capacity * sizeof *s->heap);
    if (!s->symbols || !s->heap) {
        gb_bpe_scratch_deinit(s);
        return GB_ENOMEM;
    }
    s->capacity = capacity;
    return GB_OK;
}

/* ---- candidates ----

   "Merge the symbol at pos with its right neighbour": true when it was pushed, checked again when popped. The key is the rank
   above the position, so that the smallest one is the next merge. Four children a node: half the levels of a binary heap, and
   the children lie side by side. */

enum { CHILDREN = 4 };

static void push(gb_bpe_scratch *s, uint32_t rank, int32_t pos)
{
    GB_ASSERT(s->n_heap < 2 * s->capacity);
    uint64_t key = (uint64_t)rank << 32 | (uint32_t)pos;
    size_t i = s->n_heap++;
    for (; i > 0 && key < s->heap[(i - 1) / CHILDREN]; i = (i - 1) / CHILDREN) s->heap[i] = s->heap[(i - 1) / CHILDREN];
    s->heap[i] = key;
}

static size_t smallest_child(const gb_bpe_scratch *s, size_t first)
{
    size_t best = first, end = first + CHILDREN < s->n_heap ? first + CHILDREN : s->n_heap;
    for (size_t child = first + 1; child < end; child++)
        if (s->heap[child] < s->heap[best]) best = child;
    return best;
}

static uint64_t pop(gb_bpe_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t first; (first = CHILDREN * i + 1) < s->n_heap;) {
        size_t child = smallest_child(s, first);
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* ---- words ---- */

/* Notes and pushes the merge of the symbol at pos with its right neighbour, when there is one. */
static void propose(const gb_bpe *bpe, gb_bpe_scratch *s, int32_t pos)
{
    symbol *left = &s->symbols[pos];
    const merge *m = left->next < 0 ? NULL : find_merge(bpe, left->id, s->symbols[left->next].id);
    left->rank = m ? m->rank : NO_MERGE;
    if (m) push(s, m->rank, pos);
}

static void start(const gb_bpe *bpe, gb_bpe_scratch *s, const char *word, int32_t n)
{
    s->n_heap = 0;
    for (int32_t i = 0; i < n; i++)
        s->symbols[i] = (symbol){.id = bpe->byte_ids[(unsigned char)word[i]], .prev = i - 1, .next = i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i < n; i++) propose(bpe, s, i);
}

static void apply(const gb_bpe *bpe, gb_bpe_scratch *s, int32_t pos)
{
    symbol *left = &s->symbols[pos], *right = &s->symbols[left->next];
    left->id = find_merge(bpe, left->id, right->id)->id;
    left->next = right->next;
    right->rank = NO_MERGE;
    if (left->next >= 0) s->symbols[left->next].prev = pos;
    if (left->prev >= 0) propose(bpe, s, left->prev);
    propose(bpe, s, pos);
}

int gb_bpe_encode(const gb_bpe *bpe, gb_token_list *out, const char *word, size_t bytes, gb_bpe_scratch *scratch)
{
    GB_ASSERT(bytes <= INT32_MAX);
    if (bytes == 0) return GB_OK;
    if (reserve(scratch, bytes)) return GB_ENOMEM;
    start(bpe, scratch, word, (int32_t)bytes);
    while (scratch->n_heap) {
        uint64_t key = pop(scratch);
        int32_t pos = (int32_t)(uint32_t)key;
        bool holds = scratch->symbols[pos].rank == (uint32_t)(key >> 32);    /* else the pair has changed since */
        if (holds) apply(bpe, scratch, pos);
    }
    for (int32_t i = 0; i >= 0; i = scratch->symbols[i].next) gb_token_list_add(out, scratch->symbols[i].id);
    return GB_OK;
}
