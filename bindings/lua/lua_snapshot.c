#include "bindings/lua/lua_snapshot.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/moe/dump.h"

typedef struct column {
    const char *name;
    size_t offset;    /* of the pointer, or of the scalar, in its table */
} column;

#define ENGINE_COLUMN(name, unit, meaning) {#name, offsetof(gb_engine_table, name)},
#define QUEUE_COLUMN(name, unit, meaning) {#name, offsetof(gb_queue_table, name)},
#define REQUEST_COLUMN(name, unit, meaning) {#name, offsetof(gb_request_row, name)},
static const column engine_columns[] = {GB_ENGINE_COLUMNS(ENGINE_COLUMN)};
static const column queue_columns[] = {GB_QUEUE_COLUMNS(QUEUE_COLUMN)};
static const column request_columns[] = {GB_REQUEST_COLUMNS(REQUEST_COLUMN)};

enum {
    ENGINE_COLUMNS = sizeof engine_columns / sizeof *engine_columns,
    QUEUE_COLUMNS = sizeof queue_columns / sizeof *queue_columns,
    REQUEST_COLUMNS = sizeof request_columns / sizeof *request_columns,
};

static double *cells_of(const void *table, const column *c) { return *(double *const *)((const char *)table + c->offset); }
static double *scalar_of(void *row, const column *c) { return (double *)((char *)row + c->offset); }

/* ---- taking ---- */

static int make(gb_lua_snapshot **out, gb_hook hook, uint32_t engines, uint32_t queue)
{
    gb_lua_snapshot *s = calloc(1, sizeof *s);
    if (!s) return GB_ENOMEM;
    gb_arena_init(&s->arena);
    s->hook = hook;
    if (gb_tables_init(&s->tables, &s->arena, engines ? engines : 1, queue ? queue : 1)) {
        gb_lua_snapshot_free(s);
        return GB_ENOMEM;
    }
    s->tables.queue.n = queue;
    *out = s;
    return GB_OK;
}

void gb_lua_snapshot_free(gb_lua_snapshot *snapshot)
{
    if (!snapshot) return;
    gb_arena_deinit(&snapshot->arena);
    free(snapshot);
}

static void copy_engines(gb_engine_table *to, const gb_engine_table *from)
{
    to->next = from->next;
    for (int c = 0; c < ENGINE_COLUMNS; c++) memcpy(cells_of(to, &engine_columns[c]), cells_of(from, &engine_columns[c]), from->n * sizeof(double));
}

static void copy_queue(gb_queue_table *to, const gb_queue_table *from)
{
    to->engine = from->engine;
    for (int c = 0; c < QUEUE_COLUMNS; c++) memcpy(cells_of(to, &queue_columns[c]), cells_of(from, &queue_columns[c]), to->n * sizeof(double));
}

int gb_lua_snapshot_take(gb_lua_snapshot **out, gb_hook hook, const gb_request_row *request, const gb_engine_table *engines,
                         const gb_queue_table *queue, gb_time now)
{
    bool selects = hook == GB_HOOK_SELECT;
    uint32_t rows = selects ? 0 : queue->n < GB_LUA_SNAPSHOT_ROWS_MAX ? queue->n : GB_LUA_SNAPSHOT_ROWS_MAX;
    gb_lua_snapshot *s;
    int status = make(&s, hook, selects ? engines->n : 0, rows);
    if (status) return status;
    s->now = now;
    s->cut = !selects && rows < queue->n;
    if (selects) {
        s->tables.request = *request;
        copy_engines(&s->tables.engines, engines);
    } else {
        copy_queue(&s->tables.queue, queue);
    }
    *out = s;
    return GB_OK;
}

typedef struct shape {
    uint32_t layers, sources, experts, ranks, spare;
} shape;

/* A snapshot with room for a window; tokens, links and homes are to be filled through the pointers, and then posed. */
typedef struct room {
    double *tokens;
    gb_links links;
    int32_t *home;
} room;

