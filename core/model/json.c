#include "core/model/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

/* Why a path inside dir cannot be opened: the directory is looked at first, since a mistyped one is the usual reason. */
static int open_failed(const char *dir, const char *path, int reason, gb_error *err)
{
    struct stat st;
    if (stat(dir, &st) != 0)
        return gb_fail(err, errno == ENOENT ? GB_ENOTFOUND : GB_EIO, "model directory %s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return gb_fail(err, GB_EINVAL, "%s is not a directory; give the directory that holds config.json", dir);
    return gb_fail(err, reason == ENOENT ? GB_ENOTFOUND : GB_EIO, "%s: %s", path, strerror(reason));
}

int gb_file_open(int *fd, size_t *bytes, const char *dir, const char *name, gb_error *err)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return gb_fail(err, GB_EINVAL, "a path of %zu bytes is too long", strlen(dir) + 1 + strlen(name));
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);    /* non-blocking: a FIFO must not hold the start */
    if (file < 0) return open_failed(dir, path, errno, err);
    struct stat st;
    if (fstat(file, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(file);
        return gb_fail(err, GB_EIO, "%s is not a regular file", path);
    }
    *fd = file;
    *bytes = (size_t)st.st_size;
    return GB_OK;
}

static int read_all(int fd, char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, text + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return GB_EIO;
        done += (size_t)n;
    }
    return GB_OK;
}

int gb_file_read(char **text, size_t *bytes, const char *dir, const char *name, size_t bytes_max, gb_error *err)
{
    int fd;
    *text = NULL;
    int status = gb_file_open(&fd, bytes, dir, name, err);
    if (status) return status;
    if (*bytes > bytes_max) {
        status = gb_fail(err, GB_ETOOBIG, "%s/%s has %zu bytes; at most %zu are read", dir, name, *bytes, bytes_max);
    } else if (!(*text = malloc(*bytes + 1))) {
        status = gb_fail(err, GB_ENOMEM, "no memory for the %zu bytes of %s/%s", *bytes, dir, name);
    } else if (read_all(fd, *text, *bytes)) {
        status = gb_fail(err, GB_EIO, "%s/%s could not be read to its end", dir, name);
        free(*text);
        *text = NULL;
    }
    close(fd);
    return status;
}

/* ---- texts ---- */

gb_quote gb_json_quote(const char *text)
{
    gb_quote q;
    size_t n = 0;
    while (text[n] && n < sizeof q.text - 4) {
        q.text[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
        n++;
    }
    if (text[n]) {
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;    /* never cut inside a character */
        memcpy(q.text + n, "...", 3);
        n += 3;
    }
    q.text[n] = '\0';
    return q;
}

/* Depth and values of a text, counted without building anything. Strings are skipped; whether the rest is JSON at all is
   the parser's question. */
static int check_size(const char *text, size_t bytes, const char *name, gb_error *err)
{
    size_t depth = 0, values = 1;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > GB_JSON_DEPTH_MAX)
                return gb_fail(err, GB_EFORMAT, "%s is nested more than %d deep at byte %zu", name, GB_JSON_DEPTH_MAX, i);
            values++;
        } else if (c == '}' || c == ']') {
            if (depth) depth--;
        } else if (c == ',') {
            if (++values > GB_JSON_VALUES_MAX)
                return gb_fail(err, GB_ETOOBIG, "%s holds more than %d values", name, GB_JSON_VALUES_MAX);
        }
    }
    return GB_OK;
}

