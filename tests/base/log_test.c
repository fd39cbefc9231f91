#include "core/base/log.h"

#include "tests/check.h"

typedef struct kept {
    int n;
    gb_log_level level;
    char line[2048];
} kept;

static void keep(void *self, gb_log_level level, const char *line)
{
    kept *k = self;
    k->n++;
    k->level = level;
    snprintf(k->line, sizeof k->line, "%s", line);
}

static void without_a_sink_lines_vanish(void)
{
    gb_log_set_sink(NULL, NULL, GB_LOG_DEBUG);
    gb_log(GB_LOG_ERROR, "nobody hears %d", 1);
}

static void the_sink_gets_formatted_lines_from_the_lowest_level_on(void)
{
    kept k = {0};
    gb_log_set_sink(keep, &k, GB_LOG_WARN);
    gb_log(GB_LOG_INFO, "quiet");
    CHECK_EQ(k.n, 0);
    gb_log(GB_LOG_WARN, "rank %d is %s", 3, "slow");
    CHECK_EQ(k.n, 1);
    CHECK_EQ(k.level, GB_LOG_WARN);
    CHECK_STR(k.line, "rank 3 is slow");
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
}

static void a_long_line_is_cut(void)
{
    static char text[3000];
    kept k = {0};
    memset(text, 'y', sizeof text - 1);
    gb_log_set_sink(keep, &k, GB_LOG_DEBUG);
    gb_log(GB_LOG_DEBUG, "%s", text);
    CHECK_EQ(strlen(k.line), 1023);
    gb_log_set_sink(NULL, NULL, GB_LOG_INFO);
}

TESTS(TEST(without_a_sink_lines_vanish), TEST(the_sink_gets_formatted_lines_from_the_lowest_level_on), TEST(a_long_line_is_cut))
