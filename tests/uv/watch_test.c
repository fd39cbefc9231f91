#include "bindings/uv/watch.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "tests/check.h"
#include "tests/serve/fake.h"

enum { PATIENCE_S = 60 };    /* only says when to give up */

static fake f;
static uv_loop_t loop;
static uv_timer_t tick;    /* keeps the loop turning: what watches does not */
static gb_server *server;
static gb_lua_host *host;
static gb_watch *watch;
static gb_error err;
static char dir[64], last_warning[1024];
static bool was_gone, was_crowded;

static gb_time clock_of(void *self)
{
    (void)self;
    return uv_hrtime();
}

static void keep_lines(void *self, gb_log_level level, const char *line)
{
    (void)self;
    if (level == GB_LOG_WARN) snprintf(last_warning, sizeof last_warning, "%s", line);
    if (strstr(line, " is gone; what is loaded of it stays")) was_gone = true;
    if (strstr(line, "more than 128 policies; p")) was_crowded = true;
}

static const char *path_of(const char *name)
{
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void write_part(const char *name, const char *text, const char *mode)
{
    FILE *file = fopen(path_of(name), mode);
    CHECK(file != NULL);
    if (!file) return;
    fputs(text, file);
    fclose(file);
}

static void write_file(const char *name, const char *text) { write_part(name, text, "w"); }

static void on_tick(uv_timer_t *timer) { (void)timer; }

static void start(void)
{
    gb_server_options options;
    fake_options(&options);
    fake_init(&f, &options);
    snprintf(dir, sizeof dir, "/tmp/gimbal_watch_XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    last_warning[0] = '\0';
    was_gone = was_crowded = false;
    gb_log_set_sink(keep_lines, NULL, GB_LOG_INFO);
    CHECK_EQ(gb_server_new(&server, &options, &err), 0);
    CHECK_EQ(gb_lua_host_new(&host, server, 1, &err), 0);
    CHECK_EQ(uv_loop_init(&loop), 0);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 10, 10);
}

/* All at the start and the watch after it, as the server does. */
static void start_watching(void)
{
    CHECK_EQ(gb_lua_host_load_dir(host, dir, &err), 0);
    CHECK_EQ(gb_watch_new(&watch, &loop, host, dir, clock_of, NULL, &err), 0);
}

static void stop(void)
{
    gb_watch_close(watch);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&loop), 0);
    gb_lua_host_free(host);
    gb_server_free(server);
    fake_deinit(&f);
    gb_log_set_sink(NULL, NULL, GB_LOG_ERROR);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_EQ(system(command), 0);
}

static uint64_t events(void) { return gb_lua_log_events(gb_lua_host_log(host)); }

static const gb_lua_event *event_at(uint64_t seq)
{
    uint64_t before = seq - 1;
    return gb_lua_log_next_event(gb_lua_host_log(host), &before);
}

/* Turns the loop until the log of changes has so many entries. */
static void await_events(uint64_t n)
{
    for (uint64_t end = uv_hrtime() + gb_seconds(PATIENCE_S); events() < n && uv_hrtime() < end;) uv_run(&loop, UV_RUN_ONCE);
    CHECK_EQ(events(), n);
}

static void pass(uint64_t ms)
{
    for (uint64_t end = uv_hrtime() + gb_ms(ms); uv_hrtime() < end;) uv_run(&loop, UV_RUN_ONCE);
}

static void check_event(uint64_t seq, gb_lua_event_kind kind, const char *part)
{
    const gb_lua_event *event = event_at(seq);
    CHECK(event != NULL);
    if (!event) return;
    CHECK_EQ(event->kind, kind);
    CHECK_STR(event->who, "directory");
    CHECK_CONTAINS(event->text, part);
}

static gb_lua_info active(gb_hook hook)
{
    gb_lua_info info = {0};
    gb_lua_host_find(host, gb_lua_host_active(host, hook), &info);
    return info;
}

#define SELECTS(engine) "return { api = 1, name = 'mine', select_engine = function() return " engine " end }\n"

static uint64_t use_mine(void)
{
    CHECK_EQ(gb_lua_host_use(host, "select_engine", "mine", &err), 0);
    return events();
}

