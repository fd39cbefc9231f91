/* Two files have parts that are made from core/flow/columns.h: the tables of docs/policies.md, and the classes of lua/meta/gimbal.lua, which
   editors read. To bring them up to date: build/release/tests/flow_columns_doc_test --write */
#include "core/flow/view.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

#include "tests/check.h"

enum { PAGE_BYTES = 1 << 18 };
static char page[PAGE_BYTES], made[PAGE_BYTES], wanted[2 * PAGE_BYTES + 1];

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    va_list args;
    size_t used = strlen(made);
    va_start(args, format);
    vsnprintf(made + used, sizeof made - used, format, args);
    va_end(args);
}

/* ---- docs/policies.md ---- */

static void add_row(const gb_view *view, const gb_field *field)
{
    if (field->hidden) return;
    add("| `%s.%s", view->name, field->name);
    if (field->index) add("[%s]", field->index);
    add("` | %s | %s%s |\n", field->unit, field->meaning, field->written ? " (writable)" : "");
}

static void make_tables(void)
{
    made[0] = 0;
    for (int v = 0; v < GB_VIEWS; v++) {
        const gb_view *view = &gb_views[v];
        add("\n**%s**: %s\n\n| %s | unit | meaning |\n|---|---|---|\n", view->name, view->about, view->name);
        for (uint32_t i = 0; i < view->n_fields; i++) add_row(view, &view->fields[i]);
    }
    add("\n");
}

/* ---- lua/meta/gimbal.lua ---- */

static void make_classes(void)
{
    made[0] = 0;
    for (int v = 0; v < GB_VIEWS; v++) {
        const gb_view *view = &gb_views[v];
        add("\n--- %c%s.\n---@class gimbal.%s\n", toupper((unsigned char)view->about[0]), view->about + 1, view->name);
        for (uint32_t i = 0; i < view->n_fields; i++) {
            const gb_field *field = &view->fields[i];
            bool is_column = field->type == GB_FIELD_COLUMN;
            if (field->hidden) continue;
            add("---@field %s %s %s: %s%s%s\n", field->name, is_column ? field->written ? "gimbal.output" : "gimbal.column" : "number", field->unit,
                field->meaning, is_column ? "; at " : "", is_column ? field->index : "");
        }
        if (strcmp(view->name, "ranks") == 0) add("---@field window gimbal.window the window whose experts are placed\n");
    }
    add("\n");
}

/* ---- both ---- */

typedef struct part {
    const char *file, *begin, *end;
    void (*make)(void);
} part;

static const part parts[] = {
    {"docs/policies.md", "<!-- columns: made from core/flow/columns.h, see tests/flow/columns_doc_test.c -->\n", "<!-- end of columns -->\n", make_tables},
    {"lua/meta/gimbal.lua", "-- columns: made from core/flow/columns.h, see tests/flow/columns_doc_test.c\n", "-- end of columns\n", make_classes},
};
enum { PARTS = sizeof parts / sizeof *parts };

static bool read_page(const char *path)
{
    FILE *file = fopen(check_path(path), "r");
    if (!file) return false;
    size_t n = fread(page, 1, sizeof page - 1, file);
    page[n] = 0;
    fclose(file);
    return true;
}

/* wanted = the file with its part made anew; false when it has no place for it. */
static bool make_wanted(const part *p)
{
    p->make();
    if (!read_page(p->file)) return false;
    char *begin = strstr(page, p->begin), *end = strstr(page, p->end);
    if (!begin || !end || end < begin) return false;
    int head = (int)(begin - page) + (int)strlen(p->begin);
    return snprintf(wanted, sizeof wanted, "%.*s%s%s", head, page, made, end) < (int)sizeof wanted;
}

static void docs_and_stub_have_the_columns_that_policies_see(void)
{
    for (int i = 0; i < PARTS; i++) {
        CHECK(make_wanted(&parts[i]));
        if (strcmp(page, wanted) != 0)
            check_fail(__FILE__, __LINE__, "%s differs from core/flow/columns.h: run flow_columns_doc_test --write", parts[i].file);
    }
}

static int write_pages(void)
{
    for (int i = 0; i < PARTS; i++) {
        if (!make_wanted(&parts[i])) return 1;
        FILE *file = fopen(check_path(parts[i].file), "w");
        if (!file) return 1;
        fputs(wanted, file);
        if (fclose(file)) return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--write") == 0) return write_pages();
    static const check_test tests[] = {TEST(docs_and_stub_have_the_columns_that_policies_see)};
    return check_main(argc, argv, tests, 1);
}
