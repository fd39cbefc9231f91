#include "bindings/lua/lua_journal.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bindings/lua/lua_host_parts.h"
#include "tests/check.h"
#include "tests/serve/fake.h"

static char dir[64], path[96], older[112];
static gb_error err;
static gb_lua_journal *journal;
static const gb_lua_journal_header header = {2, 1e9, 5e9};
static char text[1 << 20];

static void new_directory(void)
{
    snprintf(dir, sizeof dir, "/tmp/gimbal_journal_XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/journal", dir);
    snprintf(older, sizeof older, "%s.1", path);
    err.text[0] = 0;
}

static void remove_directory(void)
{
    char command[192];
    gb_lua_journal_close(journal);
    journal = NULL;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    CHECK_EQ(system(command), 0);
}

static int open_journal(uint64_t bytes) { return gb_lua_journal_open(&journal, path, bytes, &header, &err); }

static size_t read_text(const char *name)
{
    FILE *file = fopen(name, "rb");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    return n;
}

static void write_text(const char *name, const char *what, size_t bytes)
{
    FILE *file = fopen(name, "wb");
    CHECK(file && fwrite(what, 1, bytes, file) == bytes);
    if (file) fclose(file);
}

static gb_lua_snapshot *snapshot(double prompt_tokens)
{
    gb_arena arena;
    gb_tables t;
    gb_lua_snapshot *s = NULL;
    gb_arena_init(&arena);
    CHECK_EQ(gb_tables_init(&t, &arena, 2, 1), 0);
    t.request.prompt_tokens = prompt_tokens;
    t.request.deadline_ns = INFINITY;
    t.engines.kv_used_ratio[1] = 0.1;
    CHECK_EQ(gb_lua_snapshot_take(&s, GB_HOOK_SELECT, &t.request, &t.engines, NULL, gb_seconds(7)), 0);
    gb_arena_deinit(&arena);
    gb_rng_init(&s->rng, 1);
    return s;
}

static void add(double prompt_tokens)
{
    gb_lua_decided decided = {.policy = "mine", .sha256 = "ab", .version = 3, .answer = 1, .inputs = 0xfedcba9876543210u, .ns = 812};
    gb_lua_journal_add(journal, snapshot(prompt_tokens), &decided);
}

/* Decisions in the file; *first their first request, or an error. */
static int count(const char *name, uint32_t *n, double *first, bool *cut)
{
    gb_lua_journal_reader *reader = NULL;
    gb_lua_journal_header found;
    gb_lua_snapshot *s;
    gb_lua_decided decided;
    *n = 0;
    int status = gb_lua_journal_read(&reader, name, &found, &err);
    while (!status && !(status = gb_lua_journal_next(reader, &s, &decided, &err)) && s) {
        if ((*n)++ == 0) *first = s->tables.request.prompt_tokens;
        CHECK_EQ(decided.version, 3);
        CHECK_EQ(decided.answer, 1);
        CHECK_EQ(decided.ns, 812);
        CHECK(decided.inputs == 0xfedcba9876543210u);
        CHECK_STR(decided.policy, "mine");
        CHECK_NEAR(s->tables.engines.kv_used_ratio[1], 0.1, 0);
        CHECK(isinf(s->tables.request.deadline_ns));
        CHECK_EQ(s->now, gb_seconds(7));
        gb_lua_snapshot_free(s);
    }
    if (reader) *cut = gb_lua_journal_is_cut(reader);
    gb_lua_journal_read_end(reader);
    return status;
}

static void decisions_come_back_as_they_were_written(void)
{
    uint32_t n;
    double first = 0;
    bool cut = true;
    new_directory();
    CHECK_EQ(open_journal(1 << 20), 0);
    for (int i = 0; i < 5; i++) add(10 + i);
    gb_lua_journal_write(journal);
    CHECK_EQ(count(path, &n, &first, &cut), 0);
    CHECK_EQ(n, 5);
    CHECK_NEAR(first, 10, 0);
    CHECK(!cut);
    remove_directory();
}

static void what_comes_too_fast_is_dropped_and_counted(void)
{
    gb_lua_journal_info info;
    new_directory();
    CHECK_EQ(open_journal(1 << 20), 0);
    for (int i = 0; i < GB_LUA_JOURNAL_PENDING + 3; i++) add(i);
    gb_lua_journal_info_get(journal, &info);
    CHECK_EQ(info.waiting, GB_LUA_JOURNAL_PENDING);
    CHECK_EQ(info.dropped, 3);
    gb_lua_journal_write(journal);
    gb_lua_journal_info_get(journal, &info);
    CHECK_EQ(info.written, GB_LUA_JOURNAL_PENDING);
    CHECK_EQ(info.waiting, 0);
    remove_directory();
}

