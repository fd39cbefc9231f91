/* JSON from files that nobody vouches for. A text is capped in bytes, depth and values before jansson sees it; it must be
   UTF-8 without duplicate keys. Every refusal is a sentence with the file and the place in it.

   gb_fields reads the members of one object and remembers the first thing that went wrong, so that a parser is a list of
   fields with their ranges and one check at the end. A null member counts as absent. */
#ifndef GB_MODEL_JSON_H
#define GB_MODEL_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

enum {
    GB_JSON_DEPTH_MAX = 32,
    GB_JSON_VALUES_MAX = 8 * 1024 * 1024,          /* bounds the tree: jansson takes up to about 100 bytes a value */
    GB_JSON_CONFIG_BYTES_MAX = 4 * 1024 * 1024,
    GB_JSON_INDEX_BYTES_MAX = 100 * 1000 * 1000,
    GB_JSON_TOKENIZER_BYTES_MAX = 256 * 1024 * 1024,
};

/* Integers become reals, so that one of 2^63 is refused by the field that holds it instead of failing the whole text. */
typedef enum gb_json_numbers { GB_JSON_EXACT_INTEGERS, GB_JSON_ALL_REALS } gb_json_numbers;

/* name is what sentences call the text. The root must be an object. json_decref(*out) is the caller's. */
int gb_json_parse(json_t **out, const char *text, size_t bytes, const char *name, gb_json_numbers numbers, gb_error *err);

/* The whole of DIR/name, at most bytes_max of it; free(*text) is the caller's. GB_ENOTFOUND, GB_EIO, GB_ETOOBIG. */
int gb_file_read(char **text, size_t *bytes, const char *dir, const char *name, size_t bytes_max, gb_error *err);

/* Opens DIR/name, a regular file, and gives its size; the sentence says whether directory or file is at fault. */
int gb_file_open(int *fd, size_t *bytes, const char *dir, const char *name, gb_error *err);

/* A string from a file made fit for a sentence: control characters become '?', the end of a long one "...". */
enum { GB_QUOTE_BYTES = 100 };
typedef struct gb_quote { char text[GB_QUOTE_BYTES]; } gb_quote;
gb_quote gb_json_quote(const char *text);

typedef struct gb_fields {
    const json_t *object;
    const char *where;      /* "config.json: ", or "config.json: rope_scaling." */
    gb_error *err;
    int status;             /* of the first bad field; later ones do not replace it */
} gb_fields;

/* Present members must have the type and lie within [min, max]. The need_ forms refuse absence, the others answer with
   fallback. After a failure they all answer with fallback or min. */
bool        gb_fields_has(const gb_fields *f, const char *key);
int64_t     gb_fields_int(gb_fields *f, const char *key, int64_t min, int64_t max, int64_t fallback);
int64_t     gb_fields_need_int(gb_fields *f, const char *key, int64_t min, int64_t max);
double      gb_fields_real(gb_fields *f, const char *key, double min, double max, double fallback);
double      gb_fields_need_real(gb_fields *f, const char *key, double min, double max);
bool        gb_fields_bool(gb_fields *f, const char *key, bool fallback);
const char *gb_fields_string(gb_fields *f, const char *key, const char *fallback);
json_t     *gb_fields_array(gb_fields *f, const char *key);       /* NULL when absent */
json_t     *gb_fields_object(gb_fields *f, const char *key);

/* One number of a list, as gb_fields_int checks it. */
int64_t gb_fields_int_of(gb_fields *f, const json_t *value, const char *key, int64_t min, int64_t max);

/* Remembers a failure in the caller's words. */
void gb_fields_fail(gb_fields *f, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