static void a_changed_file_decides_where_its_name_does(void)
{
    start();
    write_file("mine.lua", SELECTS("0"));
    start_watching();
    uint64_t n = use_mine();
    uint32_t before = active(GB_HOOK_SELECT).version;
    write_file("mine.lua", SELECTS("1"));
    await_events(n + 2);
    check_event(n + 1, GB_LUA_EVENT_LOAD, "policy mine v");
    check_event(n + 2, GB_LUA_EVENT_ACTIVATE, "decides select_engine");
    CHECK_EQ(strlen(event_at(n + 2)->sha256), 64);
    CHECK(active(GB_HOOK_SELECT).version > before);
    stop();
}

static void a_changed_file_whose_name_does_not_decide_is_only_loaded(void)
{
    start();
    write_file("mine.lua", SELECTS("0"));
    start_watching();
    uint64_t n = events();
    write_file("mine.lua", SELECTS("1"));
    write_file("new.lua", "return { api = 1, select_engine = function() return 0 end }\n");
    await_events(n + 2);
    CHECK_EQ(event_at(n + 1)->kind, GB_LUA_EVENT_LOAD);
    CHECK_EQ(event_at(n + 2)->kind, GB_LUA_EVENT_LOAD);
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_SELECT), 0);
    stop();
}

static void a_file_replaced_by_rename_is_read_once(void)
{
    start();
    write_file("mine.lua", SELECTS("0"));
    start_watching();
    uint64_t n = use_mine();
    write_file(".mine.lua.swp", "no Lua at all");
    write_file("mine.lua~", SELECTS("9"));
    write_file("4913", SELECTS("1"));
    CHECK_EQ(rename(path_of("4913"), path_of("mine.lua")), 0);
    await_events(n + 2);
    pass(3 * GB_WATCH_SETTLE_MS);
    CHECK_EQ(events(), n + 2);
    stop();
}

static void a_file_written_in_parts_decides_once_it_is_whole(void)
{
    static const char *const parts[] = {"return { api = 1, name = 'mine',", " select_engine = function()", " return 1", " end }\n"};
    start();
    write_file("mine.lua", SELECTS("0"));
    start_watching();
    use_mine();
    uint32_t before = active(GB_HOOK_SELECT).version;
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(active(GB_HOOK_SELECT).version, before);
        write_part("mine.lua", parts[i], i ? "a" : "w");
        pass(GB_WATCH_SETTLE_MS / 4);
    }
    for (uint64_t end = uv_hrtime() + gb_seconds(PATIENCE_S); active(GB_HOOK_SELECT).version == before && uv_hrtime() < end;)
        uv_run(&loop, UV_RUN_ONCE);
    CHECK_CONTAINS(gb_lua_host_source(host, active(GB_HOOK_SELECT).version, NULL), " return 1 end");
    stop();
}

static void a_broken_file_leaves_what_decides_and_names_its_line(void)
{
    start();
    write_file("mine.lua", SELECTS("0"));
    start_watching();
    uint64_t n = use_mine(), generation = gb_lua_host_generation(host);
    uint32_t before = active(GB_HOOK_SELECT).version;
    write_file("mine.lua", "return {\n  api = 1,\n  select_engine = function( return 0 end }\n");
    await_events(n + 1);
    check_event(n + 1, GB_LUA_EVENT_REFUSED, "mine.lua:3:");
    CHECK_CONTAINS(last_warning, "mine.lua:3:");
    CHECK_EQ(active(GB_HOOK_SELECT).version, before);
    CHECK_EQ(gb_lua_host_generation(host), generation);
    write_file("mine.lua", SELECTS("0"));    /* what decides already */
    pass(4 * GB_WATCH_SETTLE_MS);
    CHECK_EQ(events(), n + 1);
    write_file("mine.lua", SELECTS("1"));    /* mended */
    await_events(n + 3);
    CHECK(active(GB_HOOK_SELECT).version > before);
    stop();
}