static void a_journal_keeps_within_its_size_in_two_files(void)
{
    enum { SIZE = 64 * 1024, DECISIONS = 400 };
    struct stat a, b;
    uint32_t in_new, in_old;
    double first_new = 0, first_old = 0;
    bool cut;
    new_directory();
    CHECK_EQ(open_journal(SIZE), 0);
    for (int i = 0; i < DECISIONS; i++) add(i), gb_lua_journal_write(journal);
    CHECK(stat(path, &a) == 0 && stat(older, &b) == 0);
    CHECK(a.st_size + b.st_size <= SIZE);
    CHECK_EQ(count(path, &in_new, &first_new, &cut), 0);
    CHECK_EQ(count(older, &in_old, &first_old, &cut), 0);
    CHECK_NEAR(first_new + in_new, DECISIONS, 0);    /* the newest are there, and none is missing between the two */
    CHECK_NEAR(first_old + in_old, first_new, 0);
    remove_directory();
}

static void an_old_journal_is_set_aside_and_nothing_else_is_touched(void)
{
    uint32_t n;
    double first;
    bool cut;
    new_directory();
    CHECK_EQ(open_journal(1 << 20), 0);
    add(1);
    gb_lua_journal_close(journal);
    CHECK_EQ(open_journal(1 << 20), 0);
    CHECK_EQ(count(older, &n, &first, &cut), 0);
    CHECK_EQ(n, 1);
    CHECK_EQ(count(path, &n, &first, &cut), 0);
    CHECK_EQ(n, 0);
    gb_lua_journal_close(journal);
    journal = NULL;
    for (int second = 0; second < 2; second++) {    /* in the way of the file, and of FILE.1 */
        unlink(path);
        write_text(second ? older : path, "my diary\n", 9);
        CHECK_EQ(open_journal(1 << 20), GB_EEXIST);
        CHECK_CONTAINS(err.text, "left alone");
        read_text(second ? older : path);
        CHECK_STR(text, "my diary\n");
    }
    snprintf(path, sizeof path, "%s/none/journal", dir);
    CHECK_EQ(open_journal(1 << 20), GB_EIO);
    CHECK_CONTAINS(err.text, "cannot be written");
    remove_directory();
}

static void a_journal_that_a_kill_cut_off_is_read_up_to_there(void)
{
    static char whole[16384];
    uint32_t n;
    double first;
    bool cut;
    new_directory();
    CHECK_EQ(open_journal(1 << 20), 0);
    add(1), add(2);
    gb_lua_journal_write(journal);
    size_t bytes = read_text(path);
    CHECK(bytes < sizeof whole);
    memcpy(whole, text, bytes);
    for (size_t at = bytes - 1; whole[at - 1] != '\n'; at -= 7) {
        write_text(path, whole, at);
        CHECK_EQ(count(path, &n, &first, &cut), 0);
        CHECK_EQ(n, 1);
        CHECK(cut);
        if (at < bytes - 200) break;
    }
    remove_directory();
}

static void what_is_no_journal_is_refused_with_the_reason(void)
{
    static const struct {
        const char *text, *says;
        int status;
    } cases[] = {
        {"", "is no journal of gimbal", GB_EFORMAT},
        {"{\"gimbal_jour", "is no journal of gimbal", GB_EFORMAT},
        {"hello\n", "is no journal of gimbal", GB_EFORMAT},
        {"{\"gimbal_snapshot\": 1}\n", "is no journal of gimbal", GB_EFORMAT},
        {"{\"gimbal_journal\": 2}\n", "written by a newer one", GB_EVERSION},
        {"{\"gimbal_journal\": 1}\n{\"gimbal_snapshot\":1}\n", ":2: this decision is damaged (it has no decision)", GB_EFORMAT},
        {"{\"gimbal_journal\": 1}\nnothing\n", ":2: this decision is damaged (it is no JSON object)", GB_EFORMAT},
    };
    uint32_t n;
    double first;
    bool cut;
    new_directory();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(path, cases[i].text, strlen(cases[i].text));
        CHECK_EQ(count(path, &n, &first, &cut), cases[i].status);
        CHECK_CONTAINS(err.text, path);
        CHECK_CONTAINS(err.text, cases[i].says);
    }
    CHECK_EQ(count(dir, &n, &first, &cut), GB_EFORMAT);
    CHECK_EQ(count("/nowhere/journal", &n, &first, &cut), GB_ENOTFOUND);
    remove_directory();
}