static int make_placement(gb_lua_snapshot **out, room *to, gb_hook hook, const shape *s, gb_error *err)
{
    gb_lua_snapshot *snapshot;
    size_t homes = (size_t)s->layers * s->experts;
    if (homes * s->sources > GB_LUA_SNAPSHOT_CELLS_MAX)
        return gb_fail(err, GB_ETOOBIG, "a window of %u layers, %u sources and %u experts is too big for a snapshot", s->layers, s->sources, s->experts);
    int status = make(&snapshot, hook, 0, 0);
    if (status) return gb_fail(err, status, "out of memory for a snapshot");
    gb_arena *arena = &snapshot->arena;
    snapshot->options = gb_solve_defaults();
    to->tokens = GB_ARENA_NEW(arena, double, homes * s->sources);
    to->home = GB_ARENA_NEW(arena, int32_t, homes);
    status = to->tokens && to->home ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for a snapshot");
    if (!status) status = gb_links_init(&to->links, arena, s->sources, s->ranks, err);
    if (!status) status = gb_solver_init(&snapshot->solver, arena, s->layers, s->experts, s->ranks, err);
    if (!status) status = gb_rearrange_init(&snapshot->rearrangement, arena, &snapshot->solver, &snapshot->options, s->sources, err);
    if (!status) status = gb_rearrange_add_spare(&snapshot->rearrangement, arena, s->spare, err);
    if (status) gb_lua_snapshot_free(snapshot);
    else *out = snapshot;
    return status;
}

static void pose(gb_lua_snapshot *snapshot, const room *with, uint64_t id)
{
    gb_rearrange_pose(&snapshot->rearrangement, with->tokens, &with->links, with->home, id);
}

int gb_lua_snapshot_take_placement(gb_lua_snapshot **out, gb_hook hook, const gb_rearrangement *r, gb_time now)
{
    shape s = {r->solver->layers, r->links.sources, r->solver->experts, r->solver->ranks, r->slots_per_rank - r->solver->capacity};
    room to;
    int status = make_placement(out, &to, hook, &s, NULL);
    if (status) return status;
    memcpy(to.tokens, r->traffic, (size_t)r->window.n * sizeof *to.tokens);
    memcpy(to.links.cost, r->links.cost, (size_t)r->window.link_rows * sizeof *to.links.cost);
    memcpy(to.home, r->home, (size_t)r->window.expert_rows * sizeof *to.home);
    (*out)->options.weights = r->options->weights;
    (*out)->now = now;
    pose(*out, &to, (uint64_t)r->window.id);
    return GB_OK;
}

/* ---- writing ---- */

static json_t *number_json(double value)
{
    if (isnan(value)) return json_string("nan");
    if (isinf(value)) return json_string(value > 0 ? "inf" : "-inf");
    return json_real(value);
}

static void write_columns(json_t *object, const void *table, const column *columns, int n_columns, uint32_t rows)
{
    for (int c = 0; c < n_columns; c++) {
        json_t *array = json_array();
        const double *cells = cells_of(table, &columns[c]);
        for (uint32_t i = 0; i < rows; i++) json_array_append_new(array, number_json(cells[i]));
        json_object_set_new(object, columns[c].name, array);
    }
}

static json_t *engines_json(const gb_engine_table *engines)
{
    json_t *object = json_pack("{s:i, s:i}", "n", (int)engines->n, "next", (int)engines->next);
    write_columns(object, engines, engine_columns, ENGINE_COLUMNS, engines->n);
    return object;
}

static json_t *queue_json(const gb_queue_table *queue)
{
    json_t *object = json_pack("{s:i, s:i}", "n", (int)queue->n, "engine", (int)queue->engine);
    write_columns(object, queue, queue_columns, QUEUE_COLUMNS, queue->n);
    return object;
}

