/* Byte-level BPE tokenizer of a Hugging Face tokenizer.json: NFC, split regex, merges, added and special tokens; exact
   against the reference implementation or refused by name. Immutable once loaded; any thread may use it with its own
   scratch. Detokenizing is incremental and never splits a UTF-8 character. */
#ifndef GB_MODEL_TOKENIZER_H
#define GB_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

enum {
    GB_TOKENIZER_TEXT_MAX = 32 * 1024 * 1024,    /* bytes of one text */
    GB_TOKENIZER_TOKENS_PER_BYTE = 3,            /* at most: NFC can make a text so much longer, and each byte may be a token */
};

typedef struct gb_tokenizer gb_tokenizer;

/* DIR/tokenizer.json. GB_ENOTFOUND when there is none (a model may serve token ids only). vocab = model's vocab_size:
   token ids at or above it are refused. */
int  gb_tokenizer_load(gb_tokenizer **out, const char *dir, uint32_t vocab, gb_error *err);
int  gb_tokenizer_parse(gb_tokenizer **out, const char *json, size_t bytes, const char *name, uint32_t vocab, gb_error *err);
void gb_tokenizer_free(gb_tokenizer *tokenizer);

/* Encodes UTF-8 text (invalid bytes: GB_EFORMAT; more than GB_TOKENIZER_TEXT_MAX: GB_ETOOBIG). Special tokens written in the
   text are parsed, none are added; "" gives none. *n = tokens needed; at most capacity are written, and GB_EFULL is returned
   when they do not fit. A text of n bytes has at most n * GB_TOKENIZER_TOKENS_PER_BYTE tokens. */
int gb_tokenizer_encode(const gb_tokenizer *tokenizer, const char *text, size_t bytes,
                        int32_t *tokens, size_t capacity, size_t *n, gb_error *err);

/* The bytes one token stands for (not valid UTF-8 alone in general). NULL and 0 for ids without a token. */
const char *gb_tokenizer_bytes(const gb_tokenizer *tokenizer, int32_t token, size_t *bytes);
bool        gb_tokenizer_is_special(const gb_tokenizer *tokenizer, int32_t token);
int32_t     gb_tokenizer_find(const gb_tokenizer *tokenizer, const char *content);    /* an added token's id by content; -1 */
uint32_t    gb_tokenizer_size(const gb_tokenizer *tokenizer);                         /* highest id + 1 */

/* Bytes in, whole UTF-8 characters out: state of one stream of text. Zero-initialise. Each maximal bad part becomes one
   U+FFFD (Unicode's "substitution of maximal subparts"). */
typedef struct gb_utf8_stream {
    unsigned char held[4];
    uint8_t n_held;
} gb_utf8_stream;

/* Appends bytes to the stream and writes the complete characters to out; returns how many bytes were written.
   out needs 3 * (bytes + 3) bytes. */
size_t gb_utf8_push(gb_utf8_stream *stream, const char *bytes, size_t n, char *out);
/* Writes what is held as U+FFFD (0 or 3 bytes) and empties the stream. */
size_t gb_utf8_flush(gb_utf8_stream *stream, char *out);

/* Whole-text detokenize, special tokens kept, invalid bytes replaced, ids without a token left out. *bytes = needed; GB_EFULL
   when above capacity; GB_EINVAL for an id that the model does not have. */
int gb_tokenizer_decode(const gb_tokenizer *tokenizer, const int32_t *tokens, size_t n, char *out, size_t capacity,
                        size_t *bytes, gb_error *err);

#endif
