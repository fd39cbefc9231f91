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

static void make_placement_tables(void)
{
#define ROW_WINDOW(name, unit, meaning) add_row("window", #name, "", unit, meaning);
#define ROW_TOKENS(name, unit, meaning) add_row("window", #name, "[(layer * window.sources + source) * window.experts + expert]", unit, meaning);
#define ROW_EXPERT(name, unit, meaning) add_row("window", #name, "[layer * window.experts + expert]", unit, meaning);
#define ROW_LINK(name, unit, meaning) add_row("window", #name, "[source * window.ranks + rank]", unit, meaning);
#define ROW_RANKS(name, unit, meaning) add_row("ranks", #name, "", unit, meaning);
#define ROW_RANK(name, unit, meaning) add_row("ranks", #name, "[r]", unit, meaning);
#define ROW_OUT(name, unit, meaning) add_row("out", #name, "", unit, meaning);
#define ROW_COST(name, unit, meaning) add_row("out", #name, "[rank * out.experts + expert]", unit, meaning);
#define ROW_LOAD(name, unit, meaning) add_row("out", #name, "[expert]", unit, meaning);
#define ROW_SLOT(name, unit, meaning) add_row("out", #name, "[slot]", unit, meaning);
    add("\n| window: numbers, and columns of three lengths | unit | meaning |\n|---|---|---|\n");
    GB_WINDOW_SCALARS(ROW_WINDOW)
    GB_WINDOW_COLUMNS(ROW_TOKENS)
    GB_WINDOW_EXPERT_COLUMNS(ROW_EXPERT)
    GB_WINDOW_LINK_COLUMNS(ROW_LINK)
    add("\n| ranks: `r` in `0 .. ranks.n - 1`, and the window in `ranks.window` | unit | meaning |\n|---|---|---|\n");
    GB_RANK_SCALARS(ROW_RANKS)
    GB_RANK_COLUMNS(ROW_RANK)
    add("\n| out: one layer | unit | meaning |\n|---|---|---|\n");
    GB_COST_SCALARS(ROW_OUT)
    GB_COST_COLUMNS(ROW_COST)
    GB_COST_EXPERT_COLUMNS(ROW_LOAD)
    GB_COST_SLOT_COLUMNS(ROW_SLOT)
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
    make_placement_tables();
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