static json_t *request_json(const gb_request_row *request)
{
    json_t *object = json_object();
    gb_request_row row = *request;
    for (int c = 0; c < REQUEST_COLUMNS; c++) json_object_set_new(object, request_columns[c].name, number_json(*scalar_of(&row, &request_columns[c])));
    return object;
}

static json_t *cells_json(const double *cells, double rows)
{
    json_t *array = json_array();
    for (size_t i = 0; i < (size_t)rows; i++) json_array_append_new(array, number_json(cells[i]));
    return array;
}

static json_t *window_json(const gb_window_table *w, uint32_t spare)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "id", (json_int_t)w->id, "layers", (json_int_t)w->layers, "sources",
                     (json_int_t)w->sources, "experts", (json_int_t)w->experts, "ranks", (json_int_t)w->ranks, "spare", (json_int_t)spare, "tokens",
                     cells_json(w->tokens, w->n), "home", cells_json(w->home, w->expert_rows), "link_cost", cells_json(w->link_cost, w->link_rows));
}

static json_t *weights_json(const gb_place_weights *w)
{
    return json_pack("{s:f, s:f, s:f, s:s}", "alpha", w->alpha, "beta", w->beta, "gamma", w->gamma, "imbalance",
                     w->imbalance == GB_IMBALANCE_MAX ? "max" : "squares");
}

static json_t *random_json(const gb_rng *rng)
{
    json_t *array = json_array();
    for (int i = 0; i < 4; i++) {
        char word[17];
        snprintf(word, sizeof word, "%016" PRIx64, rng->s[i]);
        json_array_append_new(array, json_string(word));
    }
    return array;
}

static json_t *value_json(const gb_lua_value *value)
{
    switch (value->type) {
    case GB_LUA_NUMBER: return json_real(value->number);
    case GB_LUA_BOOLEAN: return json_boolean(value->boolean);
    case GB_LUA_TEXT: break;
    }
    return json_string(value->text);
}

static json_t *params_json(const gb_lua_snapshot *s)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < s->n_params; i++) json_object_set_new(object, s->params[i].name, value_json(&s->params[i].value));
    return object;
}

static json_t *fault_json(const gb_lua_fault *fault)
{
    return json_pack("{s:I, s:I, s:s, s:s, s:I, s:s, s:s}", "seq", (json_int_t)fault->seq, "decision", (json_int_t)fault->decision, "kind",
                     gb_lua_fault_kind_name(fault->kind), "policy", fault->name, "version", (json_int_t)fault->version, "sha256",
                     fault->sha256, "message", fault->message);
}

char *gb_lua_snapshot_write(const gb_lua_snapshot *s)
{
    json_t *root = json_pack("{s:i, s:s, s:I, s:o, s:o}", "gimbal_snapshot", GB_LUA_SNAPSHOT_FORMAT, "hook", gb_hook_name(s->hook), "now_ns",
                             (json_int_t)s->now, "random", random_json(&s->rng), "params", params_json(s));
    if (!root) return NULL;
    if (s->cut) json_object_set_new(root, "cut", json_true());
    if (s->fault.message[0]) json_object_set_new(root, "fault", fault_json(&s->fault));
    if (s->hook == GB_HOOK_SELECT) {
        json_object_set_new(root, "request", request_json(&s->tables.request));
        json_object_set_new(root, "engines", engines_json(&s->tables.engines));
    } else if (s->hook == GB_HOOK_ORDER) {
        json_object_set_new(root, "queue", queue_json(&s->tables.queue));
    } else {
        json_object_set_new(root, "window", window_json(&s->rearrangement.window, s->rearrangement.slots_per_rank - s->solver.capacity));
        json_object_set_new(root, "weights", weights_json(&s->options.weights));
    }
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(root);
    return text;
}

/* ---- reading ---- */

typedef struct reading {
    const char *what;
    gb_error *err;
} reading;

