#define _GNU_SOURCE    /* memrchr */
#include "bindings/lua/lua_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bindings/lua/lua_host.h"
#include "core/base/log.h"

#define HEADER_WORD "gimbal-policy-log"
enum { SUM_DIGITS = 16, AT_BYTES = 32 };

struct gb_lua_store {
    char *dir;
    int lock, log;            /* descriptors, or -1 */
    uint64_t log_max, bytes;  /* of the log: the most, and now */
    uint64_t seq;
    bool damaged;
    char *text;               /* the log as it was when it was opened, terminated */
    size_t text_bytes;        /* whole lines only */
};

static const char *const kind_names[] = {"put", "activate", "builtin", "rollback", "set", "quarantine"};
_Static_assert(sizeof kind_names / sizeof *kind_names == GB_LUA_RECORD_KINDS, "every kind has a name");

/* ---- files ---- */

static void path_of(const gb_lua_store *store, char path[PATH_MAX], const char *format, const char *what)
{
    int n = snprintf(path, PATH_MAX, "%s/", store->dir);
    if (n >= 0 && n < PATH_MAX) snprintf(path + n, (size_t)(PATH_MAX - n), format, what);
}

static int make_directory(const char *path, gb_error *err)
{
    struct stat st;
    if (mkdir(path, 0700) == 0) return GB_OK;
    if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return GB_OK;
    if (errno == EEXIST) return gb_fail(err, GB_EINVAL, "the policy store %s is not a directory; give another with --policy-store", path);
    return gb_fail(err, GB_EIO, "the policy store %s cannot be made: %s; give a directory that this user may write to with --policy-store", path,
                   strerror(errno));
}

static int open_inside(const gb_lua_store *store, int *fd, const char *name, int flags, gb_error *err)
{
    char path[PATH_MAX];
    path_of(store, path, "%s", name);
    *fd = open(path, flags | O_CLOEXEC, 0600);
    if (*fd >= 0) return GB_OK;
    return gb_fail(err, GB_EIO, "the policy store's %s cannot be written: %s; let this user write there, or give another --policy-store", path,
                   strerror(errno));
}

static int take_lock(gb_lua_store *store, gb_error *err)
{
    int status = open_inside(store, &store->lock, "lock", O_RDWR | O_CREAT, err);
    if (status) return status;
    if (flock(store->lock, LOCK_EX | LOCK_NB) == 0) return GB_OK;
    return gb_fail(err, GB_EEXIST, "the policy store %s is in use by another gimbal; end that one, or give another --policy-store", store->dir);
}

static bool write_whole(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* ---- records as text ---- */

static void copy_text(char *out, size_t capacity, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, capacity, "%s", text ? text : "");
}

static bool read_value(gb_lua_value *value, const json_t *json)
{
    *value = (gb_lua_value){.type = json_is_boolean(json) ? GB_LUA_BOOLEAN : json_is_string(json) ? GB_LUA_TEXT : GB_LUA_NUMBER};
    value->number = json_number_value(json);
    value->boolean = json_is_true(json);
    if (json_is_string(json)) snprintf(value->text, sizeof value->text, "%s", json_string_value(json));
    return json_is_boolean(json) || json_is_string(json) || json_is_number(json);
}

static json_t *value_json(const gb_lua_value *value)
{
    switch (value->type) {
    case GB_LUA_NUMBER: return json_real(value->number);
    case GB_LUA_BOOLEAN: return json_boolean(value->boolean);
    case GB_LUA_TEXT: return json_string(value->text);
    }
    return NULL;
}

static void read_hooks(gb_lua_record *record, const json_t *names)
{
    size_t i;
    const json_t *name;
    json_array_foreach(names, i, name) {
        for (int hook = 0; hook < GB_HOOKS; hook++)
            if (json_is_string(name) && strcmp(json_string_value(name), gb_hook_name((gb_hook)hook)) == 0) record->hooks[hook] = true;
    }
}

typedef enum reading { READ, SKIPPED, DAMAGED } reading;

static reading read_object(gb_lua_record *record, const json_t *root)
{
    char kind[16];
    *record = (gb_lua_record){
        .seq = (uint64_t)json_integer_value(json_object_get(root, "seq")), .put = (uint64_t)json_integer_value(json_object_get(root, "put")),
        .version = (uint32_t)json_integer_value(json_object_get(root, "version")), .kind = GB_LUA_RECORD_KINDS,
    };
    copy_text(kind, sizeof kind, root, "kind");
    for (int k = 0; k < GB_LUA_RECORD_KINDS; k++)
        if (strcmp(kind, kind_names[k]) == 0) record->kind = (gb_lua_record_kind)k;
    copy_text(record->who, sizeof record->who, root, "who");
    copy_text(record->name, sizeof record->name, root, "name");
    copy_text(record->sha256, sizeof record->sha256, root, "sha256");
    copy_text(record->chunk, sizeof record->chunk, root, "chunk");
    copy_text(record->setting.name, sizeof record->setting.name, root, "param");
    read_hooks(record, json_object_get(root, "hooks"));
    if (!record->seq) return DAMAGED;
    if (record->kind == GB_LUA_RECORD_SET && !read_value(&record->setting.value, json_object_get(root, "value"))) return DAMAGED;
    return record->kind == GB_LUA_RECORD_KINDS ? SKIPPED : READ;
}

