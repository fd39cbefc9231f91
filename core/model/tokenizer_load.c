/* tokenizer.json becomes a gb_tokenizer: each part is understood as the reference understands it, or refused by name. */
#include "core/model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/json.h"
#include "core/model/nfc.h"
#include "core/model/tokenizer_parts.h"
#include "core/model/utf8.h"

/* What ByteLevel cuts by when use_regex is set. */
static const char BYTE_LEVEL_PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

enum { BYTES = 256, WHERE_BYTES = 1024 };

typedef struct loader {
    gb_tokenizer *t;
    const json_t *vocab;          /* token string to id */
    const char *name;             /* of the file */
    gb_error *err;
    bool has_byte_level;          /* the pre-tokenizer ended with ByteLevel */
} loader;

#define FAIL(l, status, format, ...) gb_fail((l)->err, status, "%s: " format, (l)->name, __VA_ARGS__)
#define NO_MEMORY(l) FAIL(l, GB_ENOMEM, "no memory for %s", "the tokenizer")

/* ---- the byte alphabet: every byte has a printable character ---- */

/* Bytes that are printable in Latin-1 stand for themselves, the others for U+0100 and up in their order. */
static bool is_printable(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static int32_t char_of_byte(int byte)
{
    int32_t next = BYTES;
    if (is_printable(byte)) return byte;
    for (int b = 0; b < byte; b++) next += !is_printable(b);
    return next;
}

/* -1 for a character that is no byte's. */
static int byte_of_char(int32_t c)
{
    if (c < BYTES) return is_printable((int)c) ? (int)c : -1;
    for (int b = 0; b < BYTES; b++)
        if (!is_printable(b) && c-- == BYTES) return b;
    return -1;
}

/* Spells the bytes a string of the alphabet stands for, at most as many as it has; false for a string with other characters. */
static bool spell(char *out, size_t *written, const char *string, size_t n)
{
    *written = 0;
    for (size_t at = 0; at < n;) {
        int32_t c = 0;
        at += gb_utf8_decode(&c, string + at, n - at);
        int byte = byte_of_char(c);
        if (byte < 0) return false;
        out[(*written)++] = (char)byte;
    }
    return true;
}

/* ---- vocabulary ---- */

static int check_id(const loader *l, const char *string, const json_t *id)
{
    if (!json_is_integer(id)) return FAIL(l, GB_EFORMAT, "the id of token \"%s\" is not a whole number", gb_json_quote(string).text);
    if (json_integer_value(id) < 0 || json_integer_value(id) >= l->t->vocab)
        return FAIL(l, GB_EFORMAT, "token \"%s\" has the id %lld; the model's ids go from 0 to %u", gb_json_quote(string).text,
                    (long long)json_integer_value(id), l->t->vocab - 1);
    return GB_OK;
}

/* A string that is not of the byte alphabet stands for itself. */
static void set_text(gb_tokenizer *t, int32_t id, char *into, const char *string, size_t n)
{
    size_t bytes;
    bool spelled = spell(into, &bytes, string, n);
    if (!spelled) memcpy(into, string, n);
    t->texts[id] = (gb_token_text){.bytes = into, .n = (uint32_t)(spelled ? bytes : n), .is_word = spelled};
    if ((uint32_t)id >= t->size) t->size = (uint32_t)id + 1;
}

static int load_vocab(loader *l)
{
    const char *string;
    json_t *id;
    size_t total = 1;
    json_object_foreach((json_t *)l->vocab, string, id) total += strlen(string);
    char *blob = gb_arena_take(&l->t->arena, total, 1);
    if (!blob) return NO_MEMORY(l);
    json_object_foreach((json_t *)l->vocab, string, id) {
        int status = check_id(l, string, id);
        if (status) return status;
        int32_t token = (int32_t)json_integer_value(id);
        size_t n = strlen(string);
        if (l->t->texts[token].bytes)
            return FAIL(l, GB_EFORMAT, "two tokens have the id %d; one is \"%s\"", token, gb_json_quote(string).text);
        set_text(l->t, token, blob, string, n);
        blob += n;
    }
    return GB_OK;
}

static int load_byte_ids(loader *l)
{
    for (int byte = 0; byte < BYTES; byte++) {
        char string[8];
        string[gb_utf8_encode(string, char_of_byte(byte))] = '\0';
        const json_t *id = json_object_get(l->vocab, string);
        if (!id) return FAIL(l, GB_EUNSUPPORTED, "the vocabulary has no token for the byte 0x%02x (\"%s\")", (unsigned)byte, string);
        l->t->bpe.byte_ids[byte] = (int32_t)json_integer_value(id);
    }
    return GB_OK;
}

/* ---- merges ---- */

/* The two halves of a merge, "a b" or ["a", "b"]: left with its bytes, right to its end. */
static bool halves(const json_t *merge, const char **left, size_t *n_left, const char **right)
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left = json_string_value(json_array_get(merge, 0));
        *right = json_string_value(json_array_get(merge, 1));
        *n_left = *left ? strlen(*left) : 0;
        return *left && *right;
    }
    *left = json_string_value(merge);
    const char *space = *left ? strchr(*left, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return false;
    *n_left = (size_t)(space - *left);
    *right = space + 1;
    return true;
}