static int read_number(const reading *r, double *value, const json_t *json, const char *table, const char *name)
{
    const char *word = json_string_value(json);
    if (json_is_number(json)) *value = json_number_value(json);
    else if (word && strcmp(word, "inf") == 0) *value = INFINITY;
    else if (word && strcmp(word, "-inf") == 0) *value = -INFINITY;
    else if (word && strcmp(word, "nan") == 0) *value = NAN;
    else return gb_fail(r->err, GB_EFORMAT, "%s: %s.%s has something that is no number", r->what, table, name);
    return GB_OK;
}

static int read_count(const reading *r, uint32_t *count, const json_t *object, const char *table, const char *key, uint32_t low, uint32_t high)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < low || number > high)
        return gb_fail(r->err, GB_EFORMAT, "%s: %s.%s must be a whole number of %u to %u", r->what, table, key, low, high);
    *count = (uint32_t)number;
    return GB_OK;
}

static const column *find_column(const column *columns, int n_columns, const char *name)
{
    for (int c = 0; c < n_columns; c++) {
        if (strcmp(columns[c].name, name) == 0) return &columns[c];
    }
    return NULL;
}

static int read_column(const reading *r, double *cells, const json_t *array, const char *table, const char *name, uint32_t rows)
{
    if (json_array_size(array) != rows) return gb_fail(r->err, GB_EFORMAT, "%s: %s.%s must be a list of %u numbers", r->what, table, name, rows);
    for (uint32_t i = 0; i < rows; i++) {
        int status = read_number(r, &cells[i], json_array_get(array, i), table, name);
        if (status) return status;
    }
    return GB_OK;
}

static int read_columns(const reading *r, const void *to, json_t *object, const char *table, const column *columns, int n_columns, uint32_t rows,
                        const char *scalar)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        if (strcmp(name, "n") == 0 || strcmp(name, scalar) == 0) continue;
        const column *c = find_column(columns, n_columns, name);
        if (!c) return gb_fail(r->err, GB_EFORMAT, "%s: %s has no column \"%.64s\"", r->what, table, name);
        int status = read_column(r, cells_of(to, c), value, table, name, rows);
        if (status) return status;
    }
    return GB_OK;
}

static int read_request(const reading *r, gb_request_row *request, json_t *object)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object)) return gb_fail(r->err, GB_EFORMAT, "%s: a snapshot of select_engine needs request", r->what);
    json_object_foreach(object, name, value) {
        const column *c = find_column(request_columns, REQUEST_COLUMNS, name);
        if (!c) return gb_fail(r->err, GB_EFORMAT, "%s: request has no column \"%.64s\"", r->what, name);
        int status = read_number(r, scalar_of(request, c), value, "request", name);
        if (status) return status;
    }
    return GB_OK;
}

static int read_select(const reading *r, gb_lua_snapshot **out, json_t *root)
{
    json_t *object = json_object_get(root, "engines");
    uint32_t n = 0, next = 0;
    int status = read_count(r, &n, object, "engines", "n", 1, 512);
    if (!status) status = read_count(r, &next, object, "engines", "next", 0, n - 1);
    if (status) return status;
    if ((status = make(out, GB_HOOK_SELECT, n, 0))) return gb_fail(r->err, status, "out of memory for %s", r->what);
    (*out)->tables.engines.next = next;
    status = read_columns(r, &(*out)->tables.engines, object, "engines", engine_columns, ENGINE_COLUMNS, n, "next");
    return status ? status : read_request(r, &(*out)->tables.request, json_object_get(root, "request"));
}

static int read_order(const reading *r, gb_lua_snapshot **out, json_t *root)
{
    json_t *object = json_object_get(root, "queue");
    uint32_t n = 0, engine = 0;
    int status = read_count(r, &n, object, "queue", "n", 1, GB_LUA_SNAPSHOT_ROWS_MAX);
    if (!status) status = read_count(r, &engine, object, "queue", "engine", 0, 511);
    if (status) return status;
    if ((status = make(out, GB_HOOK_ORDER, 0, n))) return gb_fail(r->err, status, "out of memory for %s", r->what);
    (*out)->tables.queue.engine = engine;
    return read_columns(r, &(*out)->tables.queue, object, "queue", queue_columns, QUEUE_COLUMNS, n, "engine");
}

