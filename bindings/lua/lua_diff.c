#include "bindings/lua/lua_diff.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/serve/builtin.h"

typedef struct differ {
    gb_lua_diff *diff;
    gb_lua_desk *const *desks;
    gb_pressure_params params;                        /* of the built-in */
    double keys[2][GB_LUA_SNAPSHOT_ROWS_MAX];
    gb_lua_place places[GB_LUA_SNAPSHOT_ROWS_MAX];
} differ;

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One side's answer, or GB_POLICY_NIL; the built-in's own is not timed. */
static int ask(differ *d, int side, gb_lua_snapshot *snapshot)
{
    gb_lua_trial trial;
    gb_lua_desk *desk = d->desks[side];
    if (!desk || !gb_lua_desk_has(desk, snapshot->hook)) return GB_POLICY_NIL;
    gb_lua_desk_try(desk, snapshot, &trial);
    gb_lua_compare_answer(&d->diff->comparisons[snapshot->hook].sides[side], trial.answer, trial.cpu_ns, trial.fault);
    return trial.answer;
}

static void keep(differ *d, const gb_lua_snapshot *snapshot, const gb_lua_decided *decided, int a, int b)
{
    gb_lua_diff *diff = d->diff;
    if (diff->n_differences++ >= GB_LUA_DIFFERENCES_KEPT) return;
    gb_lua_difference *kept = &diff->differences[diff->n_differences - 1];
    *kept = (gb_lua_difference){.decision = diff->decisions, .hook = snapshot->hook, .at = snapshot->now, .answers = {a, b}, .live = decided->answer, .inputs = decided->inputs};
}

static void compare_engines(differ *d, gb_lua_snapshot *snapshot, const gb_lua_decided *decided)
{
    gb_lua_comparison *c = &d->diff->comparisons[GB_HOOK_SELECT];
    const gb_engine_table *engines = &snapshot->tables.engines;
    int answers[2];
    for (int side = 0; side < 2; side++) {
        answers[side] = ask(d, side, snapshot);
        if (answers[side] < 0) answers[side] = gb_builtin_select(&d->params, &snapshot->tables.request, engines, snapshot->now);
    }
    if (answers[0] < 0 || answers[1] < 0) return;    /* no engine was up */
    gb_lua_compare_engines(c, &snapshot->tables.request, engines, answers);
    if (answers[0] != answers[1]) keep(d, snapshot, decided, answers[0], answers[1]);
}

static int first_of(const gb_queue_table *queue, const double *keys)
{
    int best = 0;
    for (uint32_t i = 1; i < queue->n; i++) {
        bool earlier = queue->promoted[i] != queue->promoted[best] ? queue->promoted[i] > queue->promoted[best]
                       : queue->promoted[i] != 0                   ? queue->wait_ns[i] > queue->wait_ns[best]
                       : keys[i] != keys[best]                     ? keys[i] < keys[best]
                                                                   : queue->wait_ns[i] > queue->wait_ns[best];
        if (earlier) best = (int)i;
    }
    return best;
}

static void compare_orders(differ *d, gb_lua_snapshot *snapshot, const gb_lua_decided *decided)
{
    gb_lua_comparison *c = &d->diff->comparisons[GB_HOOK_ORDER];
    gb_queue_table *queue = &snapshot->tables.queue;
    uint64_t agreed = c->agreed;
    if (queue->n < 2) return;    /* one request has one order */
    for (int side = 0; side < 2; side++) {
        if (ask(d, side, snapshot) != GB_OK) gb_builtin_order(NULL, queue, snapshot->now);
        memcpy(d->keys[side], queue->key, queue->n * sizeof(double));
    }
    gb_lua_compare_orders(c, queue, (const double *const[]){d->keys[0], d->keys[1]}, d->places);
    if (c->agreed == agreed) keep(d, snapshot, decided, first_of(queue, d->keys[0]), first_of(queue, d->keys[1]));
}

static bool has(const differ *d, int side, gb_hook hook) { return d->desks[side] && gb_lua_desk_has(d->desks[side], hook); }

static void compare(differ *d, gb_lua_snapshot *snapshot, const gb_lua_decided *decided)
{
    gb_hook hook = snapshot->hook;
    d->diff->decisions++;
    if (!has(d, 0, hook) && !has(d, 1, hook)) d->diff->left_out++;
    else if (hook == GB_HOOK_SELECT) compare_engines(d, snapshot, decided);
    else if (hook == GB_HOOK_ORDER) compare_orders(d, snapshot, decided);
    else d->diff->left_out++;
}

static void set_server_params(gb_lua_desk *desk, const gb_lua_journal_header *header)
{
    if (!desk) return;
    gb_lua_desk_set_number(desk, "stale_after_ns", header->stale_after_ns);
    gb_lua_desk_set_number(desk, "aging_ns", header->aging_ns);
}

int gb_lua_diff_run(gb_lua_diff *diff, gb_lua_desk *const desks[2], gb_lua_journal_reader *reader, const gb_lua_journal_header *header,
                    uint64_t budget_ns, gb_error *err)
{
    differ *d = malloc(sizeof *d);
    gb_lua_snapshot *snapshot;
    gb_lua_decided decided;
    uint64_t start = thread_cpu_ns();
    *diff = (gb_lua_diff){0};
    if (!d) return gb_fail(err, GB_ENOMEM, "out of memory for a comparison");
    d->diff = diff;
    d->desks = desks;
    gb_pressure_params_default(&d->params);
    d->params.stale_after_ns = header->stale_after_ns;
    for (int side = 0; side < 2; side++) set_server_params(desks[side], header);
    int status;
    while (!(status = gb_lua_journal_next(reader, &snapshot, &decided, err)) && snapshot) {
        compare(d, snapshot, &decided);
        gb_lua_snapshot_free(snapshot);
        if (budget_ns && thread_cpu_ns() - start > budget_ns) {
            diff->out_of_time = true;
            break;
        }
    }
    diff->cut = gb_lua_journal_is_cut(reader);
    free(d);
    return status;
}
