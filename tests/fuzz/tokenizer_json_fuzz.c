/* Any bytes as tokenizer.json: refused with a sentence, or a tokenizer that encodes and decodes. So that inputs stay small,
   the byte alphabet is put into the vocabulary where the text says "@@" (in place of a first member). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/model/tokenizer.h"

enum { VOCAB = 512, ALPHABET_BYTES = 8192 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t write_alphabet(char *out)
{
    size_t at = 0;
    int next = 256;
    for (int b = 0; b < 256; b++) {
        int printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        at += (size_t)snprintf(out + at, ALPHABET_BYTES - at, "%s\"\\u%04x\":%d", b ? "," : "", (unsigned)(printable ? b : next), b);
        next += !printable;
    }
    return at;
}

/* data with the alphabet in place of its first "@@". */
static char *expand(const uint8_t *data, size_t size, size_t *bytes)
{
    char *text = malloc(size + ALPHABET_BYTES);
    size_t at = 0;
    if (!text) return NULL;
    while (at + 1 < size && memcmp(data + at, "@@", 2)) at++;
    if (at + 1 >= size) {
        memcpy(text, data, size);
        *bytes = size;
        return text;
    }
    memcpy(text, data, at);
    size_t n = write_alphabet(text + at);
    memcpy(text + at + n, data + at + 2, size - at - 2);
    *bytes = size - 2 + n;
    return text;
}

static void use(const gb_tokenizer *t)
{
    static const char TEXT[] = "it's <a>  1234 \xc3\xa9 e\xcc\x81\n\n\xe4\xb8\xad a b ab abc <|x|> ";
    int32_t ids[256];
    char back[2048];
    size_t n, bytes;
    gb_error err = {0};
    int status = gb_tokenizer_encode(t, TEXT, sizeof TEXT - 1, ids, 256, &n, &err);
    GB_ASSERT(status == GB_OK || err.text[0]);
    if (status) return;
    for (size_t i = 0; i < n; i++) GB_ASSERT(ids[i] >= 0 && ids[i] < VOCAB && gb_tokenizer_bytes(t, ids[i], &bytes));
    status = gb_tokenizer_decode(t, ids, n, back, sizeof back, &bytes, &err);
    GB_ASSERT(status == GB_OK || status == GB_EFULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gb_tokenizer *t;
    gb_error err = {0};
    size_t bytes = 0;
    char *text = expand(data, size, &bytes);
    if (!text) return 0;
    if (gb_tokenizer_parse(&t, text, bytes, "tokenizer.json", VOCAB, &err)) GB_ASSERT(!t && err.text[0]);
    else use(t);
    gb_tokenizer_free(t);
    free(text);
    return 0;
}