static int read_shape(const reading *r, shape *s, const json_t *window)
{
    int status = read_count(r, &s->layers, window, "window", "layers", 1, GB_DUMP_LAYERS_MAX);
    if (!status) status = read_count(r, &s->sources, window, "window", "sources", 1, GB_ENGINES_MAX);
    if (!status) status = read_count(r, &s->experts, window, "window", "experts", 1, GB_EXPERTS_MAX);
    if (!status) status = read_count(r, &s->ranks, window, "window", "ranks", 1, GB_RANKS_MAX);
    if (!status && json_object_get(window, "spare")) status = read_count(r, &s->spare, window, "window", "spare", 0, GB_EXPERTS_MAX);
    return status;
}

static int read_weights(const reading *r, gb_place_weights *w, const json_t *object)
{
    const char *form = json_string_value(json_object_get(object, "imbalance"));
    int status = read_number(r, &w->alpha, json_object_get(object, "alpha"), "weights", "alpha");
    if (!status) status = read_number(r, &w->beta, json_object_get(object, "beta"), "weights", "beta");
    if (!status) status = read_number(r, &w->gamma, json_object_get(object, "gamma"), "weights", "gamma");
    if (status) return status;
    w->imbalance = form && strcmp(form, "max") == 0 ? GB_IMBALANCE_MAX : GB_IMBALANCE_SQUARES;
    return gb_place_weights_check(w, r->err);
}

/* Every rank holds its share of every layer's experts. */
static int read_homes(const reading *r, int32_t *home, const json_t *array, const shape *s)
{
    if (json_array_size(array) != (size_t)s->layers * s->experts)
        return gb_fail(r->err, GB_EFORMAT, "%s: window.home must be a list of %u ranks", r->what, s->layers * s->experts);
    for (uint32_t l = 0; l < s->layers; l++) {
        uint32_t held[GB_RANKS_MAX] = {0};
        for (uint32_t e = 0; e < s->experts; e++) {
            double rank = json_number_value(json_array_get(array, (size_t)l * s->experts + e));
            if (!(rank >= 0 && rank < s->ranks) || rank != floor(rank) || ++held[(uint32_t)rank] > s->experts / s->ranks)
                return gb_fail(r->err, GB_EFORMAT, "%s: window.home of layer %u does not put %u experts on each of %u ranks", r->what, l,
                               s->experts / s->ranks, s->ranks);
            home[(size_t)l * s->experts + e] = (int32_t)rank;
        }
    }
    return GB_OK;
}

static int check_counts(const reading *r, const double *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(tokens[i] >= 0 && tokens[i] <= (double)GB_DUMP_COUNT_MAX))
            return gb_fail(r->err, GB_EFORMAT, "%s: window.tokens[%zu] is %g: counts are 0 to 2^53", r->what, i, tokens[i]);
    return GB_OK;
}

static int read_placement(const reading *r, gb_lua_snapshot **out, gb_hook hook, json_t *root)
{
    json_t *window = json_object_get(root, "window");
    shape s = {0};    /* older texts say nothing of spare slots */
    room to;
    int status = read_shape(r, &s, window);
    if (!status) status = make_placement(out, &to, hook, &s, r->err);
    if (status) return status;
    uint32_t homes = s.layers * s.experts, cells = homes * s.sources;
    status = read_column(r, to.tokens, json_object_get(window, "tokens"), "window", "tokens", cells);
    if (!status) status = check_counts(r, to.tokens, cells);
    if (!status) status = read_column(r, to.links.cost, json_object_get(window, "link_cost"), "window", "link_cost", s.sources * s.ranks);
    if (!status) status = gb_links_check(&to.links, r->err);
    if (!status) status = read_homes(r, to.home, json_object_get(window, "home"), &s);
    if (!status) status = read_weights(r, &(*out)->options.weights, json_object_get(root, "weights"));
    if (!status) pose(*out, &to, (uint64_t)json_integer_value(json_object_get(window, "id")));
    return status;
}