static void a_changed_decision_is_found_and_later_kinds_of_lines_are_skipped(void)
{
    uint32_t n;
    double first;
    bool cut;
    new_directory();
    CHECK_EQ(open_journal(1 << 20), 0);
    add(1), add(12345);
    gb_lua_journal_close(journal);
    journal = NULL;
    size_t bytes = read_text(path);
    memcpy(text + bytes, "{\"tomorrow\": 1}\n", 17);
    write_text(path, text, bytes + 16);
    CHECK_EQ(count(path, &n, &first, &cut), 0);
    CHECK_EQ(n, 2);
    *strstr(text, "12345") = '9';
    write_text(path, text, bytes);
    CHECK_EQ(count(path, &n, &first, &cut), GB_EFORMAT);
    CHECK_CONTAINS(err.text, "journal:3: this decision is damaged (its digest does not fit)");
    remove_directory();
}

/* ---- of a live server ---- */

static fake f;
static gb_server *server;
static gb_lua_host *host;

static void serve(const char *source)
{
    gb_server_options options;
    uint32_t version;
    fake_options(&options);
    options.queue_capacity = 256;
    fake_init(&f, &options);
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
    CHECK_EQ(gb_lua_host_open_journal(host, path, 1 << 20, &err), 0);
    for (int i = 0; i < 60; i++) {
        gb_request request = fake_request(4 + (uint32_t)(i * 7) % 60, 1 + (uint32_t)i % 5);
        if (i == 30) CHECK_EQ(gb_lua_host_load(host, &version, NULL, NULL, "mine.lua", source, strlen(source), &err), 0);
        if (i == 30) CHECK_EQ(gb_lua_host_activate(host, NULL, version, &err), 0);
        fake_submit(server, &request, gb_seconds(1) + gb_ms((uint64_t)i));
        gb_time now = gb_seconds(1) + gb_ms((uint64_t)i);
        gb_event event;
        for (int round = 0; i % 6 == 5 && round < 3; round++) {
            fake_round(&f, server, now, now);
            while (gb_server_poll_event(server, &event)) continue;
        }
        gb_lua_host_idle(host, now);
    }
}

static void end_serving(void)
{
    gb_lua_host_free(host);
    gb_server_free(server);
    fake_deinit(&f);
}

#define MINE "local policy = { api = 1, name = 'mine' }\n" \
             "function policy.select_engine(request, engines) return gimbal.random(engines.n) end\n" \
             "function policy.order_queue(queue) for i = 0, queue.n - 1 do queue.key[i] = -queue.prompt_tokens[i] end end\nreturn policy"

static void a_recorded_decision_decides_again_as_it_did(void)
{
    gb_lua_journal_reader *reader = NULL;
    gb_lua_journal_header found;
    gb_lua_snapshot *s;
    gb_lua_decided decided;
    gb_lua_desk *desk = NULL;
    uint32_t selects[2] = {0}, orders[2] = {0};
    new_directory();
    serve(MINE);
    end_serving();
    CHECK_EQ(gb_lua_desk_open(&desk, "mine.lua", MINE, strlen(MINE), 2, NULL, &err), 0);
    CHECK_EQ(gb_lua_journal_read(&reader, path, &found, &err), 0);
    CHECK_EQ(found.engines, 2);
    CHECK_NEAR(found.stale_after_ns, 1e9, 0);
    while (gb_lua_journal_next(reader, &s, &decided, &err) == 0 && s) {
        bool mine = strcmp(decided.policy, "mine") == 0;
        gb_lua_trial trial;
        if (s->hook == GB_HOOK_SELECT) selects[mine]++;
        else orders[mine]++;
        if (mine) gb_lua_desk_try(desk, s, &trial);
        if (mine) CHECK_EQ(trial.answer, decided.answer);    /* its dice too */
        if (!mine) CHECK_STR(decided.policy, "builtin");
        gb_lua_snapshot_free(s);
    }
    CHECK_EQ(selects[0], 30);
    CHECK_EQ(selects[1], 30);
    CHECK(orders[0] > 0 && orders[1] > 0);
    gb_lua_journal_read_end(reader);
    gb_lua_desk_close(desk);
    remove_directory();
}

/* ---- differences ---- */

static void diff(gb_lua_diff *d, gb_lua_desk *a, gb_lua_desk *b)
{
    gb_lua_journal_reader *reader = NULL;
    gb_lua_journal_header found;
    gb_lua_desk *const desks[2] = {a, b};
    CHECK_EQ(gb_lua_journal_read(&reader, path, &found, &err), 0);
    CHECK_EQ(gb_lua_diff_run(d, desks, reader, &found, 0, &err), 0);
    gb_lua_journal_read_end(reader);
}

