#define PCRE2_CODE_UNIT_WIDTH 8

#include "core/model/split.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/json.h"
#include "core/model/unicode.h"
#include "core/model/utf8.h"

struct gb_split {
    pcre2_code *stages[GB_SPLIT_STAGES_MAX];
    size_t n;
    pcre2_match_context *limits;
};

/* ---- what a pattern may contain ---- */

/* A pattern being read; what is refused is copied to bad. */
typedef struct scanner {
    const char *at;
    bool caseless;
    char bad[16];
} scanner;

static bool refuse(scanner *s, size_t n)
{
    snprintf(s->bad, sizeof s->bad, "%.*s", (int)n, s->at);
    return false;
}

/* "\p{L}", also N and M: the kinds that unicode.h knows. */
static bool scan_property(scanner *s)
{
    const char *p = s->at;
    if (p[2] != '{' || !p[3] || !strchr("LNM", p[3]) || p[4] != '}') return refuse(s, 8);
    s->at += 5;
    return true;
}

static bool scan_escape(scanner *s)
{
    char c = s->at[1];
    if (c == 'p' || c == 'P') return scan_property(s);
    if (!c || (isalnum((unsigned char)c) && !strchr("rntsS", c))) return refuse(s, 2);
    s->at += 2;
    return true;
}

/* "[...]": single characters, ranges of letters or digits, escapes. */
static bool scan_class(scanner *s)
{
    s->at++;
    if (*s->at == '^') s->at++;
    if (*s->at == ']') return refuse(s, 1);
    while (*s->at != ']') {
        const char *p = s->at;
        if (!*p || *p == '[' || !strncmp(p, "&&", 2)) return refuse(s, 2);
        bool range = *p == '-' && p[1] != ']' && p[-1] != '[' && p[-1] != '^';
        if (range && !(isalnum((unsigned char)p[-1]) && isalnum((unsigned char)p[1]) && p[-2] != '\\')) return refuse(s, 2);
        if (*p != '\\') s->at++;
        else if (!scan_escape(s)) return false;
    }
    s->at++;
    return true;
}

static bool scan_group(scanner *s)
{
    static const char *const KINDS[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (!strncmp(s->at, KINDS[i], strlen(KINDS[i]))) {
            s->caseless |= i == 1;
            s->at += strlen(KINDS[i]);
            return true;
        }
    if (s->at[1] == '?' || s->at[1] == '*') return refuse(s, 3);
    s->at++;
    return true;
}

/* "{n}", "{n,}", "{n,m}", greedy: what may follow the brace means different things to the two libraries. */
static bool scan_repeat(scanner *s)
{
    const char *p = s->at + 1;
    size_t digits = strspn(p, "0123456789");
    if (!digits || digits > 4) return refuse(s, 8);
    p += digits;
    if (*p == ',') p += 1 + strspn(p + 1, "0123456789");
    if (*p != '}' || (p[1] && strchr("?+*{", p[1]))) return refuse(s, 8);
    s->at = p + 1;
    return true;
}

static bool scan_one(scanner *s)
{
    switch (*s->at) {
    case '\\': return scan_escape(s);
    case '[': return scan_class(s);
    case '(': return scan_group(s);
    case '{': return scan_repeat(s);
    case '^':
    case '$':
    case '.':
    case ']':
    case '}': return refuse(s, 1);
    }
    s->at++;
    return true;
}

/* Letters that fold together into one character for Oniguruma alone ("ss" is also U+00DF). */
static bool has_fold(const char *pattern)
{
    static const char *const PAIRS[] = {"ss", "st", "ff", "fi", "fl"};
    for (const char *p = pattern; *p; p++)
        for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++)
            if (tolower((unsigned char)p[0]) == PAIRS[i][0] && tolower((unsigned char)p[1]) == PAIRS[i][1]) return true;
    return false;
}

static int check_pattern(const char *pattern, gb_error *err)
{
    scanner s = {.at = pattern};
    if (strlen(pattern) > GB_SPLIT_PATTERN_BYTES_MAX)
        return gb_fail(err, GB_ETOOBIG, "a split pattern has %zu bytes; at most %d are read", strlen(pattern),
                       GB_SPLIT_PATTERN_BYTES_MAX);
    for (const char *p = pattern; *p; p++)
        if ((unsigned char)*p >= 0x80 || (unsigned char)*p < 0x20)
            return gb_fail(err, GB_EUNSUPPORTED, "the split pattern %s has characters outside printable ASCII",
                           gb_json_quote(pattern).text);
    while (*s.at)
        if (!scan_one(&s))
            return gb_fail(err, GB_EUNSUPPORTED, "the split pattern uses \"%s\", which is not supported, in %s", s.bad,
                           gb_json_quote(pattern).text);
    if (s.caseless && has_fold(pattern))
        return gb_fail(err, GB_EUNSUPPORTED, "the split pattern %s ignores case where letters fold together",
                       gb_json_quote(pattern).text);
    return GB_OK;
}

/* ---- compiling ---- */

int gb_split_new(gb_split **out)
{
    gb_split *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return GB_ENOMEM;
    s->limits = pcre2_match_context_create(NULL);
    if (!s->limits) {
        free(s);
        *out = NULL;
        return GB_ENOMEM;
    }
    pcre2_set_match_limit(s->limits, GB_SPLIT_MATCH_LIMIT);
    pcre2_set_heap_limit(s->limits, GB_SPLIT_HEAP_KIB);
    return GB_OK;
}

void gb_split_free(gb_split *split)
{
    if (!split) return;
    for (size_t i = 0; i < split->n; i++) pcre2_code_free(split->stages[i]);
    pcre2_match_context_free(split->limits);
    free(split);
}