int gb_json_parse(json_t **out, const char *text, size_t bytes, const char *name, gb_json_numbers numbers, gb_error *err)
{
    *out = NULL;
    int status = check_size(text, bytes, name, err);
    if (status) return status;
    json_error_t at;
    size_t flags = JSON_REJECT_DUPLICATES | (numbers == GB_JSON_ALL_REALS ? JSON_DECODE_INT_AS_REAL : 0);
    json_t *root = json_loadb(text, bytes, flags, &at);
    if (!root) {
        status = json_error_code(&at) == json_error_out_of_memory ? GB_ENOMEM : GB_EFORMAT;
        return gb_fail(err, status, "%s is not valid JSON: line %d, column %d: %s", name, at.line, at.column,
                       gb_json_quote(at.text).text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return gb_fail(err, GB_EFORMAT, "%s must be a JSON object", name);
    }
    *out = root;
    return GB_OK;
}

/* ---- fields ---- */

void gb_fields_fail(gb_fields *f, int status, const char *format, ...)
{
    if (f->status) return;
    char sentence[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    f->status = gb_fail(f->err, status, "%s%s", f->where, sentence);
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_NULL: return "null";
    default: return "a boolean";
    }
}

static const json_t *member(const gb_fields *f, const char *key)
{
    const json_t *value = f->status ? NULL : json_object_get(f->object, key);
    return json_is_null(value) ? NULL : value;
}

static const json_t *needed(gb_fields *f, const char *key)
{
    const json_t *value = member(f, key);
    if (!value) gb_fields_fail(f, GB_EFORMAT, "%s is missing", key);
    return value;
}

/* A member of one JSON type, NULL when absent or refused. */
static json_t *typed(gb_fields *f, const char *key, bool ok, const json_t *value, const char *wanted)
{
    if (!value) return NULL;
    if (ok) return (json_t *)value;
    gb_fields_fail(f, GB_EFORMAT, "%s is %s; it must be %s", key, type_name(value), wanted);
    return NULL;
}

bool gb_fields_has(const gb_fields *f, const char *key) { return member(f, key) != NULL; }

int64_t gb_fields_int_of(gb_fields *f, const json_t *value, const char *key, int64_t min, int64_t max)
{
    if (!typed(f, key, json_is_number(value), value, "a whole number")) return min;
    double number = json_number_value(value);
    bool in_range = number >= (double)min && number <= (double)max;
    if (in_range && number == floor(number)) return json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
    gb_fields_fail(f, GB_EFORMAT, "%s is %.17g; it must be a whole number between %lld and %lld", key, number, (long long)min,
                   (long long)max);
    return min;
}

int64_t gb_fields_int(gb_fields *f, const char *key, int64_t min, int64_t max, int64_t fallback)
{
    const json_t *value = member(f, key);
    return value ? gb_fields_int_of(f, value, key, min, max) : fallback;
}

int64_t gb_fields_need_int(gb_fields *f, const char *key, int64_t min, int64_t max)
{
    return gb_fields_int_of(f, needed(f, key), key, min, max);
}

static double real_of(gb_fields *f, const json_t *value, const char *key, double min, double max)
{
    if (!typed(f, key, json_is_number(value), value, "a number")) return min;
    double number = json_number_value(value);
    if (number >= min && number <= max) return number;
    gb_fields_fail(f, GB_EFORMAT, "%s is %.17g; it must be between %g and %g", key, number, min, max);
    return min;
}

double gb_fields_real(gb_fields *f, const char *key, double min, double max, double fallback)
{
    const json_t *value = member(f, key);
    return value ? real_of(f, value, key, min, max) : fallback;
}

double gb_fields_need_real(gb_fields *f, const char *key, double min, double max)
{
    return real_of(f, needed(f, key), key, min, max);
}

bool gb_fields_bool(gb_fields *f, const char *key, bool fallback)
{
    const json_t *value = member(f, key);
    return typed(f, key, json_is_boolean(value), value, "true or false") ? json_is_true(value) : fallback;
}

const char *gb_fields_string(gb_fields *f, const char *key, const char *fallback)
{
    const json_t *value = member(f, key);
    return typed(f, key, json_is_string(value), value, "a string") ? json_string_value(value) : fallback;
}

json_t *gb_fields_array(gb_fields *f, const char *key)
{
    const json_t *value = member(f, key);
    return typed(f, key, json_is_array(value), value, "a list");
}

json_t *gb_fields_object(gb_fields *f, const char *key)
{
    const json_t *value = member(f, key);
    return typed(f, key, json_is_object(value), value, "an object");
}