static int find_half(const loader *l, uint32_t rank, const char *string, int32_t *id)
{
    const json_t *value = json_object_get(l->vocab, string);
    if (!value)
        return FAIL(l, GB_EFORMAT, "merge %u names the token \"%s\", which the vocabulary does not have", rank, gb_json_quote(string).text);
    *id = (int32_t)json_integer_value(value);
    return GB_OK;
}

/* buffer has room for the halves together. */
static int load_merge(loader *l, uint32_t rank, const json_t *merge, char *buffer)
{
    const char *left, *right;
    size_t n_left;
    int32_t left_id = 0, right_id = 0, id = 0;
    if (!halves(merge, &left, &n_left, &right)) return FAIL(l, GB_EFORMAT, "merge %u is not a pair of tokens", rank);
    memcpy(buffer, left, n_left);
    buffer[n_left] = '\0';
    int status = find_half(l, rank, buffer, &left_id);
    if (!status) status = find_half(l, rank, right, &right_id);
    memcpy(buffer + n_left, right, strlen(right) + 1);
    if (!status) status = find_half(l, rank, buffer, &id);
    if (!status) gb_bpe_set_merge(&l->t->bpe, left_id, right_id, rank, id);
    return status;
}

static size_t merge_bytes(const json_t *merge)
{
    return json_is_array(merge) ? json_string_length(json_array_get(merge, 0)) + json_string_length(json_array_get(merge, 1))
                                : json_string_length(merge);
}

static int load_merges(loader *l, const json_t *merges)
{
    size_t longest = 0, i;
    const json_t *merge;
    if (gb_bpe_init(&l->t->bpe, json_array_size(merges))) return NO_MEMORY(l);
    json_array_foreach(merges, i, merge) if (merge_bytes(merge) > longest) longest = merge_bytes(merge);
    char *buffer = malloc(longest + 1);
    if (!buffer) return NO_MEMORY(l);
    uint32_t rank = 0;
    int status = GB_OK;
    json_array_foreach(merges, i, merge) {
        const char *line = json_string_value(merge);
        if (line && !strncmp(line, "#version", 8)) continue;
        status = load_merge(l, rank++, merge, buffer);
        if (status) break;
    }
    free(buffer);
    return status;
}

/* ---- model ---- */

/* Settings that must be absent, empty, false or zero. */
static void refuse_set(gb_fields *f, const char *key)
{
    const json_t *value = json_object_get(f->object, key);
    bool set = value && !json_is_null(value) && !json_is_false(value) && !(json_is_string(value) && !json_string_length(value)) &&
               !(json_is_number(value) && json_number_value(value) == 0);
    if (set) gb_fields_fail(f, GB_EUNSUPPORTED, "%s is set, which is not supported", key);
}

/* With ignore_merges a word that is a token is that token. */
static int load_words(loader *l)
{
    gb_tokenizer *t = l->t;
    t->n_words = 16;
    while (t->n_words < 2 * (size_t)t->size) t->n_words *= 2;
    t->words = GB_ARENA_NEW(&t->arena, uint32_t, t->n_words);
    if (!t->words) return NO_MEMORY(l);
    for (uint32_t id = 0; id < t->size; id++)
        if (t->texts[id].is_word) *gb_tokenizer_word_slot(t, t->texts[id].bytes, t->texts[id].n) = id + 1;
    return GB_OK;
}

