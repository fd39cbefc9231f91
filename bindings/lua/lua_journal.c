#include "bindings/lua/lua_journal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/sha256.h"

#define DECISION_KEY ",\"decision\":{"
enum { DIGEST_DIGITS = 16 };

typedef struct waiting {
    gb_lua_snapshot *snapshot;
    gb_lua_decided decided;
} waiting;

struct gb_lua_journal {
    char *path;
    FILE *file;               /* NULL: it cannot be written any more */
    uint64_t most_bytes, bytes, lines, written, dropped;
    gb_lua_journal_header header;
    uint32_t n;
    waiting waiting[GB_LUA_JOURNAL_PENDING];
};

/* ---- files ---- */

static bool is_journal(const char *path)
{
    char begin[32] = "";
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file) fclose(file);
    return n == 0 || strncmp(begin, "{\"gimbal_journal\":", 18) == 0;
}

static int older_name(char older[PATH_MAX], const char *path, gb_error *err)
{
    if (snprintf(older, PATH_MAX, "%s.1", path) < PATH_MAX) return GB_OK;
    return gb_fail(err, GB_EINVAL, "the path of the journal is too long");
}

static int check_free(const char *path, gb_error *err)
{
    struct stat st;
    if (stat(path, &st)) return GB_OK;
    if (S_ISREG(st.st_mode) && is_journal(path)) return GB_OK;
    return gb_fail(err, GB_EEXIST, "%s is there already and is no journal of gimbal, so it is left alone; give another --journal", path);
}

static void now_text(char out[32])
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int begin(gb_lua_journal *j, gb_error *err)
{
    char at[32];
    now_text(at);
    j->file = fopen(j->path, "we");
    if (!j->file) return gb_fail(err, GB_EIO, "journal %s cannot be written: %s; give another --journal", j->path, strerror(errno));
    int n = fprintf(j->file, "{\"gimbal_journal\":%d,\"started\":\"%s\",\"engines\":%u,\"stale_after_ns\":%.17g,\"aging_ns\":%.17g}\n", GB_LUA_JOURNAL_FORMAT, at,
                    j->header.engines, j->header.stale_after_ns, j->header.aging_ns);
    if (n < 0 || fflush(j->file)) return gb_fail(err, GB_EIO, "journal %s cannot be written: %s; make room on its disk", j->path, strerror(errno));
    j->bytes = (uint64_t)n;
    j->lines = 0;
    return GB_OK;
}

static int set_aside(const gb_lua_journal *j, gb_error *err)
{
    char older[PATH_MAX];
    int status = older_name(older, j->path, err);
    if (status || rename(j->path, older) == 0 || errno == ENOENT) return status;
    return gb_fail(err, GB_EIO, "journal %s cannot be renamed to %s: %s", j->path, older, strerror(errno));
}

int gb_lua_journal_open(gb_lua_journal **out, const char *path, uint64_t most_bytes, const gb_lua_journal_header *header, gb_error *err)
{
    char older[PATH_MAX];
    gb_lua_journal *j = calloc(1, sizeof *j);
    if (!j || !(j->path = strdup(path))) {
        free(j);
        return gb_fail(err, GB_ENOMEM, "out of memory for journal %s", path);
    }
    j->most_bytes = most_bytes;
    j->header = *header;
    int status = older_name(older, path, err);
    if (!status) status = check_free(path, err);
    if (!status) status = check_free(older, err);
    if (!status) status = set_aside(j, err);
    if (!status) status = begin(j, err);
    if (status) gb_lua_journal_close(j);
    else *out = j;
    return status;
}

void gb_lua_journal_close(gb_lua_journal *j)
{
    if (!j) return;
    gb_lua_journal_write(j);
    if (j->file) fclose(j->file);
    free(j->path);
    free(j);
}

/* ---- writing ---- */

static void give_up(gb_lua_journal *j, const char *why)
{
    gb_log(GB_LOG_WARN, "journal %s ends here: %s", j->path, why);
    if (j->file) fclose(j->file);
    j->file = NULL;
}

static void digest_of(char digest[DIGEST_DIGITS + 1], const char *text, size_t bytes)
{
    char hex[GB_SHA256_HEX + 1];
    gb_sha256_hex(hex, text, bytes);
    memcpy(digest, hex, DIGEST_DIGITS);
    digest[DIGEST_DIGITS] = 0;
}

