#include "core/model/nfc.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/base/status.h"
#include "core/model/unicode.h"
#include "core/model/utf8.h"

/* Every character below composes with nothing before it and stands for itself. */
enum { FIRST_MARK = 0x300, IDEOGRAPHS_FIRST = 0x4e00, IDEOGRAPHS_LAST = 0x9fff };

enum { DECOMPOSED_MAX = 4, SHORT_RUN = 16, CLASSES = 256 };

static bool begins_segment(int32_t c) { return c < FIRST_MARK || (c >= IDEOGRAPHS_FIRST && c <= IDEOGRAPHS_LAST); }

/* A segment: from a character that cannot compose backwards to before the next one. */
typedef struct segment {
    int32_t *chars;
    size_t n, capacity;
} segment;

typedef struct output {
    char *bytes;
    size_t n, capacity;
} output;

static int write_char(output *o, int32_t c)
{
    if (o->capacity - o->n < 4) {
        size_t capacity = 2 * o->capacity + 64;
        char *grown = realloc(o->bytes, capacity);
        if (!grown) return GB_ENOMEM;
        o->bytes = grown;
        o->capacity = capacity;
    }
    o->n += gb_utf8_encode(o->bytes + o->n, c);
    return GB_OK;
}

/* ---- canonical order ---- */

static int combining_class(int32_t c) { return utf8proc_get_property(c)->combining_class; }

static void insertion_sort(int32_t *chars, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int32_t c = chars[i];
        size_t at = i;
        for (; at > 0 && combining_class(chars[at - 1]) > combining_class(c); at--) chars[at] = chars[at - 1];
        chars[at] = c;
    }
}

/* Stable counting sort: a text of nothing but marks must not take quadratic time. */
static int counting_sort(int32_t *chars, size_t n)
{
    size_t starts[CLASSES + 1] = {0};
    int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return GB_ENOMEM;
    for (size_t i = 0; i < n; i++) starts[combining_class(chars[i]) + 1]++;
    for (size_t k = 0; k < CLASSES; k++) starts[k + 1] += starts[k];
    for (size_t i = 0; i < n; i++) sorted[starts[combining_class(chars[i])]++] = chars[i];
    memcpy(chars, sorted, n * sizeof *sorted);
    free(sorted);
    return GB_OK;
}

/* Sorts each run of marks by combining class. */
static int order(int32_t *chars, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t run = 0;
        while (i + run < n && combining_class(chars[i + run])) run++;
        if (run > SHORT_RUN) {
            if (counting_sort(chars + i, run)) return GB_ENOMEM;
        } else {
            insertion_sort(chars + i, run);
        }
        i += run + 1;
    }
    return GB_OK;
}

/* ---- segments ---- */

static int add_char(segment *s, int32_t c)
{
    if (s->capacity - s->n < DECOMPOSED_MAX) {
        size_t capacity = 2 * s->capacity + 64;
        int32_t *grown = realloc(s->chars, capacity * sizeof *grown);
        if (!grown) return GB_ENOMEM;
        s->chars = grown;
        s->capacity = capacity;
    }
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, s->chars + s->n, DECOMPOSED_MAX, UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
    if (n < 0 || n > DECOMPOSED_MAX) return GB_EINTERNAL;
    s->n += (size_t)n;
    return GB_OK;
}

static int flush(segment *s, output *o)
{
    if (s->n > 1) {
        if (order(s->chars, s->n)) return GB_ENOMEM;
        s->n = (size_t)utf8proc_normalize_utf32(s->chars, (utf8proc_ssize_t)s->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    }
    for (size_t i = 0; i < s->n; i++)
        if (write_char(o, s->chars[i])) return GB_ENOMEM;
    s->n = 0;
    return GB_OK;
}

static int normalize_char(segment *s, output *o, int32_t c)
{
    if (!begins_segment(c) && !gb_unicode_inert(c)) return add_char(s, c);
    int status = flush(s, o);
    if (status) return status;
    return begins_segment(c) ? add_char(s, c) : write_char(o, c);
}

static bool is_plain(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0xcc) return false;    /* the lead byte of U+0300 */
    return true;
}

int gb_nfc(const char **out, size_t *out_bytes, char **owned, const char *text, size_t bytes)
{
    segment s = {0};
    output o = {0};
    int status = GB_OK;
    *out = text;
    *out_bytes = bytes;
    *owned = NULL;
    if (is_plain(text, bytes)) return GB_OK;
    for (size_t at = 0; at < bytes && !status;) {
        int32_t c = 0;
        at += gb_utf8_decode(&c, text + at, bytes - at);
        status = normalize_char(&s, &o, c);
    }
    if (!status) status = flush(&s, &o);
    free(s.chars);
    if (status) {
        free(o.bytes);
        return status;
    }
    *out = *owned = o.bytes;
    *out_bytes = o.n;
    return GB_OK;
}
