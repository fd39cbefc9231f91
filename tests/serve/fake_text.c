#include "tests/serve/fake_text.h"

#include <stdio.h>
#include <string.h>

#include "core/base/assert.h"

typedef struct writer {
    char text[1 << 17];
    size_t n;
} writer;

static writer json;

#define WRITE(...) (json.n += (size_t)snprintf(json.text + json.n, sizeof json.text - json.n, __VA_ARGS__))

/* Bytes that are printable in Latin-1 stand for themselves in the byte alphabet, the others for U+0100 and up. */
static void write_bytes(void)
{
    int next = 256;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        WRITE("%s\"\\u%04x\":%d", b ? "," : "", (unsigned)(printable ? b : next), b);
        next += !printable;
    }
}

gb_tokenizer *fake_tokenizer(const char *const *words, const char *const *special)
{
    gb_tokenizer *tokenizer = NULL;
    gb_error err = {{0}};
    int id = 256;
    json.n = 0;
    WRITE("{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    write_bytes();
    for (; words && *words; words++) WRITE(",\"%s\":%d", *words, id++);
    WRITE("}},\"added_tokens\":[");
    for (const char *comma = ""; special && *special; special++, comma = ",")
        WRITE("%s{\"id\":%d,\"content\":\"%s\",\"special\":true}", comma, id++, *special);
    WRITE("],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"post_processor\":null,"
          "\"decoder\":{\"type\":\"ByteLevel\"}}");
    GB_ASSERT(json.n < sizeof json.text && id <= FAKE_TEXT_VOCAB);
    int rc = gb_tokenizer_parse(&tokenizer, json.text, json.n, "fake", FAKE_TEXT_VOCAB, &err);
    if (rc) fprintf(stderr, "fake_tokenizer: %s\n", err.text);
    GB_ASSERT(rc == GB_OK);
    return tokenizer;
}