/* The snapshot's object, with one more key at its end. */
static int print_line(FILE *file, const char *text, const gb_lua_decided *d)
{
    char digest[DIGEST_DIGITS + 1];
    size_t bytes = strlen(text);
    digest_of(digest, text, bytes);
    return fprintf(file, "%.*s" DECISION_KEY "\"digest\":\"%s\",\"inputs\":\"%016" PRIx64 "\",\"policy\":\"%s\",\"version\":%u,\"sha256\":\"%s\",\"answer\":%d,\"ns\":%" PRIu64 "}}\n",
                   (int)bytes - 1, text, digest, d->inputs, d->policy, d->version, d->sha256, d->answer, d->ns);
}

static void rotate(gb_lua_journal *j)
{
    gb_error why = {{0}};
    fclose(j->file);
    j->file = NULL;
    if (set_aside(j, &why) || begin(j, &why)) give_up(j, why.text);
}

/* A decision too big for the file is dropped. */
static void write_one(gb_lua_journal *j, const waiting *w)
{
    enum { DECISION_BYTES = 512 };
    char *text = gb_lua_snapshot_write(w->snapshot);
    uint64_t bytes = text ? strlen(text) + DECISION_BYTES : UINT64_MAX / 2;
    if (bytes > j->most_bytes / 4) {
        j->dropped++;
        free(text);
        return;
    }
    if (j->bytes + bytes > j->most_bytes / 2) rotate(j);
    int n = j->file ? print_line(j->file, text, &w->decided) : 0;
    free(text);
    if (n > 0) j->bytes += (uint64_t)n, j->written++, j->lines++;
    else if (j->file) give_up(j, strerror(errno));
}

void gb_lua_journal_write(gb_lua_journal *j)
{
    for (uint32_t i = 0; i < j->n; i++) {
        if (j->file) write_one(j, &j->waiting[i]);
        else j->dropped++;
        gb_lua_snapshot_free(j->waiting[i].snapshot);
    }
    if (j->n && j->file && fflush(j->file)) give_up(j, strerror(errno));
    j->n = 0;
}

bool gb_lua_journal_has_room(const gb_lua_journal *j) { return j->file && j->n < GB_LUA_JOURNAL_PENDING; }

void gb_lua_journal_add(gb_lua_journal *j, gb_lua_snapshot *snapshot, const gb_lua_decided *decided)
{
    if (!snapshot || !gb_lua_journal_has_room(j)) {
        j->dropped++;
        gb_lua_snapshot_free(snapshot);
        return;
    }
    j->waiting[j->n++] = (waiting){snapshot, *decided};
}

void gb_lua_journal_info_get(const gb_lua_journal *j, gb_lua_journal_info *info)
{
    *info = (gb_lua_journal_info){j->path, j->written, j->dropped, j->n, j->lines, !j->file};
}

/* ---- reading ---- */

struct gb_lua_journal_reader {
    char *path, *line;
    size_t capacity;
    FILE *file;
    unsigned n;        /* of the line */
    bool cut;
};

/* False at the end. The line ends without its newline. */
static bool read_line(gb_lua_journal_reader *r, size_t *bytes)
{
    ssize_t n = getline(&r->line, &r->capacity, r->file);
    if (n <= 0) return false;
    r->n++;
    r->cut = r->line[n - 1] != '\n';
    if (r->cut) return false;
    r->line[n - 1] = 0;
    *bytes = (size_t)n - 1;
    return true;
}

static int read_header(gb_lua_journal_reader *r, gb_lua_journal_header *header, gb_error *err)
{
    size_t bytes = 0;
    json_t *root = read_line(r, &bytes) ? json_loadb(r->line, bytes, 0, NULL) : NULL;
    json_int_t format = json_integer_value(json_object_get(root, "gimbal_journal"));
    *header = (gb_lua_journal_header){.engines = (uint32_t)json_integer_value(json_object_get(root, "engines")),
                                      .stale_after_ns = json_number_value(json_object_get(root, "stale_after_ns")),
                                      .aging_ns = json_number_value(json_object_get(root, "aging_ns"))};
    json_decref(root);
    if (format < 1) return gb_fail(err, GB_EFORMAT, "%s is no journal of gimbal; gimbal serve --journal FILE writes one", r->path);
    if (format > GB_LUA_JOURNAL_FORMAT)
        return gb_fail(err, GB_EVERSION, "journal %s has format %lld, but this gimbal reads %d: it was written by a newer one; use that", r->path,
                       (long long)format, GB_LUA_JOURNAL_FORMAT);
    return GB_OK;
}