static void sum_of(char sum[SUM_DIGITS + 1], const char *json, size_t bytes)
{
    char hex[GB_SHA256_HEX + 1];
    gb_sha256_hex(hex, json, bytes);
    memcpy(sum, hex, SUM_DIGITS);
    sum[SUM_DIGITS] = 0;
}

/* line[bytes] is its end, which is not read. */
static reading read_line(gb_lua_record *record, const char *line, size_t bytes)
{
    char sum[SUM_DIGITS + 1];
    if (bytes < SUM_DIGITS + 2 || bytes > GB_LUA_STORE_LINE_MAX || line[SUM_DIGITS] != ' ') return DAMAGED;
    const char *json = line + SUM_DIGITS + 1;
    sum_of(sum, json, bytes - SUM_DIGITS - 1);
    if (memcmp(sum, line, SUM_DIGITS) != 0) return DAMAGED;
    json_t *root = json_loadb(json, bytes - SUM_DIGITS - 1, 0, NULL);
    reading outcome = json_is_object(root) ? read_object(record, root) : DAMAGED;
    json_decref(root);
    return outcome;
}

static void now_text(char at[AT_BYTES])
{
    struct timespec t;
    struct tm tm;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(at, AT_BYTES, "%s.%03dZ", seconds, (int)(t.tv_nsec / 1000000 % 1000));
}

static json_t *hooks_json(const gb_lua_record *record)
{
    json_t *names = json_array();
    for (int hook = 0; hook < GB_HOOKS; hook++)
        if (record->hooks[hook]) json_array_append_new(names, json_string(gb_hook_name((gb_hook)hook)));
    return names;
}

/* malloc'd JSON text on one line; NULL without memory. */
static char *write_record(const gb_lua_record *record)
{
    char at[AT_BYTES];
    now_text(at);
    json_t *root = json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:o}", "seq", (json_int_t)record->seq, "at", at, "kind", kind_names[record->kind],
                             "who", record->who, "put", (json_int_t)record->put, "version", (json_int_t)record->version, "name", record->name, "sha256",
                             record->sha256, "hooks", hooks_json(record));
    if (root && record->kind == GB_LUA_RECORD_PUT) json_object_set_new(root, "chunk", json_string(record->chunk));
    if (root && record->kind == GB_LUA_RECORD_SET) {
        json_object_set_new(root, "param", json_string(record->setting.name));
        json_object_set_new(root, "value", value_json(&record->setting.value));
    }
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* ---- reading the log ---- */