static int load_model(loader *l, json_t *model)
{
    char where[WHERE_BYTES];
    snprintf(where, sizeof where, "%s: model.", l->name);
    gb_fields f = {.object = model, .where = where, .err = l->err};
    const char *type = gb_fields_string(&f, "type", "BPE");
    if (strcmp(type, "BPE") != 0) gb_fields_fail(&f, GB_EUNSUPPORTED, "type is \"%s\"; only BPE is supported", gb_json_quote(type).text);
    refuse_set(&f, "dropout");
    refuse_set(&f, "continuing_subword_prefix");
    refuse_set(&f, "end_of_word_suffix");
    bool ignore_merges = gb_fields_bool(&f, "ignore_merges", false);
    l->vocab = gb_fields_object(&f, "vocab");
    const json_t *merges = gb_fields_array(&f, "merges");
    if (!l->vocab || !merges) gb_fields_fail(&f, GB_EFORMAT, "%s is missing", l->vocab ? "merges" : "vocab");
    if (f.status) return f.status;
    int status = load_vocab(l);
    if (!status) status = load_merges(l, merges);
    if (!status) status = load_byte_ids(l);
    if (!status && ignore_merges) status = load_words(l);
    return status;
}

/* ---- added tokens ---- */

/* A new id must be free; a token that the vocabulary has keeps its id there. */
static int check_added_id(const loader *l, const char *content, const json_t *id)
{
    int status = check_id(l, content, id);
    if (status) return status;
    int32_t token = (int32_t)json_integer_value(id);
    const json_t *in_vocab = json_object_get(l->vocab, content);
    if (in_vocab && json_integer_value(in_vocab) != token)
        return FAIL(l, GB_EFORMAT, "the added token \"%s\" has the id %d, but %lld in the vocabulary", gb_json_quote(content).text, token,
                    (long long)json_integer_value(in_vocab));
    if (!in_vocab && l->t->texts[token].bytes)
        return FAIL(l, GB_EFORMAT, "the added token \"%s\" has the id %d of another token", gb_json_quote(content).text, token);
    return GB_OK;
}

/* Registers the text to match, which is also what the token decodes to. */
static int set_text_to_match(loader *l, const gb_added_token *token, bool normalized, const char *text, size_t n)
{
    if (n > GB_ADDED_BYTES_MAX)
        return FAIL(l, GB_ETOOBIG, "the added token %d has %zu bytes; at most %d are matched", token->id, n, GB_ADDED_BYTES_MAX);
    char *into = gb_arena_take(&l->t->arena, n, 1);
    if (!into) return NO_MEMORY(l);
    int status = gb_added_set(normalized ? &l->t->normalized : &l->t->raw, text, n, token);
    if (status == GB_EEXIST) return FAIL(l, GB_EFORMAT, "the text of the added token %d is another's, too", token->id);
    if (status) return NO_MEMORY(l);
    set_text(l->t, token->id, into, text, n);
    return GB_OK;
}

static int set_added(loader *l, const gb_added_token *token, bool normalized, bool special, const char *content)
{
    const char *text = content;
    size_t n = strlen(content);
    char *owned = NULL;
    if (normalized && l->t->nfc && gb_nfc(&text, &n, &owned, content, n)) return NO_MEMORY(l);
    int status = set_text_to_match(l, token, normalized, text, n);
    if (!status) l->t->texts[token->id].special = special;
    free(owned);
    return status;
}

static int add_name(loader *l, const char *content, int32_t id)
{
    size_t bytes = strlen(content) + 1;
    char *copy = gb_arena_take(&l->t->arena, bytes, 1);
    if (!copy) return NO_MEMORY(l);
    memcpy(copy, content, bytes);
    l->t->added[l->t->n_added++] = (gb_added_name){copy, id};
    return GB_OK;
}

static int load_added_token(loader *l, const json_t *object)
{
    char where[WHERE_BYTES];
    snprintf(where, sizeof where, "%s: added_tokens: ", l->name);
    gb_fields f = {.object = object, .where = where, .err = l->err};
    if (!json_is_object(object)) gb_fields_fail(&f, GB_EFORMAT, "each must be an object");
    const char *content = gb_fields_string(&f, "content", "");
    if (!*content) gb_fields_fail(&f, GB_EFORMAT, "one has no content");
    bool special = gb_fields_bool(&f, "special", false), normalized = gb_fields_bool(&f, "normalized", !special);
    gb_added_token token = {.lstrip = gb_fields_bool(&f, "lstrip", false), .rstrip = gb_fields_bool(&f, "rstrip", false)};
    if (gb_fields_bool(&f, "single_word", false))
        gb_fields_fail(&f, GB_EUNSUPPORTED, "\"%s\" sets single_word, which is not supported", gb_json_quote(content).text);
    if (f.status) return f.status;
    const json_t *id = json_object_get(object, "id");
    int status = check_added_id(l, content, id);
    if (status) return status;
    token.id = (int32_t)json_integer_value(id);
    status = set_added(l, &token, normalized, special, content);
    return status ? status : add_name(l, content, token.id);
}