int gb_split_add(gb_split *split, const char *pattern, gb_error *err)
{
    int status = check_pattern(pattern, err);
    if (status) return status;
    if (split->n == GB_SPLIT_STAGES_MAX) return gb_fail(err, GB_ETOOBIG, "more than %d split patterns", GB_SPLIT_STAGES_MAX);
    int code;
    PCRE2_SIZE at;
    pcre2_code *stage = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!stage) {
        char reason[256] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return gb_fail(err, GB_EFORMAT, "the split pattern %s is not a regex: %s", gb_json_quote(pattern).text, reason);
    }
    uint32_t empty = 1;
    pcre2_pattern_info(stage, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) {
        pcre2_code_free(stage);
        return gb_fail(err, GB_EUNSUPPORTED, "the split pattern %s can match nothing", gb_json_quote(pattern).text);
    }
    pcre2_jit_compile(stage, PCRE2_JIT_COMPLETE);    /* without a JIT the same matches are found, more slowly */
    split->stages[split->n++] = stage;
    return GB_OK;
}

/* ---- matching ---- */

/* What the regex sees instead of a character outside ASCII: one of the same kind and the same bytes that every PCRE2 knows.
   So a cut does not depend on the Unicode version of the library. Rows are kinds, columns bytes. */
static const char *const STAND_INS[][5] = {
    [GB_UNICODE_OTHER] = {[2] = "\u00a7", [3] = "\u2020", [4] = "\U0001f600"},
    [GB_UNICODE_LETTER] = {[2] = "\u00e9", [3] = "\u4e00", [4] = "\U00020000"},
    [GB_UNICODE_NUMBER] = {[2] = "\u00b2", [3] = "\u2460", [4] = "\U0001d7ce"},
    [GB_UNICODE_MARK] = {[2] = "\u0301", [3] = "\u20d0", [4] = "\U0001d165"},
    [GB_UNICODE_SPACE] = {[2] = "\u00a0", [3] = "\u3000", [4] = "\u3000" /* none has four */},
};

/* The letters outside ASCII that are an s or a k when case is ignored stand for themselves. */
enum { LONG_S = 0x17f, KELVIN = 0x212a };

/* A text of the same length for the regexes; text itself when it is ASCII. */
static const char *make_shadow(char **owned, const char *text, size_t bytes)
{
    size_t at = 0;
    *owned = NULL;
    while (at < bytes && (unsigned char)text[at] < 0x80) at++;
    if (at == bytes) return text;
    char *shadow = malloc(bytes);
    *owned = shadow;
    if (!shadow) return NULL;
    memcpy(shadow, text, bytes);
    while (at < bytes) {
        int32_t c = 0;
        size_t n = gb_utf8_decode(&c, text + at, bytes - at);
        if (n > 1 && c != LONG_S && c != KELVIN) memcpy(shadow + at, STAND_INS[gb_unicode_kind_of(c)][n], n);
        at += n;
    }
    return shadow;
}

typedef struct walk {
    const gb_split *split;
    const char *text, *shadow;
    pcre2_match_data *match;
    gb_split_visit *visit;
    void *self;
    gb_error *err;
} walk;

static int match_failed(const walk *w, int code)
{
    char reason[256] = "";
    if (code == PCRE2_ERROR_NOMEMORY) return gb_fail(w->err, GB_ENOMEM, "no memory to split the text");
    pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return gb_fail(w->err, GB_EFORMAT, "the text cannot be split into words within the limits (%s); shorten its longest run", reason);
}

/* The next match in [at, end) of the piece that begins at begin: 1 and its borders, 0 when there is none. */
static int next_match(walk *w, const pcre2_code *stage, size_t begin, size_t end, size_t *first, size_t *last)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)w->shadow + begin;
    int code = pcre2_match(stage, subject, end - begin, *last - begin, PCRE2_NO_UTF_CHECK, w->match, w->split->limits);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT)    /* the interpreter takes its memory from the heap */
        code = pcre2_match(stage, subject, end - begin, *last - begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, w->split->limits);
    if (code == PCRE2_ERROR_NOMATCH) return 0;
    if (code < 0) return match_failed(w, code);
    PCRE2_SIZE *borders = pcre2_get_ovector_pointer(w->match);
    *first = begin + borders[0];
    *last = begin + borders[1];
    return 1;
}

/* Cuts [begin, end) by stage k and what comes of it by the stages behind. */
static int cut(walk *w, size_t k, size_t begin, size_t end)
{
    if (begin == end) return GB_OK;
    if (k == w->split->n) return w->visit(w->self, w->text + begin, end - begin);
    size_t first = begin, last = begin;
    for (;;) {
        size_t before = last;
        int found = next_match(w, w->split->stages[k], begin, end, &first, &last);
        if (found < 0) return found;
        if (!found) return cut(w, k + 1, before, end);
        int status = cut(w, k + 1, before, first);
        if (!status) status = cut(w, k + 1, first, last);
        if (status) return status;
    }
}

int gb_split_run(const gb_split *split, const char *text, size_t bytes, gb_split_visit *visit, void *self, gb_error *err)
{
    char *owned;
    walk w = {.split = split, .text = text, .shadow = make_shadow(&owned, text, bytes), .visit = visit, .self = self, .err = err};
    w.match = pcre2_match_data_create(1, NULL);
    int status = w.shadow && w.match ? cut(&w, 0, 0, bytes) : gb_fail(err, GB_ENOMEM, "no memory to split the text");
    pcre2_match_data_free(w.match);
    free(owned);
    return status;
}