static gb_lua_desk *desk_of(const char *source)
{
    gb_lua_desk *desk = NULL;
    CHECK_EQ(gb_lua_desk_open(&desk, "mine.lua", source, strlen(source), 2, NULL, &err), 0);
    return desk;
}

static void a_diff_counts_and_names_the_decisions_that_differ(void)
{
    static gb_lua_diff d;
    gb_lua_desk *mine = desk_of(MINE), *again = desk_of(MINE),
                *other = desk_of("local p = { api = 1 }\nfunction p.select_engine(r, e) return e.n - 1 end\nreturn p");
    new_directory();
    serve(MINE);
    end_serving();
    diff(&d, mine, again);
    CHECK_EQ(d.comparisons[GB_HOOK_SELECT].decisions, 60);
    CHECK_EQ(d.comparisons[GB_HOOK_SELECT].agreed, 60);
    CHECK(d.comparisons[GB_HOOK_ORDER].decisions > 0);
    CHECK_EQ(d.comparisons[GB_HOOK_ORDER].agreed, d.comparisons[GB_HOOK_ORDER].decisions);
    CHECK_EQ(d.n_differences, 0);
    diff(&d, mine, other);
    const gb_lua_comparison *c = &d.comparisons[GB_HOOK_SELECT];
    CHECK(c->agreed > 0 && c->agreed < 60);
    CHECK_EQ(c->sides[0].costs.n, 60);
    CHECK(d.n_differences >= 60 - c->agreed);
    CHECK(d.differences[0].answers[0] != d.differences[0].answers[1]);
    CHECK(d.differences[0].inputs != 0);
    diff(&d, NULL, other);    /* the built-in; neither orders */
    CHECK_EQ(d.comparisons[GB_HOOK_SELECT].decisions, 60);
    CHECK_EQ(d.comparisons[GB_HOOK_ORDER].decisions, 0);
    CHECK(d.left_out > 0);
    CHECK_EQ(d.decisions, 60 + d.left_out);
    gb_lua_desk_close(mine);
    gb_lua_desk_close(again);
    gb_lua_desk_close(other);
    remove_directory();
}

static void a_host_compares_versions_on_its_newest_decisions_with_their_params(void)
{
    static const char source[] = "local p = { api = 1, name = 'fixed', params = { engine = 0 } }\n"
                                 "function p.select_engine() return p.params.engine end\nreturn p";
    static gb_lua_diff d;
    gb_lua_desk *desks[2] = {NULL, NULL};
    uint32_t versions[2];
    new_directory();
    serve(MINE);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(gb_lua_host_load(host, &versions[i], NULL, NULL, "fixed.lua", source, sizeof source - 1, &err), 0);
        CHECK_EQ(gb_lua_host_set(host, versions[i], "engine", &(gb_lua_value){.number = i}, &(gb_lua_change){0}, &err), 0);
        CHECK_EQ(gb_lua_host_desk(host, versions[i], &desks[i], &err), 0);
    }
    CHECK_EQ(gb_lua_host_diff(host, &d, desks, 20, 0, &err), 0);
    CHECK_EQ(d.decisions, 20);
    CHECK_EQ(d.comparisons[GB_HOOK_SELECT].agreed, 0);
    CHECK_EQ(d.differences[0].answers[1], 1);
    CHECK_EQ(gb_lua_host_diff(host, &d, desks, 1000, 1, &err), 0);    /* a nanosecond */
    CHECK(d.out_of_time);
    CHECK_EQ(gb_lua_host_desk(host, 999, &desks[0], &err), GB_ENOTFOUND);
    for (int i = 0; i < 2; i++) gb_lua_desk_close(desks[i]);
    end_serving();
    remove_directory();
}

TESTS(TEST(decisions_come_back_as_they_were_written), TEST(what_comes_too_fast_is_dropped_and_counted),
      TEST(a_journal_keeps_within_its_size_in_two_files), TEST(an_old_journal_is_set_aside_and_nothing_else_is_touched),
      TEST(a_journal_that_a_kill_cut_off_is_read_up_to_there), TEST(what_is_no_journal_is_refused_with_the_reason),
      TEST(a_changed_decision_is_found_and_later_kinds_of_lines_are_skipped), TEST(a_recorded_decision_decides_again_as_it_did),
      TEST(a_diff_counts_and_names_the_decisions_that_differ), TEST(a_host_compares_versions_on_its_newest_decisions_with_their_params))
