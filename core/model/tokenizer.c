#include "core/model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/model/nfc.h"
#include "core/model/tokenizer_parts.h"
#include "core/model/utf8.h"

void gb_tokenizer_free(gb_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    gb_split_free(tokenizer->split);
    gb_bpe_deinit(&tokenizer->bpe);
    gb_added_deinit(&tokenizer->raw);
    gb_added_deinit(&tokenizer->normalized);
    gb_arena_deinit(&tokenizer->arena);
    free(tokenizer);
}

/* ---- tokens ---- */

static const gb_token_text *text_of(const gb_tokenizer *t, int32_t token)
{
    bool known = token >= 0 && (uint32_t)token < t->size && t->texts[token].bytes;
    return known ? &t->texts[token] : NULL;
}

const char *gb_tokenizer_bytes(const gb_tokenizer *tokenizer, int32_t token, size_t *bytes)
{
    const gb_token_text *text = text_of(tokenizer, token);
    *bytes = text ? text->n : 0;
    return text ? text->bytes : NULL;
}

bool gb_tokenizer_is_special(const gb_tokenizer *tokenizer, int32_t token)
{
    const gb_token_text *text = text_of(tokenizer, token);
    return text && text->special;
}

int32_t gb_tokenizer_find(const gb_tokenizer *tokenizer, const char *content)
{
    for (size_t i = 0; i < tokenizer->n_added; i++)
        if (!strcmp(tokenizer->added[i].content, content)) return tokenizer->added[i].id;
    return -1;
}

uint32_t gb_tokenizer_size(const gb_tokenizer *tokenizer) { return tokenizer->size; }

uint32_t *gb_tokenizer_word_slot(const gb_tokenizer *t, const char *bytes, size_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++) hash = gb_mix64(hash + (unsigned char)bytes[i]);
    for (;; hash++) {
        uint32_t *slot = &t->words[hash & (t->n_words - 1)];
        if (!*slot) return slot;
        const gb_token_text *text = &t->texts[*slot - 1];
        if (text->n == n && !memcmp(text->bytes, bytes, n)) return slot;
    }
}

/* ---- encoding: added tokens, NFC, added tokens that are normalized, words, pairs ---- */

typedef struct encoder {
    const gb_tokenizer *tokenizer;
    gb_token_list out;
    gb_bpe_scratch scratch;
    gb_error *err;
} encoder;

static int encode_word(void *self, const char *word, size_t bytes)
{
    encoder *e = self;
    uint32_t whole = e->tokenizer->words ? *gb_tokenizer_word_slot(e->tokenizer, word, bytes) : 0;
    if (whole) {
        gb_token_list_add(&e->out, (int32_t)whole - 1);
        return GB_OK;
    }
    int status = gb_bpe_encode(&e->tokenizer->bpe, &e->out, word, bytes, &e->scratch);
    return status ? gb_fail(e->err, status, "no memory to encode a word of %zu bytes", bytes) : GB_OK;
}

static int encode_normalized(void *self, const gb_added_token *token, const char *piece, size_t bytes)
{
    encoder *e = self;
    if (!token) return gb_split_run(e->tokenizer->split, piece, bytes, encode_word, e, e->err);
    gb_token_list_add(&e->out, token->id);
    return GB_OK;
}

static int encode_raw(void *self, const gb_added_token *token, const char *piece, size_t bytes)
{
    encoder *e = self;
    char *owned = NULL;
    if (token) {
        gb_token_list_add(&e->out, token->id);
        return GB_OK;
    }
    if (e->tokenizer->nfc && gb_nfc(&piece, &bytes, &owned, piece, bytes))
        return gb_fail(e->err, GB_ENOMEM, "no memory to normalize %zu bytes", bytes);
    int status = gb_added_run(&e->tokenizer->normalized, piece, bytes, encode_normalized, e);
    free(owned);
    return status;
}

int gb_tokenizer_encode(const gb_tokenizer *tokenizer, const char *text, size_t bytes,
                        int32_t *tokens, size_t capacity, size_t *n, gb_error *err)
{
    encoder e = {.tokenizer = tokenizer, .out = {.tokens = tokens, .capacity = capacity}, .err = err};
    *n = 0;
    if (bytes > GB_TOKENIZER_TEXT_MAX)
        return gb_fail(err, GB_ETOOBIG, "the text has %zu bytes; at most %d are encoded at once", bytes, GB_TOKENIZER_TEXT_MAX);
    size_t bad = gb_utf8_check(text, bytes);
    if (bad < bytes) return gb_fail(err, GB_EFORMAT, "the text is not valid UTF-8 at byte %zu", bad);
    int status = gb_added_run(&tokenizer->raw, text, bytes, encode_raw, &e);
    gb_bpe_scratch_deinit(&e.scratch);
    if (status) return status;
    *n = e.out.n;
    if (e.out.n > capacity) return gb_fail(err, GB_EFULL, "the text has %zu tokens; there is room for %zu", e.out.n, capacity);
    return GB_OK;
}

/* ---- decoding ---- */

enum { CHUNK = 64 };

typedef struct decoder {
    gb_utf8_stream stream;
    char *out;
    size_t capacity, n;    /* n counts all, written or not */
} decoder;

static void write_text(decoder *d, const char *text, size_t bytes)
{
    if (bytes && d->n <= d->capacity && bytes <= d->capacity - d->n) memcpy(d->out + d->n, text, bytes);
    d->n += bytes;
}

static void decode_bytes(decoder *d, const char *bytes, size_t n)
{
    char text[3 * (CHUNK + 3)];
    while (n) {
        size_t part = n < CHUNK ? n : CHUNK;
        write_text(d, text, gb_utf8_push(&d->stream, bytes, part, text));
        bytes += part;
        n -= part;
    }
}

int gb_tokenizer_decode(const gb_tokenizer *tokenizer, const int32_t *tokens, size_t n, char *out, size_t capacity,
                        size_t *bytes, gb_error *err)
{
    decoder d = {.out = out, .capacity = capacity};
    char last[3];
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= tokenizer->vocab)
            return gb_fail(err, GB_EINVAL, "token %zu is %d; ids go from 0 to %u", i, tokens[i], tokenizer->vocab - 1);
        const gb_token_text *text = text_of(tokenizer, tokens[i]);
        if (text) decode_bytes(&d, text->bytes, text->n);
    }
    write_text(&d, last, gb_utf8_flush(&d.stream, last));
    *bytes = d.n;
    if (d.n > capacity) return gb_fail(err, GB_EFULL, "the text has %zu bytes; there is room for %zu", d.n, capacity);
    return GB_OK;
}
