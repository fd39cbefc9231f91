/* Any bytes as a text for the bundled tokenizer, and as token ids: invalid UTF-8 is refused where it begins; what is encoded
   decodes to itself when it was in normal form; a stream cut anywhere gives the text that the whole gives. */
#include <stdlib.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/model/nfc.h"
#include "core/model/tokenizer.h"
#include "core/model/utf8.h"

enum { VOCAB = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const gb_tokenizer *t, const char *text, size_t size)
{
    size_t n, bytes, capacity = 3 * size + 1;
    int32_t *ids = malloc(capacity * sizeof *ids);
    char *back = malloc(capacity), *owned = NULL;
    const char *normal;
    gb_error err = {0};
    int status = gb_tokenizer_encode(t, text, size, ids, capacity, &n, &err);
    GB_ASSERT((status == GB_EFORMAT) == (gb_utf8_check(text, size) < size));
    if (!status && !gb_nfc(&normal, &bytes, &owned, text, size) && bytes == size && !memcmp(normal, text, size)) {
        GB_ASSERT(!gb_tokenizer_decode(t, ids, n, back, capacity, &bytes, &err));
        GB_ASSERT(bytes == size && !memcmp(back, text, size));
    }
    free(owned);
    free(back);
    free(ids);
}

static void check_ids(const gb_tokenizer *t, const uint8_t *data, size_t size)
{
    enum { N = 64 };
    int32_t ids[N];
    size_t n = size / 2 < N ? size / 2 : N, bytes, written = 0;
    char whole[N * 512], streamed[N * 512];
    gb_error err = {0};
    gb_utf8_stream stream = {0};
    for (size_t i = 0; i < n; i++) ids[i] = (data[2 * i] | data[2 * i + 1] << 8) % VOCAB;
    GB_ASSERT(!gb_tokenizer_decode(t, ids, n, whole, sizeof whole, &bytes, &err));
    for (size_t i = 0; i < n; i++) {
        size_t m;
        const char *part = gb_tokenizer_bytes(t, ids[i], &m);
        written += gb_utf8_push(&stream, part, m, streamed + written);
        GB_ASSERT(gb_utf8_check(streamed, written) == written);
    }
    written += gb_utf8_flush(&stream, streamed + written);
    GB_ASSERT(written == bytes && !memcmp(streamed, whole, bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gb_tokenizer *t;
    gb_error err = {0};
    if (!t) GB_ASSERT(!gb_tokenizer_load(&t, GB_SOURCE_DIR "/examples/models/tiny-moe", VOCAB, &err));
    check_round_trip(t, (const char *)data, size);
    check_ids(t, data, size);
    return 0;
}