static int read_random(const reading *r, gb_rng *rng, const json_t *array)
{
    gb_rng_init(rng, 0);
    if (!array) return GB_OK;
    uint64_t all = 0;
    for (size_t i = 0; i < 4; i++) {
        const char *word = json_string_value(json_array_get(array, i));
        char *end = NULL;
        if (word) rng->s[i] = strtoull(word, &end, 16);
        if (!word || end == word || *end) return gb_fail(r->err, GB_EFORMAT, "%s: random must be a list of four hexadecimal words", r->what);
        all |= rng->s[i];
    }
    return all ? GB_OK : gb_fail(r->err, GB_EFORMAT, "%s: random must not be all zeros", r->what);
}

static bool read_value(gb_lua_value *value, const json_t *json)
{
    *value = (gb_lua_value){.number = json_number_value(json), .boolean = json_is_true(json)};
    if (json_is_number(json)) value->type = GB_LUA_NUMBER;
    else if (json_is_boolean(json)) value->type = GB_LUA_BOOLEAN;
    else if (json_is_string(json) && json_string_length(json) < GB_LUA_VALUE_BYTES) value->type = GB_LUA_TEXT;
    else return false;
    if (value->type == GB_LUA_TEXT) snprintf(value->text, sizeof value->text, "%s", json_string_value(json));
    return true;
}

static int read_params(const reading *r, gb_lua_snapshot *s, json_t *object)
{
    const char *name;
    json_t *value;
    size_t n = json_object_size(object);
    if (n > GB_LUA_SNAPSHOT_PARAMS_MAX) return gb_fail(r->err, GB_EFORMAT, "%s has %zu params; a snapshot has at most %d", r->what, n, GB_LUA_SNAPSHOT_PARAMS_MAX);
    if (n && !(s->params = GB_ARENA_NEW(&s->arena, gb_lua_setting, n))) return gb_fail(r->err, GB_ENOMEM, "out of memory for %s", r->what);
    json_object_foreach(object, name, value) {
        gb_lua_setting *setting = &s->params[s->n_params++];
        if (strlen(name) > GB_LUA_NAME_MAX || !read_value(&setting->value, value))
            return gb_fail(r->err, GB_EFORMAT, "%s: params.%.64s must be a number, a boolean or a text of less than %d bytes", r->what, name, GB_LUA_VALUE_BYTES);
        snprintf(setting->name, sizeof setting->name, "%s", name);
    }
    return GB_OK;
}

static void read_text(char *out, size_t capacity, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, capacity, "%s", text ? text : "");
}

/* For the reader of a report only: what is missing or of another type is left empty. */
static void read_fault(gb_lua_snapshot *s, const json_t *object)
{
    gb_lua_fault *fault = &s->fault;
    char kind[16];
    fault->seq = (uint64_t)json_integer_value(json_object_get(object, "seq"));
    fault->decision = (uint64_t)json_integer_value(json_object_get(object, "decision"));
    fault->version = (uint32_t)json_integer_value(json_object_get(object, "version"));
    fault->at = s->now;
    fault->hook = s->hook;
    read_text(fault->name, sizeof fault->name, object, "policy");
    read_text(fault->sha256, sizeof fault->sha256, object, "sha256");
    read_text(fault->message, sizeof fault->message, object, "message");
    read_text(kind, sizeof kind, object, "kind");
    for (int k = 0; k < GB_LUA_FAULT_KINDS; k++) {
        if (strcmp(kind, gb_lua_fault_kind_name((gb_lua_fault_kind)k)) == 0) fault->kind = (gb_lua_fault_kind)k;
    }
}