static int read_log(gb_lua_store *store, const char *path, gb_error *err)
{
    struct stat st;
    if (fstat(store->log, &st) || !S_ISREG(st.st_mode)) return gb_fail(err, GB_EINVAL, "%s is not a regular file; give another --policy-store", path);
    if ((uint64_t)st.st_size > store->log_max + GB_LUA_STORE_LINE_MAX)
        return gb_fail(err, GB_ETOOBIG, "%s has %lld bytes, more than a policy log may have; start a new one with another --policy-store", path,
                       (long long)st.st_size);
    store->text = malloc((size_t)st.st_size + 1);
    if (!store->text) return gb_fail(err, GB_ENOMEM, "out of memory for %s", path);
    while (store->text_bytes < (size_t)st.st_size) {
        ssize_t n = pread(store->log, store->text + store->text_bytes, (size_t)st.st_size - store->text_bytes, (off_t)store->text_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gb_fail(err, GB_EIO, "%s cannot be read: %s", path, strerror(errno));
        if (n == 0) break;
        store->text_bytes += (size_t)n;
    }
    store->text[store->text_bytes] = 0;
    store->bytes = store->text_bytes;
    return GB_OK;
}

/* Behind the last record that is whole; a line without its end, or a last line that does not add up, is torn. */
static size_t whole_bytes(const gb_lua_store *store)
{
    gb_lua_record record;
    const char *text = store->text, *end = text + store->text_bytes;
    const char *last_end = store->text_bytes ? memrchr(text, '\n', store->text_bytes) : NULL;
    if (!last_end) return 0;
    if (last_end + 1 < end) return (size_t)(last_end + 1 - text);
    const char *before = memrchr(text, '\n', (size_t)(last_end - text));
    if (!before) return store->text_bytes;
    return read_line(&record, before + 1, (size_t)(last_end - before - 1)) == DAMAGED ? (size_t)(before + 1 - text) : store->text_bytes;
}

static int set_torn_aside(gb_lua_store *store, const char *path, size_t whole, gb_error *err)
{
    int fd;
    size_t torn = store->text_bytes - whole;
    if (!torn) return GB_OK;
    int status = open_inside(store, &fd, "policies.log.torn", O_WRONLY | O_CREAT | O_APPEND, err);
    if (status) return status;
    bool kept = write_whole(fd, store->text + whole, torn) && write_whole(fd, "\n", 1) && fsync(fd) == 0;
    close(fd);
    if (!kept || ftruncate(store->log, (off_t)whole))
        return gb_fail(err, GB_EIO, "%s ends with a torn record of %zu bytes that cannot be set aside: %s; make room on its disk", path, torn, strerror(errno));
    gb_log(GB_LOG_WARN, "%s ended in the middle of a record: its last %zu bytes are set aside in %s.torn, all before them counts", path, torn, path);
    store->text_bytes = whole;
    store->bytes = whole;
    store->text[whole] = 0;
    return GB_OK;
}

static int begin_log(gb_lua_store *store, const char *path, gb_error *err)
{
    char header[64];
    int n = snprintf(header, sizeof header, HEADER_WORD " %d\n", GB_LUA_STORE_FORMAT);
    if (!write_whole(store->log, header, (size_t)n) || fsync(store->log))
        return gb_fail(err, GB_EIO, "%s cannot be written: %s; make room on its disk, or give another --policy-store", path, strerror(errno));
    sync_directory(store->dir);
    store->bytes = (uint64_t)n;
    return GB_OK;
}

static int check_header(const gb_lua_store *store, const char *path, gb_error *err)
{
    int format = 0;
    if (sscanf(store->text, HEADER_WORD " %d", &format) != 1)
        return gb_fail(err, GB_EFORMAT, "%s is no policy log of gimbal; move it away, or give another --policy-store", path);
    if (format > GB_LUA_STORE_FORMAT)
        return gb_fail(err, GB_EVERSION, "%s has format %d, but this gimbal knows %d: it was written by a newer one; use that, or another --policy-store",
                       path, format, GB_LUA_STORE_FORMAT);
    return format == GB_LUA_STORE_FORMAT ? GB_OK : gb_fail(err, GB_EFORMAT, "%s has format %d, which never was; move it away", path, format);
}

static const char *end_of_line(const gb_lua_store *store, size_t at) { return memchr(store->text + at, '\n', store->text_bytes - at); }

static void check_records(gb_lua_store *store, const char *path)
{
    gb_lua_record record;
    unsigned line = 1;
    const char *end = store->text_bytes ? end_of_line(store, 0) : NULL;
    for (size_t at = end ? (size_t)(end + 1 - store->text) : store->text_bytes; at < store->text_bytes; at = (size_t)(end + 1 - store->text)) {
        end = end_of_line(store, at);
        line++;
        if (read_line(&record, store->text + at, (size_t)(end - store->text) - at) == DAMAGED) {
            store->damaged = true;
            gb_log(GB_LOG_WARN, "%s:%u: this record is damaged, so who decided last is not restored; take the line out of the file to go by the others", path, line);
        } else if (record.seq > store->seq) {
            store->seq = record.seq;
        }
    }
}

static int open_log(gb_lua_store *store, gb_error *err)
{
    char path[PATH_MAX];
    path_of(store, path, "%s", "policies.log");
    int status = open_inside(store, &store->log, "policies.log", O_RDWR | O_CREAT | O_APPEND, err);
    if (!status) status = read_log(store, path, err);
    if (status) return status;
    size_t first = strcspn(store->text, "\n"), whole = whole_bytes(store);
    bool none = store->text_bytes == 0 || (whole == 0 && strncmp(HEADER_WORD " 1", store->text, first) == 0);
    if (!none) status = check_header(store, path, err);
    if (!status) status = set_torn_aside(store, path, whole, err);
    if (!status && none) status = begin_log(store, path, err);
    if (!status) check_records(store, path);
    return status;
}

/* ---- the store ---- */

int gb_lua_store_open(gb_lua_store **out, const char *dir, uint64_t log_max, gb_error *err)
{
    char path[PATH_MAX];
    gb_lua_store *store = calloc(1, sizeof *store);
    if (!store || !(store->dir = strdup(dir))) {
        free(store);
        return gb_fail(err, GB_ENOMEM, "out of memory for the policy store");
    }
    store->lock = store->log = -1;
    store->log_max = log_max;
    path_of(store, path, "%s", "sources");
    int status = strlen(dir) > PATH_MAX - 128 ? gb_fail(err, GB_EINVAL, "the path of the policy store is too long") : make_directory(dir, err);
    if (!status) status = take_lock(store, err);
    if (!status) status = make_directory(path, err);
    if (!status) status = open_log(store, err);
    if (status) gb_lua_store_close(store);
    else *out = store;
    return status;
}

void gb_lua_store_close(gb_lua_store *store)
{
    if (!store) return;
    if (store->log >= 0) close(store->log);
    if (store->lock >= 0) close(store->lock);
    free(store->text);
    free(store->dir);
    free(store);
}

bool gb_lua_store_next(const gb_lua_store *store, size_t *cursor, gb_lua_record *record)
{
    if (*cursor == 0) *cursor = strcspn(store->text, "\n") + 1;    /* the header */
    while (*cursor < store->text_bytes) {
        size_t at = *cursor, end = (size_t)(end_of_line(store, at) - store->text);
        *cursor = end + 1;
        if (read_line(record, store->text + at, end - at) == READ) return true;
    }
    return false;
}

/* ---- sources ---- */

static int write_source(const gb_lua_store *store, const char *temporary, const char *path, const char *source, size_t bytes, gb_error *err)
{
    char sources[PATH_MAX];
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write_whole(fd, source, bytes) && fsync(fd) == 0;
    int why = errno;
    if (fd >= 0) close(fd);
    if (written && rename(temporary, path)) written = false, why = errno;
    if (!written) {
        unlink(temporary);
        return gb_fail(err, GB_EIO, "%s cannot be kept: %s; see to the policy store's disk, then load the policy again", path, strerror(why));
    }
    path_of(store, sources, "%s", "sources");
    sync_directory(sources);
    return GB_OK;
}

int gb_lua_store_keep(gb_lua_store *store, const char *sha256, const char *source, size_t bytes, gb_error *err)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    struct stat st;
    path_of(store, path, "sources/%s.lua", sha256);
    path_of(store, temporary, "sources/%s.new", sha256);
    if (stat(path, &st) == 0 && (size_t)st.st_size == bytes) return GB_OK;
    return write_source(store, temporary, path, source, bytes, err);
}

