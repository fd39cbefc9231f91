#include "core/flow/view.h"

#include "core/flow/table.h"

#define FIELD(struct_name, kind, field, text_unit, text_meaning, ...) \
    {.name = #field, .unit = text_unit, .meaning = text_meaning, .type = GB_FIELD_##kind, .offset = offsetof(struct_name, field), __VA_ARGS__},

#define ENGINE_COUNT(name, unit, meaning) FIELD(gb_engine_table, COUNT, name, unit, meaning, .rows = NULL)
#define ENGINE_COLUMN(name, unit, meaning) FIELD(gb_engine_table, COLUMN, name, unit, meaning, .rows = "n", .index = "i")
static const gb_field engine_fields[] = {GB_ENGINE_COUNTS(ENGINE_COUNT) GB_ENGINE_COLUMNS(ENGINE_COLUMN)};

#define REQUEST_NUMBER(name, unit, meaning) FIELD(gb_request_row, NUMBER, name, unit, meaning, .rows = NULL)
static const gb_field request_fields[] = {GB_REQUEST_COLUMNS(REQUEST_NUMBER)};

#define QUEUE_COUNT(name, unit, meaning) FIELD(gb_queue_table, COUNT, name, unit, meaning, .rows = NULL)
#define QUEUE_COLUMN(name, unit, meaning) FIELD(gb_queue_table, COLUMN, name, unit, meaning, .rows = "n", .index = "i")
#define QUEUE_KEY(name, unit, meaning) FIELD(gb_queue_table, COLUMN, name, unit, meaning, .rows = "n", .index = "i", .written = true)
static const gb_field queue_fields[] = {
    GB_QUEUE_COUNTS(QUEUE_COUNT) FIELD(gb_queue_table, COUNT, capacity, "requests", "room of the columns", .hidden = true)
        GB_QUEUE_COLUMNS_OF(QUEUE_COLUMN, QUEUE_KEY)};

#define WINDOW_NUMBER(name, unit, meaning) FIELD(gb_window_table, NUMBER, name, unit, meaning, .rows = NULL)
#define WINDOW_COLUMN(name, unit, meaning) \
    FIELD(gb_window_table, COLUMN, name, unit, meaning, .rows = "n", .index = "(layer * window.sources + source) * window.experts + expert")
#define WINDOW_EXPERT(name, unit, meaning) \
    FIELD(gb_window_table, COLUMN, name, unit, meaning, .rows = "expert_rows", .index = "layer * window.experts + expert")
#define WINDOW_LINK(name, unit, meaning) FIELD(gb_window_table, COLUMN, name, unit, meaning, .rows = "link_rows", .index = "source * window.ranks + rank")
static const gb_field window_fields[] = {
    GB_WINDOW_SCALARS(WINDOW_NUMBER) GB_WINDOW_COLUMNS(WINDOW_COLUMN) GB_WINDOW_EXPERT_COLUMNS(WINDOW_EXPERT) GB_WINDOW_LINK_COLUMNS(WINDOW_LINK)};

#define RANK_COUNT(name, unit, meaning) FIELD(gb_rank_table, COUNT, name, unit, meaning, .rows = NULL)
#define RANK_NUMBER(name, unit, meaning) FIELD(gb_rank_table, NUMBER, name, unit, meaning, .rows = NULL)
#define RANK_COLUMN(name, unit, meaning) FIELD(gb_rank_table, COLUMN, name, unit, meaning, .rows = "n", .index = "r")
#define RANK_SCORE(name, unit, meaning) FIELD(gb_rank_table, COLUMN, name, unit, meaning, .rows = "n", .index = "r", .written = true)
static const gb_field rank_fields[] = {
    GB_RANK_COUNTS(RANK_COUNT) GB_RANK_SCALARS(RANK_NUMBER) GB_RANK_COLUMNS_OF(RANK_COLUMN, RANK_SCORE)};

#define COST_NUMBER(name, unit, meaning) FIELD(gb_cost_table, NUMBER, name, unit, meaning, .rows = NULL)
#define COST_COLUMN(name, unit, meaning) \
    FIELD(gb_cost_table, COLUMN, name, unit, meaning, .rows = "n", .index = "rank * out.experts + expert", .written = true)
#define COST_EXPERT(name, unit, meaning) FIELD(gb_cost_table, COLUMN, name, unit, meaning, .rows = "experts", .index = "expert", .written = true)
#define COST_SLOT(name, unit, meaning) FIELD(gb_cost_table, COLUMN, name, unit, meaning, .rows = "slots", .index = "slot", .written = true)
static const gb_field cost_fields[] = {
    GB_COST_SCALARS(COST_NUMBER) GB_COST_COLUMNS(COST_COLUMN) GB_COST_EXPERT_COLUMNS(COST_EXPERT) GB_COST_SLOT_COLUMNS(COST_SLOT)};

#define VIEW(name, type, fields, about) {name, #type, about, sizeof(type), fields, sizeof fields / sizeof *fields}

const gb_view gb_views[GB_VIEWS] = {
    VIEW("engines", gb_engine_table, engine_fields, "the latest trace of each engine; `i` in `0 .. engines.n - 1`"),
    VIEW("request", gb_request_row, request_fields, "the request that select_engine decides about: numbers"),
    VIEW("queue", gb_queue_table, queue_fields, "the waiting requests of one engine; `i` in `0 .. queue.n - 1`"),
    VIEW("window", gb_window_table, window_fields, "a profiling window: numbers, and columns of three lengths"),
    VIEW("ranks", gb_rank_table, rank_fields, "the ranks as they look to one expert; `r` in `0 .. ranks.n - 1`, and the window in `ranks.window`"),
    VIEW("out", gb_cost_table, cost_fields, "what placement_cost fills: one layer"),
};
