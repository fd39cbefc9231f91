#include "core/model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/json.h"

enum { LENGTH_BYTES = 8 };

/* Every dtype of the format whose elements are whole bytes. */
static const struct {
    const char *name;
    uint32_t bytes;
} DTYPES[] = {
    {"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2},
    {"I32", 4}, {"U32", 4}, {"F32", 4}, {"I64", 8}, {"U64", 8}, {"F64", 8},
};

/* One tensor with the offsets of its data in the buffer. */
typedef struct entry {
    gb_safetensor tensor;
    uint64_t begin, end;
} entry;

typedef struct reader {
    const char *name;            /* of the file */
    gb_error *err;
    const unsigned char *buffer;
    uint64_t buffer_bytes;
    entry *entries;
    size_t n;
} reader;

#define FAIL(r, e, format, ...) \
    gb_fail((r)->err, GB_EFORMAT, "%s: tensor %s " format, (r)->name, gb_json_quote((e)->tensor.name).text, __VA_ARGS__)

/* A list of n non-negative integers. */
static bool read_integers(const json_t *list, size_t n, uint64_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
        out[i] = (uint64_t)json_integer_value(value);
    }
    return true;
}

static uint32_t dtype_bytes(const char *dtype)
{
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (!strcmp(dtype, DTYPES[i].name)) return DTYPES[i].bytes;
    return 0;
}

static int read_dtype(reader *r, entry *e, const json_t *value)
{
    if (!json_is_string(value)) return FAIL(r, e, "has no dtype%s", "");
    e->tensor.dtype = json_string_value(value);
    if (!dtype_bytes(e->tensor.dtype))
        return FAIL(r, e, "has the dtype \"%s\", which this reader does not know", gb_json_quote(e->tensor.dtype).text);
    return GB_OK;
}

static int read_shape(reader *r, entry *e, const json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > GB_SAFETENSORS_DIMS_MAX)
        return FAIL(r, e, "needs a shape of at most %d dimensions", GB_SAFETENSORS_DIMS_MAX);
    if (!read_integers(value, n, e->tensor.dims)) return FAIL(r, e, "has a shape that is not %s", "a list of sizes");
    e->tensor.n_dims = (uint32_t)n;
    return GB_OK;
}

/* Shape times element size, checked at every step; false when it does not fit 64 bits. */
static bool shape_bytes(const gb_safetensor *t, uint64_t *bytes)
{
    *bytes = dtype_bytes(t->dtype);
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (__builtin_mul_overflow(*bytes, t->dims[d], bytes)) return false;
    return true;
}

static int read_offsets(reader *r, entry *e, const json_t *value)
{
    uint64_t offsets[2], bytes;
    if (json_array_size(value) != 2 || !read_integers(value, 2, offsets) || offsets[0] > offsets[1])
        return FAIL(r, e, "needs data_offsets [begin, end]%s", "");
    if (!shape_bytes(&e->tensor, &bytes)) return FAIL(r, e, "has a shape that overflows%s", "");
    e->begin = offsets[0];
    e->end = offsets[1];
    if (e->end - e->begin != bytes)
        return FAIL(r, e, "has %llu bytes between its data_offsets, but its shape needs %llu", (unsigned long long)(e->end - e->begin),
                    (unsigned long long)bytes);
    if (e->end > r->buffer_bytes)
        return FAIL(r, e, "ends at byte %llu of %llu: the file is cut short; download it again", (unsigned long long)e->end,
                    (unsigned long long)r->buffer_bytes);
    e->tensor.bytes = (size_t)bytes;
    e->tensor.data = r->buffer + e->begin;
    return GB_OK;
}

static int read_entry(reader *r, entry *e, const char *name, const json_t *value)
{
    e->tensor.name = name;
    if (!json_is_object(value)) return FAIL(r, e, "is not described by %s", "an object");
    int status = read_dtype(r, e, json_object_get(value, "dtype"));
    if (!status) status = read_shape(r, e, json_object_get(value, "shape"));
    if (!status) status = read_offsets(r, e, json_object_get(value, "data_offsets"));
    return status;
}

static int read_entries(reader *r, json_t *header)
{
    const char *key;
    json_t *value;
    r->entries = calloc(json_object_size(header) + 1, sizeof *r->entries);
    if (!r->entries) return gb_fail(r->err, GB_ENOMEM, "no memory for the %zu tensors of %s", json_object_size(header), r->name);
    json_object_foreach(header, key, value) {
        if (!strcmp(key, "__metadata__")) continue;
        int status = read_entry(r, &r->entries[r->n++], key, value);
        if (status) return status;
    }
    return GB_OK;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors fill the buffer exactly, one after the other. */
static int check_layout(reader *r)
{
    uint64_t filled = 0;
    qsort(r->entries, r->n, sizeof *r->entries, by_offset);
    for (size_t i = 0; i < r->n; i++) {
        const entry *e = &r->entries[i];
        if (e->begin != filled)
            return FAIL(r, e, "begins at byte %llu, but the tensors before it end at %llu: data must not overlap or leave holes",
                        (unsigned long long)e->begin, (unsigned long long)filled);
        filled = e->end;
    }
    if (filled != r->buffer_bytes)
        return gb_fail(r->err, GB_EFORMAT, "%s: %llu bytes after the last tensor belong to none", r->name,
                       (unsigned long long)(r->buffer_bytes - filled));
    return GB_OK;
}

/* The header's length, checked against the file; the buffer is what follows the header. */
static int find_header(reader *r, const unsigned char *file, size_t bytes, uint64_t *header_bytes)
{
    if (bytes < LENGTH_BYTES)
        return gb_fail(r->err, GB_EFORMAT, "%s has %zu bytes: too short for a safetensors header", r->name, bytes);
    uint64_t n = 0;
    for (int i = LENGTH_BYTES; i-- > 0;) n = n << 8 | file[i];
    if (n < 2 || n > GB_SAFETENSORS_HEADER_MAX)
        return gb_fail(r->err, GB_EFORMAT, "%s announces a header of %llu bytes; it must have between 2 and %d", r->name,
                       (unsigned long long)n, GB_SAFETENSORS_HEADER_MAX);
    if (n > bytes - LENGTH_BYTES)
        return gb_fail(r->err, GB_EFORMAT, "%s announces a header of %llu bytes but has only %zu: the file is cut short; download it again",
                       r->name, (unsigned long long)n, bytes);
    *header_bytes = n;
    r->buffer = file + LENGTH_BYTES + n;
    r->buffer_bytes = bytes - LENGTH_BYTES - n;
    return GB_OK;
}

int gb_safetensors_read(const void *file, size_t bytes, const char *name, gb_safetensor_visit *visit, void *self, gb_error *err)
{
    reader r = {.name = name, .err = err};
    uint64_t header_bytes = 0;
    json_t *header = NULL;
    char header_name[1024];
    int status = find_header(&r, file, bytes, &header_bytes);
    if (status) return status;
    snprintf(header_name, sizeof header_name, "the header of %s", name);
    status = gb_json_parse(&header, (const char *)file + LENGTH_BYTES, (size_t)header_bytes, header_name, GB_JSON_EXACT_INTEGERS, err);
    if (!status) status = read_entries(&r, header);
    if (!status) status = check_layout(&r);
    for (size_t i = 0; i < r.n && !status; i++) status = visit(self, &r.entries[i].tensor, err);
    free(r.entries);
    json_decref(header);
    return status;
}
