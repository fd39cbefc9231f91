#include "bindings/lua/lua_store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "tests/check.h"

static char dir[64], log_path[96];
static gb_lua_store *store;
static gb_error err;
static char warnings[4096];

static void listen_to_warnings(void *self, gb_log_level level, const char *line)
{
    (void)self;
    size_t n = strlen(warnings);
    if (level >= GB_LOG_WARN) snprintf(warnings + n, sizeof warnings - n, "%s\n", line);
}

static void new_directory(void)
{
    snprintf(dir, sizeof dir, "/tmp/gimbal_store_XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(log_path, sizeof log_path, "%s/policies.log", dir);
    warnings[0] = err.text[0] = 0;
    gb_log_set_sink(listen_to_warnings, NULL, GB_LOG_DEBUG);
}

static void remove_directory(void)
{
    char command[192];
    gb_lua_store_close(store);
    store = NULL;
    gb_log_set_sink(NULL, NULL, GB_LOG_DEBUG);
    snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s", dir, dir);
    CHECK_EQ(system(command), 0);
}

static int open_store(void)
{
    gb_lua_store_close(store);
    store = NULL;
    return gb_lua_store_open(&store, dir, GB_LUA_STORE_LOG_MAX, &err);
}

static int append(gb_lua_record_kind kind, uint64_t put)
{
    gb_lua_record record = {.kind = kind, .put = put, .who = "tester", .name = "mine", .version = 3, .hooks = {[GB_HOOK_ORDER] = true}};
    memset(record.sha256, 'a', GB_SHA256_HEX);
    record.setting = (gb_lua_setting){.name = "w", .value = {.number = 0.1}};
    return gb_lua_store_append(store, &record, &err);
}

static uint32_t count(void)
{
    uint32_t n = 0;
    gb_lua_record record;
    for (size_t cursor = 0; gb_lua_store_next(store, &cursor, &record);) n++;
    return n;
}

static size_t read_file(const char *path, char *out, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(out, 1, capacity - 1, file) : 0;
    if (file) fclose(file);
    out[n] = 0;
    return n;
}

static void write_file(const char *path, const char *mode, const char *text, size_t bytes)
{
    FILE *file = fopen(path, mode);
    CHECK(file != NULL);
    if (!file) return;
    CHECK_EQ(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

/* ---- keeping ---- */

static void records_come_back_as_they_were_written(void)
{
    gb_lua_record r;
    size_t cursor = 0;
    new_directory();
    CHECK_EQ(open_store(), 0);
    CHECK_EQ(count(), 0);
    for (int kind = 0; kind < GB_LUA_RECORD_KINDS; kind++) CHECK_EQ(append((gb_lua_record_kind)kind, 1), 0);
    CHECK_EQ(open_store(), 0);
    for (int kind = 0; kind < GB_LUA_RECORD_KINDS; kind++) {
        CHECK(gb_lua_store_next(store, &cursor, &r));
        CHECK_EQ(r.kind, kind);
        CHECK_EQ(r.seq, kind + 1);
        CHECK_EQ(r.put, 1);
        CHECK_EQ(r.version, 3);
        CHECK_STR(r.who, "tester");
        CHECK_STR(r.name, "mine");
        CHECK(r.hooks[GB_HOOK_ORDER] && !r.hooks[GB_HOOK_SELECT]);
        if (kind != GB_LUA_RECORD_SET) continue;
        CHECK_STR(r.setting.name, "w");
        CHECK(r.setting.value.number == 0.1);    /* exactly */
    }
    CHECK(!gb_lua_store_next(store, &cursor, &r));
    CHECK_EQ(append(GB_LUA_RECORD_BUILTIN, 0), 0);
    CHECK_EQ(gb_lua_store_records(store), GB_LUA_RECORD_KINDS + 1);
    CHECK_STR(warnings, "");
    remove_directory();
}

static void a_script_is_kept_under_its_digest_and_checked_when_it_is_read(void)
{
    static const char source[] = "return { api = 1 }\n";
    char sha256[GB_SHA256_HEX + 1], path[192];
    gb_lua_text text = {0};
    new_directory();
    CHECK_EQ(open_store(), 0);
    gb_sha256_hex(sha256, source, sizeof source - 1);
    CHECK_EQ(gb_lua_store_source(store, &text, sha256, &err), GB_ENOTFOUND);
    CHECK_EQ(gb_lua_store_keep(store, sha256, source, sizeof source - 1, &err), 0);
    CHECK_EQ(gb_lua_store_keep(store, sha256, source, sizeof source - 1, &err), 0);
    CHECK_EQ(gb_lua_store_source(store, &text, sha256, &err), 0);
    CHECK_STR(text.data, source);
    gb_lua_text_free(&text);
    snprintf(path, sizeof path, "%s/sources/%s.lua", dir, sha256);
    write_file(path, "wb", "return { api = 2 }\n", sizeof source - 1);
    CHECK_EQ(gb_lua_store_source(store, &text, sha256, &err), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "has changed");
    remove_directory();
}

static void a_log_that_is_full_takes_no_more_and_says_so(void)
{
    new_directory();
    CHECK_EQ(gb_lua_store_open(&store, dir, 1000, &err), 0);
    int status = 0, n = 0;
    for (; n < 100 && !status; n++) status = append(GB_LUA_RECORD_BUILTIN, 0);
    CHECK_EQ(status, GB_EFULL);
    CHECK(n > 2 && n < 10);
    CHECK_CONTAINS(err.text, "policies.log is full");
    CHECK_CONTAINS(err.text, "--policy-store");
    CHECK_EQ(open_store(), 0);
    CHECK_EQ(count(), n - 1);
    remove_directory();
}

/* ---- what a kill leaves behind ---- */

static void a_record_that_was_cut_off_is_set_aside_at_every_length(void)
{
    static char whole[4096], torn[4096], path[128];
    new_directory();
    CHECK_EQ(open_store(), 0);
    append(GB_LUA_RECORD_ACTIVATE, 1);
    size_t first = read_file(log_path, whole, sizeof whole);
    append(GB_LUA_RECORD_BUILTIN, 0);
    size_t n = read_file(log_path, whole, sizeof whole);
    snprintf(path, sizeof path, "%s.torn", log_path);
    for (size_t cut = first + 1; cut < n; cut++) {
        warnings[0] = 0;
        gb_lua_store_close(store);
        store = NULL;
        unlink(path);
        write_file(log_path, "wb", whole, cut);
        CHECK_EQ(open_store(), 0);
        CHECK_EQ(count(), 1);
        CHECK(!gb_lua_store_damaged(store));
        CHECK_CONTAINS(warnings, "policies.log ended in the middle of a record");
        CHECK_EQ(read_file(path, torn, sizeof torn), cut - first + 1);
        CHECK_EQ(append(GB_LUA_RECORD_SET, 1), 0);
        CHECK_EQ(open_store(), 0);
        CHECK_EQ(count(), 2);
    }
    remove_directory();
}

static void a_header_that_was_cut_off_is_written_again(void)
{
    new_directory();
    write_file(log_path, "wb", "gimbal-policy", 13);
    CHECK_EQ(open_store(), 0);
    CHECK_EQ(append(GB_LUA_RECORD_BUILTIN, 0), 0);
    CHECK_EQ(open_store(), 0);
    CHECK_EQ(count(), 1);
    remove_directory();
}

/* The child writes until it is killed; whatever it had said was on the disk is there, and the rest is whole. */
static void a_kill_in_the_middle_of_writing_loses_no_record_that_was_acknowledged(void)
{
    new_directory();
    for (int round = 0; round < 8; round++) {
        int pipe_fds[2];
        CHECK_EQ(pipe(pipe_fds), 0);
        pid_t child = fork();
        if (child == 0) {
            store = NULL;
            if (open_store()) _exit(1);
            for (;;) {
                uint64_t seq = gb_lua_store_records(store) + 1;
                if (append(GB_LUA_RECORD_SET, seq) || write(pipe_fds[1], &seq, sizeof seq) != sizeof seq) _exit(1);
            }
        }
        close(pipe_fds[1]);
        uint64_t seen = 0, next;
        for (int i = 0; i < 20 + 7 * round && read(pipe_fds[0], &next, sizeof next) == sizeof next; i++) seen = next;
        CHECK(seen > 0);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipe_fds[0], &next, sizeof next) == sizeof next) seen = next;
        close(pipe_fds[0]);
        CHECK_EQ(open_store(), 0);
        CHECK(gb_lua_store_records(store) >= seen);
        CHECK_EQ(count(), gb_lua_store_records(store));
        CHECK(!gb_lua_store_damaged(store));
        gb_lua_store_close(store);
        store = NULL;
    }
    remove_directory();
}

/* ---- what is no good store ---- */

static void a_damaged_record_is_named_and_left_where_it_is(void)
{
    static char text[4096], after[4096];
    char where[128];
    new_directory();
    CHECK_EQ(open_store(), 0);
    for (int i = 0; i < 3; i++) append(GB_LUA_RECORD_ACTIVATE, 1);
    size_t n = read_file(log_path, text, sizeof text);
    char *at = strstr(text, "tester");    /* of the first record */
    CHECK(at != NULL);
    *at = 'X';
    gb_lua_store_close(store);
    store = NULL;
    write_file(log_path, "wb", text, n);
    CHECK_EQ(open_store(), 0);
    CHECK(gb_lua_store_damaged(store));
    CHECK_EQ(count(), 2);
    snprintf(where, sizeof where, "%s:2: this record is damaged", log_path);
    CHECK_CONTAINS(warnings, where);
    CHECK_EQ(read_file(log_path, after, sizeof after), n);
    CHECK_STR(after, text);
    remove_directory();
}

static void what_a_later_gimbal_adds_is_skipped(void)
{
    static const char json[] = "{\"seq\":7,\"kind\":\"tomorrow\",\"more\":[1]}";
    char sum[GB_SHA256_HEX + 1], line[256];
    new_directory();
    CHECK_EQ(open_store(), 0);
    gb_sha256_hex(sum, json, sizeof json - 1);
    int n = snprintf(line, sizeof line, "%.16s %s\n", sum, json);
    write_file(log_path, "ab", line, (size_t)n);
    CHECK_EQ(open_store(), 0);
    CHECK_EQ(count(), 0);
    CHECK(!gb_lua_store_damaged(store));
    CHECK_EQ(append(GB_LUA_RECORD_BUILTIN, 0), 0);
    CHECK_EQ(gb_lua_store_records(store), 8);
    remove_directory();
}

static void a_store_that_cannot_be_used_is_refused_with_its_path_and_the_remedy(void)
{
    static const struct {
        const char *log, *says;
        int status;
    } cases[] = {
        {"gimbal-policy-log 2\n", "written by a newer one", GB_EVERSION},
        {"gimbal-policy-log 0\n", "never was", GB_EFORMAT},
        {"root:x:0:0:root:/root:/bin/bash\n", "is no policy log of gimbal", GB_EFORMAT},
        {"\n", "is no policy log of gimbal", GB_EFORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static char after[256];
        new_directory();
        write_file(log_path, "wb", cases[i].log, strlen(cases[i].log));
        CHECK_EQ(open_store(), cases[i].status);
        CHECK_CONTAINS(err.text, log_path);
        CHECK_CONTAINS(err.text, cases[i].says);
        read_file(log_path, after, sizeof after);
        CHECK_STR(after, cases[i].log);
        remove_directory();
    }
}

static void a_directory_that_is_none_or_cannot_be_written_is_refused(void)
{
    char file[96], inside[112];
    new_directory();
    snprintf(file, sizeof file, "%s/file", dir);
    write_file(file, "wb", "x", 1);
    CHECK_EQ(gb_lua_store_open(&store, file, GB_LUA_STORE_LOG_MAX, &err), GB_EINVAL);
    CHECK_CONTAINS(err.text, "is not a directory");
    snprintf(inside, sizeof inside, "%s/none/store", dir);
    CHECK_EQ(gb_lua_store_open(&store, inside, GB_LUA_STORE_LOG_MAX, &err), GB_EIO);
    CHECK_CONTAINS(err.text, "cannot be made");
    snprintf(inside, sizeof inside, "%s/lock", dir);
    CHECK_EQ(mkdir(inside, 0700), 0);    /* also root cannot write to it */
    CHECK_EQ(open_store(), GB_EIO);
    CHECK_CONTAINS(err.text, "cannot be written");
    CHECK_CONTAINS(err.text, "--policy-store");
    remove_directory();
}

static void a_store_has_one_owner_at_a_time(void)
{
    gb_lua_store *second = NULL;
    new_directory();
    CHECK_EQ(open_store(), 0);
    CHECK_EQ(gb_lua_store_open(&second, dir, GB_LUA_STORE_LOG_MAX, &err), GB_EEXIST);
    CHECK_CONTAINS(err.text, "in use by another gimbal");
    remove_directory();
}

TESTS(TEST(records_come_back_as_they_were_written), TEST(a_script_is_kept_under_its_digest_and_checked_when_it_is_read),
      TEST(a_log_that_is_full_takes_no_more_and_says_so), TEST(a_record_that_was_cut_off_is_set_aside_at_every_length),
      TEST(a_header_that_was_cut_off_is_written_again), TEST(a_kill_in_the_middle_of_writing_loses_no_record_that_was_acknowledged),
      TEST(a_damaged_record_is_named_and_left_where_it_is), TEST(what_a_later_gimbal_adds_is_skipped),
      TEST(a_store_that_cannot_be_used_is_refused_with_its_path_and_the_remedy),
      TEST(a_directory_that_is_none_or_cannot_be_written_is_refused), TEST(a_store_has_one_owner_at_a_time))
