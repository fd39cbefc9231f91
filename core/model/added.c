#include "core/model/added.h"

#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/status.h"
#include "core/model/utf8.h"

typedef struct gb_added_node {
    unsigned char byte;
    bool ends;                      /* a token ends here */
    uint32_t child, sibling;        /* node + 1; 0 = none */
    gb_added_token token;
} node;

void gb_added_deinit(gb_added *added)
{
    free(added->nodes);
    *added = (gb_added){0};
}

static int reserve(gb_added *a, size_t n)
{
    if (a->capacity - a->n >= n) return GB_OK;
    size_t capacity = 2 * a->capacity + n;
    node *nodes = realloc(a->nodes, capacity * sizeof *nodes);
    if (!nodes) return GB_ENOMEM;
    a->nodes = nodes;
    a->capacity = capacity;
    return GB_OK;
}

/* The node for byte in the list that begins at first (node + 1); 0 when there is none. */
static uint32_t in_list(const gb_added *a, uint32_t first, unsigned char byte)
{
    while (first && a->nodes[first - 1].byte != byte) first = a->nodes[first - 1].sibling;
    return first;
}

int gb_added_set(gb_added *a, const char *text, size_t bytes, const gb_added_token *token)
{
    GB_ASSERT(bytes >= 1 && bytes <= GB_ADDED_BYTES_MAX);
    if (reserve(a, bytes)) return GB_ENOMEM;    /* so that no node moves below */
    uint32_t *list = &a->roots[(unsigned char)text[0]];
    uint32_t at = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        at = in_list(a, *list, byte);
        if (!at) {
            a->nodes[a->n] = (node){.byte = byte, .sibling = *list};
            at = *list = (uint32_t)++a->n;
        }
        list = &a->nodes[at - 1].child;
    }
    node *last = &a->nodes[at - 1];
    if (last->ends) return GB_EEXIST;
    last->ends = true;
    last->token = *token;
    return GB_OK;
}

/* The longest token that begins at text; NULL when none does. */
static const gb_added_token *match(const gb_added *a, const char *text, size_t bytes, size_t *matched)
{
    const gb_added_token *longest = NULL;
    uint32_t at = a->roots[(unsigned char)text[0]];
    for (size_t i = 0; at; at = ++i < bytes ? in_list(a, a->nodes[at - 1].child, (unsigned char)text[i]) : 0)
        if (a->nodes[at - 1].ends) {
            longest = &a->nodes[at - 1].token;
            *matched = i + 1;
        }
    return longest;
}

/* Bytes of white space that end at text[end] and begin no earlier than text[floor]. */
static size_t spaces_before(const char *text, size_t floor, size_t end)
{
    size_t at = end;
    while (at > floor) {
        size_t begin = at - 1;
        int32_t c;
        while (begin > floor && ((unsigned char)text[begin] & 0xc0) == 0x80) begin--;
        if (!gb_utf8_decode(&c, text + begin, at - begin) || !gb_utf8_is_space(c)) break;
        at = begin;
    }
    return end - at;
}

static size_t spaces_behind(const char *text, size_t bytes)
{
    size_t at = 0, n;
    int32_t c;
    while (at < bytes && (n = gb_utf8_decode(&c, text + at, bytes - at)) && gb_utf8_is_space(c)) at += n;
    return at;
}

int gb_added_run(const gb_added *a, const char *text, size_t bytes, gb_added_visit *visit, void *self)
{
    size_t done = 0, n = 0;
    for (size_t at = 0; at < bytes;) {
        const gb_added_token *token = match(a, text + at, bytes - at, &n);
        if (!token) {
            at++;
            continue;
        }
        size_t begin = at, end = at + n;
        at = end;    /* the search goes on behind the token itself, even when it took white space */
        if (token->lstrip && begin > done) begin -= spaces_before(text, done, begin);
        if (token->rstrip) end += spaces_behind(text + end, bytes - end);
        int status = begin > done ? visit(self, NULL, text + done, begin - done) : GB_OK;
        if (!status) status = visit(self, token, text + begin, end - begin);
        if (status) return status;
        done = end;
    }
    return done < bytes ? visit(self, NULL, text + done, bytes - done) : GB_OK;
}
