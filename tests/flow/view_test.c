#include "core/flow/view.h"

#include "core/flow/table.h"
#include "tests/check.h"

static size_t size_of(gb_field_type type) { return type == GB_FIELD_COUNT ? sizeof(uint32_t) : type == GB_FIELD_NUMBER ? sizeof(double) : sizeof(double *); }

/* A declaration that lists the fields in this order has the layout of C's struct: what LuaJIT is told is true. */
static void fields_follow_each_other_as_in_the_struct(void)
{
    for (int v = 0; v < GB_VIEWS; v++) {
        size_t at = 0;
        for (uint32_t i = 0; i < gb_views[v].n_fields; i++) {
            size_t size = size_of(gb_views[v].fields[i].type);
            at = (at + size - 1) / size * size;
            CHECK_EQ(gb_views[v].fields[i].offset, at);
            at += size;
        }
        CHECK_EQ(gb_views[v].bytes, (at + sizeof(double) - 1) / sizeof(double) * sizeof(double));
    }
}

static const gb_field *find(const gb_view *view, const char *name)
{
    for (uint32_t i = 0; i < view->n_fields; i++)
        if (strcmp(view->fields[i].name, name) == 0) return &view->fields[i];
    return NULL;
}

static void every_column_is_counted_by_a_number_of_its_view(void)
{
    for (int v = 0; v < GB_VIEWS; v++)
        for (uint32_t i = 0; i < gb_views[v].n_fields; i++) {
            const gb_field *field = &gb_views[v].fields[i];
            bool is_column = field->type == GB_FIELD_COLUMN;
            CHECK_EQ(is_column, field->rows != NULL);
            CHECK_EQ(is_column, field->index != NULL);
            CHECK(find(&gb_views[v], field->name) == field);
            CHECK(*field->unit && *field->meaning);
            if (!is_column) continue;
            const gb_field *rows = find(&gb_views[v], field->rows);
            CHECK(rows && rows->type != GB_FIELD_COLUMN && !rows->hidden);
        }
}

static void hooks_write_keys_scores_costs_and_slots_and_nothing_else(void)
{
    static const char *const written[] = {"queue.key", "ranks.score", "out.cost", "out.load", "out.expert_of_slot"};
    size_t n = 0;
    for (int v = 0; v < GB_VIEWS; v++)
        for (uint32_t i = 0; i < gb_views[v].n_fields; i++) {
            char name[128];
            if (!gb_views[v].fields[i].written) continue;
            snprintf(name, sizeof name, "%s.%s", gb_views[v].name, gb_views[v].fields[i].name);
            CHECK(n < sizeof written / sizeof *written);
            if (n < sizeof written / sizeof *written) CHECK_STR(name, written[n]);
            n++;
        }
    CHECK_EQ(n, sizeof written / sizeof *written);
}

TESTS(TEST(fields_follow_each_other_as_in_the_struct), TEST(every_column_is_counted_by_a_number_of_its_view),
      TEST(hooks_write_keys_scores_costs_and_slots_and_nothing_else))