static int read_root(const reading *r, gb_lua_snapshot **out, json_t *root)
{
    const char *hook = json_string_value(json_object_get(root, "hook"));
    const json_t *now = json_object_get(root, "now_ns");
    if (json_integer_value(json_object_get(root, "gimbal_snapshot")) != GB_LUA_SNAPSHOT_FORMAT)
        return gb_fail(r->err, GB_EFORMAT, "%s is no snapshot of format %d; gimbal writes one for each fault of a policy", r->what, GB_LUA_SNAPSHOT_FORMAT);
    if (!json_is_integer(now) || json_integer_value(now) < 0) return gb_fail(r->err, GB_EFORMAT, "%s: now_ns must be a whole number", r->what);
    int status;
    if (hook && strcmp(hook, gb_hook_name(GB_HOOK_SELECT)) == 0) status = read_select(r, out, root);
    else if (hook && strcmp(hook, gb_hook_name(GB_HOOK_ORDER)) == 0) status = read_order(r, out, root);
    else if (hook && strcmp(hook, gb_hook_name(GB_HOOK_SCORE)) == 0) status = read_placement(r, out, GB_HOOK_SCORE, root);
    else if (hook && strcmp(hook, gb_hook_name(GB_HOOK_COST)) == 0) status = read_placement(r, out, GB_HOOK_COST, root);
    else return gb_fail(r->err, GB_EFORMAT, "%s: hook must be " GB_HOOK_CHOICES, r->what);
    if (status) return status;
    (*out)->now = (gb_time)json_integer_value(now);
    (*out)->cut = json_is_true(json_object_get(root, "cut"));
    read_fault(*out, json_object_get(root, "fault"));
    status = read_params(r, *out, json_object_get(root, "params"));
    return status ? status : read_random(r, &(*out)->rng, json_object_get(root, "random"));
}

/* The text inside an answer of policy_log; NULL when this is none, or has no snapshot. */
static const char *snapshot_of_log(const json_t *root)
{
    const json_t *faults = json_object_get(root, "faults");
    const char *newest = NULL;
    for (size_t i = json_array_size(faults); i-- > 0 && !newest;) newest = json_string_value(json_object_get(json_array_get(faults, i), "snapshot"));
    return newest;
}

static int unwrap(const reading *r, json_t **root)
{
    json_error_t why;
    if (!json_is_array(json_object_get(*root, "faults"))) return GB_OK;
    const char *text = snapshot_of_log(*root);
    if (!text) return gb_fail(r->err, GB_EFORMAT, "%s: no fault in this policy_log has a snapshot; ask for one fault, as in {\"fault\": 1}", r->what);
    json_t *inner = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!inner) return gb_fail(r->err, GB_EFORMAT, "%s: the snapshot in this policy_log is broken: %s", r->what, why.text);
    json_decref(*root);
    *root = inner;
    return GB_OK;
}

int gb_lua_snapshot_read(gb_lua_snapshot **out, const char *what, const char *text, size_t bytes, gb_error *err)
{
    reading r = {what, err};
    json_error_t why;
    if (bytes > GB_LUA_SNAPSHOT_BYTES_MAX)
        return gb_fail(err, GB_ETOOBIG, "%s has %zu bytes; a snapshot has at most %d", what, bytes, GB_LUA_SNAPSHOT_BYTES_MAX);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!root) return gb_fail(err, GB_EFORMAT, "%s:%d: %s; a snapshot is one JSON object", what, why.line, why.text);
    gb_lua_snapshot *snapshot = NULL;
    int status = unwrap(&r, &root);
    if (!status) status = read_root(&r, &snapshot, root);
    json_decref(root);
    if (status) gb_lua_snapshot_free(snapshot);
    else *out = snapshot;
    return status;
}