int gb_lua_journal_read(gb_lua_journal_reader **out, const char *path, gb_lua_journal_header *header, gb_error *err)
{
    struct stat st;
    gb_lua_journal_reader *r = calloc(1, sizeof *r);
    if (!r || !(r->path = strdup(path))) {
        free(r);
        return gb_fail(err, GB_ENOMEM, "out of memory for journal %s", path);
    }
    int status = GB_OK;
    r->file = fopen(path, "re");
    if (!r->file) status = gb_fail(err, errno == ENOENT ? GB_ENOTFOUND : GB_EIO, "journal %s cannot be opened: %s; give the FILE of gimbal serve --journal FILE", path, strerror(errno));
    else if (fstat(fileno(r->file), &st) || !S_ISREG(st.st_mode)) status = gb_fail(err, GB_EFORMAT, "%s is no journal of gimbal: it is no regular file", path);
    if (!status) status = read_header(r, header, err);
    if (status) gb_lua_journal_read_end(r);
    else *out = r;
    return status;
}

void gb_lua_journal_read_end(gb_lua_journal_reader *r)
{
    if (!r) return;
    if (r->file) fclose(r->file);
    free(r->line);
    free(r->path);
    free(r);
}

static char *last_decision(char *line)
{
    char *found = NULL;
    for (char *at = line; (at = strstr(at, DECISION_KEY)); at++) found = at;
    return found;
}

static int damaged(const gb_lua_journal_reader *r, const char *why, gb_error *err)
{
    return gb_fail(err, GB_EFORMAT, "%s:%u: this decision is damaged (%s); take the line out to go by the others", r->path, r->n, why);
}

static void read_decided(gb_lua_decided *d, const json_t *json)
{
    const char *policy = json_string_value(json_object_get(json, "policy")), *sha256 = json_string_value(json_object_get(json, "sha256")),
               *digest = json_string_value(json_object_get(json, "digest")), *inputs = json_string_value(json_object_get(json, "inputs"));
    *d = (gb_lua_decided){.version = (uint32_t)json_integer_value(json_object_get(json, "version")),
                          .answer = (int)json_integer_value(json_object_get(json, "answer")), .ns = (uint64_t)json_integer_value(json_object_get(json, "ns"))};
    if (inputs) d->inputs = strtoull(inputs, NULL, 16);
    snprintf(d->policy, sizeof d->policy, "%s", policy ? policy : "");
    snprintf(d->sha256, sizeof d->sha256, "%s", sha256 ? sha256 : "");
    snprintf(d->digest, sizeof d->digest, "%s", digest ? digest : "");
}

static int read_decision(gb_lua_journal_reader *r, gb_lua_snapshot **snapshot, gb_lua_decided *decided, gb_error *err)
{
    char digest[DIGEST_DIGITS + 1], what[PATH_MAX + 16];
    gb_error why = {{0}};
    char *behind = last_decision(r->line);
    if (!behind) return damaged(r, "it has no decision", err);
    json_t *json = json_loads(behind + strlen(DECISION_KEY) - 1, JSON_DISABLE_EOF_CHECK, NULL);
    if (!json) return damaged(r, "its decision cannot be read", err);
    read_decided(decided, json);
    json_decref(json);
    behind[0] = '}';
    behind[1] = 0;
    size_t bytes = (size_t)(behind + 1 - r->line);
    digest_of(digest, r->line, bytes);
    if (strcmp(digest, decided->digest) != 0) return damaged(r, "its digest does not fit", err);
    snprintf(what, sizeof what, "%s:%u", r->path, r->n);
    if (!gb_lua_snapshot_read(snapshot, what, r->line, bytes, &why)) return GB_OK;
    return damaged(r, why.text, err);
}

int gb_lua_journal_next(gb_lua_journal_reader *r, gb_lua_snapshot **snapshot, gb_lua_decided *decided, gb_error *err)
{
    size_t bytes;
    *snapshot = NULL;
    while (read_line(r, &bytes)) {
        if (strncmp(r->line, "{\"gimbal_snapshot\":", 19) == 0) return read_decision(r, snapshot, decided, err);
        json_t *other = json_loadb(r->line, bytes, 0, NULL);
        bool skipped = json_is_object(other);
        json_decref(other);
        if (!skipped) return damaged(r, "it is no JSON object", err);
    }
    return GB_OK;
}

bool gb_lua_journal_is_cut(const gb_lua_journal_reader *r) { return r->cut; }

void gb_lua_journal_skip(gb_lua_journal_reader *r, uint64_t lines)
{
    size_t bytes;
    while (lines-- > 0 && read_line(r, &bytes)) continue;
}