static int load_added(loader *l, const json_t *list)
{
    size_t i;
    const json_t *object;
    l->t->added = GB_ARENA_NEW(&l->t->arena, gb_added_name, json_array_size(list));
    if (!l->t->added) return NO_MEMORY(l);
    json_array_foreach(list, i, object) {
        int status = load_added_token(l, object);
        if (status) return status;
    }
    return GB_OK;
}

/* ---- the steps around the model ---- */

/* A step with a type: "" when the type is missing. */
static const char *type_of(const json_t *step)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    return type ? type : "";
}

static int refuse_step(const loader *l, const char *step, const json_t *value, const char *supported)
{
    return FAIL(l, GB_EUNSUPPORTED, "the %s \"%s\" is not supported; supported: %s", step, gb_json_quote(type_of(value)).text, supported);
}

static int load_normalizer(loader *l, const json_t *step)
{
    size_t i;
    const json_t *inner;
    if (json_is_null(step) || !step) return GB_OK;
    if (!strcmp(type_of(step), "NFC")) {
        l->t->nfc = true;
        return GB_OK;
    }
    if (strcmp(type_of(step), "Sequence") != 0) return refuse_step(l, "normalizer", step, "NFC");
    json_array_foreach(json_object_get(step, "normalizers"), i, inner) {
        if (strcmp(type_of(inner), "NFC") != 0) return refuse_step(l, "normalizer", inner, "NFC");
        l->t->nfc = true;
    }
    return GB_OK;
}

static int load_split(loader *l, gb_fields *f)
{
    const char *behavior = gb_fields_string(f, "behavior", ""), *pattern = NULL;
    if (gb_fields_bool(f, "invert", false)) gb_fields_fail(f, GB_EUNSUPPORTED, "invert is set, which is not supported");
    if (strcmp(behavior, "Isolated") != 0)
        gb_fields_fail(f, GB_EUNSUPPORTED, "behavior is \"%s\"; only Isolated is supported", gb_json_quote(behavior).text);
    pattern = json_string_value(json_object_get(gb_fields_object(f, "pattern"), "Regex"));
    if (!pattern) gb_fields_fail(f, GB_EUNSUPPORTED, "pattern must be a Regex");
    if (f->status) return f->status;
    gb_error inner = {0};
    int status = gb_split_add(l->t->split, pattern, &inner);
    return status ? FAIL(l, status, "%s", inner.text) : GB_OK;
}

static int load_byte_level(loader *l, gb_fields *f)
{
    if (gb_fields_bool(f, "add_prefix_space", true))
        gb_fields_fail(f, GB_EUNSUPPORTED, "add_prefix_space is set, which is not supported");
    l->has_byte_level = true;
    if (!gb_fields_bool(f, "use_regex", true) || f->status) return f->status;
    return gb_split_add(l->t->split, BYTE_LEVEL_PATTERN, l->err);
}

static int load_pre_tokenizer(loader *l, const json_t *step)
{
    char where[WHERE_BYTES];
    snprintf(where, sizeof where, "%s: pre_tokenizer %s: ", l->name, gb_json_quote(type_of(step)).text);
    gb_fields f = {.object = step, .where = where, .err = l->err};
    if (l->has_byte_level) return FAIL(l, GB_EUNSUPPORTED, "a pre_tokenizer behind %s is not supported", "ByteLevel");
    if (!strcmp(type_of(step), "Split")) return load_split(l, &f);
    if (!strcmp(type_of(step), "ByteLevel")) return load_byte_level(l, &f);
    return refuse_step(l, "pre_tokenizer", step, "Split, ByteLevel and a Sequence of them");
}