int gb_lua_store_source(const gb_lua_store *store, gb_lua_text *text, const char *sha256, gb_error *err)
{
    char path[PATH_MAX], found[GB_SHA256_HEX + 1];
    path_of(store, path, "sources/%s.lua", sha256);
    int status = gb_lua_file_read(text, path, "a policy", GB_LUA_SOURCE_MAX, err);
    if (status) return status;
    gb_sha256_hex(found, text->data, text->bytes);
    if (strcmp(found, sha256) == 0) return GB_OK;
    gb_lua_text_free(text);
    return gb_fail(err, GB_EFORMAT, "%s has changed: its digest is %.12s now", path, found);
}

/* ---- writing the log ---- */

static int append_line(gb_lua_store *store, const char *json, gb_error *err)
{
    char sum[SUM_DIGITS + 1], line[GB_LUA_STORE_LINE_MAX + 2];
    size_t bytes = strlen(json);
    sum_of(sum, json, bytes);
    int n = snprintf(line, sizeof line, "%s %s\n", sum, json);
    if (n >= (int)sizeof line) return gb_fail(err, GB_ETOOBIG, "a record of %d bytes is too long for %s/policies.log", n, store->dir);
    if (store->bytes + (uint64_t)n > store->log_max)
        return gb_fail(err, GB_EFULL, "%s/policies.log is full at %" PRIu64 " bytes; start with a new --policy-store", store->dir, store->bytes);
    if (write_whole(store->log, line, (size_t)n) && fdatasync(store->log) == 0) {
        store->bytes += (uint64_t)n;
        return GB_OK;
    }
    int why = errno;
    if (ftruncate(store->log, (off_t)store->bytes)) why = errno;    /* then the next start sets the torn rest aside */
    return gb_fail(err, GB_EIO, "%s/policies.log cannot be written: %s; see to its disk", store->dir, strerror(why));
}

int gb_lua_store_append(gb_lua_store *store, gb_lua_record *record, gb_error *err)
{
    record->seq = store->seq + 1;
    if (record->kind == GB_LUA_RECORD_PUT) record->put = record->seq;
    char *json = write_record(record);
    int status = json ? append_line(store, json, err) : gb_fail(err, GB_ENOMEM, "out of memory for a record of the policy store");
    free(json);
    if (!status) store->seq = record->seq;
    return status;
}

const char *gb_lua_store_dir(const gb_lua_store *store) { return store->dir; }
uint64_t gb_lua_store_records(const gb_lua_store *store) { return store->seq; }
bool gb_lua_store_damaged(const gb_lua_store *store) { return store->damaged; }
