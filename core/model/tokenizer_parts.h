/* The inside of a tokenizer, shared by the two files that fill it and use it. */
#ifndef GB_MODEL_TOKENIZER_PARTS_H
#define GB_MODEL_TOKENIZER_PARTS_H

#include "core/base/arena.h"
#include "core/model/added.h"
#include "core/model/bpe.h"
#include "core/model/split.h"
#include "core/model/tokenizer.h"

/* What a token stands for; bytes is NULL for an id without a token. */
typedef struct gb_token_text {
    const char *bytes;
    uint32_t n;
    bool special;
    bool is_word;        /* a string of the byte alphabet: words can be it */
} gb_token_text;

typedef struct gb_added_name {
    const char *content;
    int32_t id;
} gb_added_name;

struct gb_tokenizer {
    gb_arena arena;               /* texts, names, words */
    uint32_t vocab, size;         /* ids the model has; highest id of a token + 1 */
    gb_token_text *texts;         /* [vocab] */
    gb_added raw, normalized;     /* matched before and after NFC */
    gb_added_name *added;
    size_t n_added;
    bool nfc;
    gb_split *split;
    gb_bpe bpe;
    uint32_t *words;              /* with ignore_merges: id + 1 of the token that is a word, open addressing; else NULL */
    size_t n_words;               /* slots, a power of two */
};

/* The slot of `words` that holds a token of these bytes, or the free one where it belongs. */
uint32_t *gb_tokenizer_word_slot(const gb_tokenizer *tokenizer, const char *bytes, size_t n);

#endif