static int load_pre_tokenizers(loader *l, const json_t *step)
{
    size_t i;
    const json_t *inner;
    int status = GB_OK;
    if (strcmp(type_of(step), "Sequence") != 0) {
        status = load_pre_tokenizer(l, step);
    } else {
        json_array_foreach(json_object_get(step, "pretokenizers"), i, inner) {
            status = load_pre_tokenizer(l, inner);
            if (status) break;
        }
    }
    if (!status && !l->has_byte_level) return FAIL(l, GB_EUNSUPPORTED, "the pre_tokenizer has no %s step", "ByteLevel");
    return status;
}

/* ByteLevel only moves offsets, which nobody asks for; any other processor would add tokens. */
static int check_post_processor(const loader *l, const json_t *step)
{
    size_t i;
    const json_t *inner;
    if (!step || json_is_null(step) || !strcmp(type_of(step), "ByteLevel")) return GB_OK;
    if (strcmp(type_of(step), "Sequence") != 0) return refuse_step(l, "post_processor", step, "ByteLevel");
    json_array_foreach(json_object_get(step, "processors"), i, inner) {
        if (strcmp(type_of(inner), "ByteLevel") != 0) return refuse_step(l, "post_processor", inner, "ByteLevel");
    }
    return GB_OK;
}

static int load_steps(loader *l, const json_t *root)
{
    if (gb_split_new(&l->t->split)) return NO_MEMORY(l);
    int status = load_normalizer(l, json_object_get(root, "normalizer"));
    if (!status) status = load_pre_tokenizers(l, json_object_get(root, "pre_tokenizer"));
    if (!status) status = check_post_processor(l, json_object_get(root, "post_processor"));
    const json_t *decoder = json_object_get(root, "decoder");
    if (!status && strcmp(type_of(decoder), "ByteLevel") != 0) status = refuse_step(l, "decoder", decoder, "ByteLevel");
    return status;
}

/* ---- the file ---- */

static int load_root(loader *l, json_t *root)
{
    char where[WHERE_BYTES];
    snprintf(where, sizeof where, "%s: ", l->name);
    gb_fields f = {.object = root, .where = where, .err = l->err};
    const char *version = gb_fields_string(&f, "version", "1.0");
    if (strcmp(version, "1.0") != 0)
        gb_fields_fail(&f, GB_EUNSUPPORTED, "version is \"%s\"; only 1.0 is supported", gb_json_quote(version).text);
    refuse_set(&f, "truncation");
    refuse_set(&f, "padding");
    json_t *model = gb_fields_object(&f, "model"), *added = gb_fields_array(&f, "added_tokens");
    if (!model) gb_fields_fail(&f, GB_EFORMAT, "model is missing");
    if (f.status) return f.status;
    int status = load_steps(l, root);
    if (!status) status = load_model(l, model);
    if (!status) status = load_added(l, added);
    return status;
}

static int new_tokenizer(gb_tokenizer **out, uint32_t vocab)
{
    gb_tokenizer *t = calloc(1, sizeof *t);
    *out = t;
    if (!t) return GB_ENOMEM;
    gb_arena_init(&t->arena);
    t->vocab = vocab;
    t->texts = GB_ARENA_NEW(&t->arena, gb_token_text, vocab);
    return t->texts ? GB_OK : GB_ENOMEM;
}

int gb_tokenizer_parse(gb_tokenizer **out, const char *json, size_t bytes, const char *name, uint32_t vocab, gb_error *err)
{
    json_t *root;
    loader l = {.name = name, .err = err};
    *out = NULL;
    int status = gb_json_parse(&root, json, bytes, name, GB_JSON_EXACT_INTEGERS, err);
    if (status) return status;
    status = new_tokenizer(&l.t, vocab) ? NO_MEMORY(&l) : load_root(&l, root);
    json_decref(root);
    if (status) {
        gb_tokenizer_free(l.t);
        return status;
    }
    *out = l.t;
    return GB_OK;
}

int gb_tokenizer_load(gb_tokenizer **out, const char *dir, uint32_t vocab, gb_error *err)
{
    char *text, path[WHERE_BYTES];
    size_t bytes;
    *out = NULL;
    int status = gb_file_read(&text, &bytes, dir, "tokenizer.json", GB_JSON_TOKENIZER_BYTES_MAX, err);
    if (status) return status;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    status = gb_tokenizer_parse(out, text, bytes, path, vocab, err);
    free(text);
    return status;
}
