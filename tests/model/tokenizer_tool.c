/* A tokenizer on a pipe, for tokenizer_diff.py: tokenizer_tool TOKENIZER_JSON VOCAB. Each request is a letter and a counted
   list, each answer a counted list; counts are u32, everything is in the machine's byte order.
     'e' bytes       ->  ids, and for a refused text the count 0xffffffff
     'd' ids (i32)   ->  bytes */
#include <stdio.h>
#include <stdlib.h>

#include "core/model/tokenizer.h"

static char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) return NULL;
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*bytes + 1);
    if (text && fread(text, 1, *bytes, f) != *bytes) return NULL;
    fclose(f);
    return text;
}

static void answer(uint32_t n, const void *data, size_t bytes)
{
    fwrite(&n, sizeof n, 1, stdout);
    fwrite(data, 1, bytes, stdout);
    fflush(stdout);
}

static void encode(const gb_tokenizer *t, const char *text, size_t bytes)
{
    gb_error err = {0};
    size_t n, capacity = 3 * bytes + 1;    /* NFC makes a text at most three times as long */
    int32_t *ids = malloc(capacity * sizeof *ids);
    if (!ids || gb_tokenizer_encode(t, text, bytes, ids, capacity, &n, &err)) answer(UINT32_MAX, "", 0);
    else answer((uint32_t)n, ids, n * sizeof *ids);
    free(ids);
}

static int decode(const gb_tokenizer *t, const int32_t *ids, size_t n)
{
    gb_error err = {0};
    size_t bytes, needed;
    gb_tokenizer_decode(t, ids, n, NULL, 0, &bytes, &err);
    char *text = malloc(bytes + 1);
    int status = text ? gb_tokenizer_decode(t, ids, n, text, bytes, &needed, &err) : GB_ENOMEM;
    if (!status) answer((uint32_t)needed, text, needed);
    free(text);
    return status;
}

int main(int argc, char **argv)
{
    gb_error err = {0};
    gb_tokenizer *t;
    size_t bytes;
    char *json = argc == 3 ? read_file(argv[1], &bytes) : NULL;
    if (!json || gb_tokenizer_parse(&t, json, bytes, argv[1], (uint32_t)strtoul(argv[2], NULL, 10), &err)) {
        fprintf(stderr, "tokenizer_tool: %s\n", json ? err.text : "usage: tokenizer_tool TOKENIZER_JSON VOCAB");
        return 1;
    }
    free(json);
    for (int letter; (letter = getchar()) != EOF;) {
        uint32_t n;
        size_t size = letter == 'd' ? sizeof(int32_t) : 1;
        if (fread(&n, sizeof n, 1, stdin) != 1) return 1;
        void *data = malloc((size_t)n * size + 1);
        if (!data || fread(data, size, n, stdin) != n) return 1;
        if (letter == 'e') encode(t, data, n);
        else if (decode(t, data, n)) return 1;
        free(data);
    }
    gb_tokenizer_free(t);
    return 0;
}
