/* The column tables of docs/policies.md are made from core/flow/columns.h. To bring the page up to date:
   build/release/tests/flow_columns_doc_test --write */
#include "core/flow/columns.h"

#include <stdlib.h>

#include "tests/check.h"

static const char begin_mark[] = "<!-- columns: made from core/flow/columns.h, see tests/flow/columns_doc_test.c -->\n";
static const char end_mark[] = "<!-- end of columns -->\n";

enum { PAGE_BYTES = 1 << 18 };
static char page[PAGE_BYTES], made[PAGE_BYTES], wanted[2 * PAGE_BYTES + 1];

static void add(const char *text)
{
    size_t used = strlen(made);
    snprintf(made + used, sizeof made - used, "%s", text);
}

static void add_row(const char *view, const char *name, const char *index, const char *unit, const char *meaning)
{
    size_t used = strlen(made);
    snprintf(made + used, sizeof made - used, "| `%s.%s%s` | %s | %s |\n", view, name, index, unit, meaning);
}

static void make_tables(void)
{
    made[0] = 0;
#define ROW_ENGINE(name, unit, meaning) add_row("engines", #name, "[i]", unit, meaning);
#define ROW_REQUEST(name, unit, meaning) add_row("request", #name, "", unit, meaning);
#define ROW_QUEUE(name, unit, meaning) add_row("queue", #name, "[i]", unit, meaning);
    add("\n| engines: `i` in `0 .. engines.n - 1` | unit | meaning |\n|---|---|---|\n");
    GB_ENGINE_COLUMNS(ROW_ENGINE)
    add("\n| request: one row of numbers | unit | meaning |\n|---|---|---|\n");
    GB_REQUEST_COLUMNS(ROW_REQUEST)
    add("\n| queue: `i` in `0 .. queue.n - 1` | unit | meaning |\n|---|---|---|\n");
    GB_QUEUE_COLUMNS(ROW_QUEUE)
    add("\n");
}

static bool read_page(void)
{
    FILE *file = fopen(check_path("docs/policies.md"), "r");
    if (!file) return false;
    size_t n = fread(page, 1, sizeof page - 1, file);
    page[n] = 0;
    fclose(file);
    return true;
}

/* wanted = the page with fresh tables; false when it has no place for them. */
static bool make_wanted(void)
{
    make_tables();
    if (!read_page()) return false;
    char *begin = strstr(page, begin_mark), *end = strstr(page, end_mark);
    if (!begin || !end || end < begin) return false;
    int head = (int)(begin - page) + (int)strlen(begin_mark);
    return snprintf(wanted, sizeof wanted, "%.*s%s%s", head, page, made, end) < (int)sizeof wanted;
}

static void policies_page_has_the_columns_that_policies_see(void)
{
    CHECK(make_wanted());
    if (strcmp(page, wanted) != 0)
        check_fail(__FILE__, __LINE__, "docs/policies.md differs from core/flow/columns.h: run flow_columns_doc_test --write");
}

static int write_page(void)
{
    if (!make_wanted()) return 1;
    FILE *file = fopen(check_path("docs/policies.md"), "w");
    if (!file) return 1;
    fputs(wanted, file);
    return fclose(file) != 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--write") == 0) return write_page();
    static const check_test tests[] = {TEST(policies_page_has_the_columns_that_policies_see)};
    return check_main(argc, argv, tests, 1);
}