static void a_deleted_file_changes_nothing_until_it_is_back(void)
{
    start();
    write_file("mine.lua", SELECTS("0"));
    start_watching();
    uint64_t n = use_mine();
    uint32_t before = active(GB_HOOK_SELECT).version;
    pass(4 * GB_WATCH_SETTLE_MS);
    CHECK_EQ(unlink(path_of("mine.lua")), 0);
    for (uint64_t end = uv_hrtime() + gb_seconds(PATIENCE_S); !was_gone && uv_hrtime() < end;) uv_run(&loop, UV_RUN_ONCE);
    CHECK(was_gone);
    CHECK_EQ(active(GB_HOOK_SELECT).version, before);
    write_file("mine.lua", SELECTS("1"));
    await_events(n + 2);
    CHECK(active(GB_HOOK_SELECT).version > before);
    stop();
}

static void a_hook_that_left_the_file_goes_to_the_builtin(void)
{
    start();
    write_file("mine.lua", "return { api = 1, name = 'mine', select_engine = function() return 0 end, order_queue = function() end }\n");
    start_watching();
    CHECK_EQ(gb_lua_host_use(host, "order_queue", "mine", &err), 0);
    uint64_t n = use_mine();
    write_file("mine.lua", SELECTS("1"));
    await_events(n + 3);
    CHECK_STR(active(GB_HOOK_SELECT).name, "mine");
    CHECK_EQ(gb_lua_host_active(host, GB_HOOK_ORDER), 0);
    stop();
}

static void files_that_may_not_decide_are_refused_by_name(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"return { api = 2, select_engine = function() end }\n", "api"},
        {"\xef\xbb\xbf" SELECTS("0"), "byte order mark"},
        {"return { api = 1 }\n", "no hook"},
        {"while true do end\n", "mine.lua:1:"},
    };
    start();
    write_file("mine.lua", SELECTS("0"));
    start_watching();
    uint64_t n = use_mine();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file("mine.lua", cases[i].text);
        await_events(++n);
        check_event(n, GB_LUA_EVENT_REFUSED, cases[i].part);
    }
    CHECK_EQ(symlink("/etc/hostname", path_of("link.lua")), 0);
    await_events(++n);
    check_event(n, GB_LUA_EVENT_REFUSED, "link out of the policy directory");
    write_file("other.lua", SELECTS("1"));
    await_events(n + 2);
    check_event(n + 2, GB_LUA_EVENT_REFUSED, "both make a policy named mine");
    CHECK_STR(active(GB_HOOK_SELECT).name, "mine");
    CHECK_EQ(active(GB_HOOK_SELECT).faults, 0);
    stop();
}

static void a_directory_with_too_many_files_says_which_it_leaves_out(void)
{
    char name[32];
    start();
    CHECK_EQ(gb_watch_new(&watch, &loop, host, dir, clock_of, NULL, &err), 0);
    for (int i = 0; i <= GB_WATCH_FILES_MAX; i++) {
        snprintf(name, sizeof name, "p%d.lua", i);
        write_file(name, "no Lua");
    }
    await_events(GB_WATCH_FILES_MAX);
    pass(2 * GB_WATCH_SETTLE_MS);
    CHECK_EQ(events(), GB_WATCH_FILES_MAX);
    CHECK(was_crowded);
    stop();
}

static void what_is_no_directory_is_looked_for_again(void)
{
    start();
    char gone[80];
    snprintf(gone, sizeof gone, "%s/later", dir);
    CHECK_EQ(gb_watch_new(&watch, &loop, host, gone, clock_of, NULL, &err), 0);
    CHECK_CONTAINS(last_warning, "tells no changes");
    CHECK_EQ(mkdir(gone, 0700), 0);
    write_file("later/mine.lua", SELECTS("0"));
    await_events(1);
    check_event(1, GB_LUA_EVENT_LOAD, "policy mine v");
    stop();
}

TESTS(TEST(a_changed_file_decides_where_its_name_does), TEST(a_changed_file_whose_name_does_not_decide_is_only_loaded),
      TEST(a_file_replaced_by_rename_is_read_once), TEST(a_file_written_in_parts_decides_once_it_is_whole),
      TEST(a_broken_file_leaves_what_decides_and_names_its_line), TEST(a_deleted_file_changes_nothing_until_it_is_back),
      TEST(a_hook_that_left_the_file_goes_to_the_builtin), TEST(files_that_may_not_decide_are_refused_by_name),
      TEST(a_directory_with_too_many_files_says_which_it_leaves_out), TEST(what_is_no_directory_is_looked_for_again))
