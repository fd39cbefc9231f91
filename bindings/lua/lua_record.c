/* The journal of a policy host: what the inline hooks saw, and desks to decide it again. */
#include <stdio.h>
#include <string.h>

#include "bindings/lua/lua_digest.h"
#include "bindings/lua/lua_host_parts.h"

int gb_lua_host_open_journal(gb_lua_host *host, const char *path, uint64_t most_bytes, gb_error *err)
{
    const gb_server_options *options = gb_server_options_get(host->server);
    gb_lua_journal_header header = {options->engines, (double)options->stale_after, (double)options->aging};
    return gb_lua_journal_open(&host->journal, path, most_bytes, &header, err);
}

bool gb_lua_host_journal(const gb_lua_host *host, gb_lua_journal_info *info)
{
    if (host->journal) gb_lua_journal_info_get(host->journal, info);
    return host->journal != NULL;
}

/* The built-in draws no random numbers; who decides such a snapshot again gets some all the same. */
static void record(gb_lua_host *host, gb_hook hook, gb_lua_snapshot *snapshot, uint64_t inputs, int answer, uint64_t ns)
{
    const gb_lua_version *v = host->asked;
    gb_lua_decided decided = {.answer = answer, .inputs = inputs, .ns = ns, .version = v ? v->number : 0};
    snprintf(decided.policy, sizeof decided.policy, "%s", v ? v->name : "builtin");
    if (v) memcpy(decided.sha256, v->sha256, sizeof decided.sha256);
    if (snapshot && v) snapshot->rng = host->rng_before;
    else if (snapshot) gb_rng_init(&snapshot->rng, host->seed + (uint64_t)hook);
    gb_lua_journal_add(host->journal, snapshot, &decided);
}

void gb_lua_host_record_select(gb_lua_host *host, const gb_request_row *request, const gb_engine_table *engines, int answer, uint64_t ns, gb_time now)
{
    gb_lua_snapshot *snapshot = NULL;
    if (!host->journal) return;
    if (gb_lua_journal_has_room(host->journal)) gb_lua_snapshot_take(&snapshot, GB_HOOK_SELECT, request, engines, NULL, now);
    record(host, GB_HOOK_SELECT, snapshot, gb_lua_digest_select(request, engines), answer, ns);
}

void gb_lua_host_record_order(gb_lua_host *host, const gb_queue_table *queue, int answer, uint64_t ns, gb_time now)
{
    gb_lua_snapshot *snapshot = NULL;
    if (!host->journal || queue->n < 2) return;    /* one request has one order */
    if (gb_lua_journal_has_room(host->journal)) gb_lua_snapshot_take(&snapshot, GB_HOOK_ORDER, NULL, NULL, queue, now);
    record(host, GB_HOOK_ORDER, snapshot, gb_lua_digest_order(queue), answer, ns);
}

int gb_lua_host_desk(const gb_lua_host *host, uint32_t number, gb_lua_desk **out, gb_error *err)
{
    const gb_lua_version *v = gb_lua_host_find_version(host, number);
    if (!v) return gb_lua_host_unknown(number, err);
    int status = gb_lua_desk_open(out, v->chunk, v->source, v->bytes, gb_server_options_get(host->server)->engines, &host->budgets, err);
    for (uint32_t i = 0; i < v->n_settings && !status; i++) status = gb_lua_desk_set(*out, &v->settings[i], err);
    return status;
}

int gb_lua_host_diff(gb_lua_host *host, gb_lua_diff *diff, gb_lua_desk *const desks[2], uint64_t most, uint64_t budget_ns, gb_error *err)
{
    gb_lua_journal_reader *reader = NULL;
    gb_lua_journal_header header;
    gb_lua_journal_info info;
    if (!host->journal)
        return gb_fail(err, GB_ENOTFOUND, "this server keeps no journal of decisions; start it with --journal FILE, or compare with policy_shadow");
    gb_lua_journal_write(host->journal);
    gb_lua_journal_info_get(host->journal, &info);
    int status = gb_lua_journal_read(&reader, info.path, &header, err);
    if (status) return status;
    if (info.lines > most) gb_lua_journal_skip(reader, info.lines - most);
    status = gb_lua_diff_run(diff, desks, reader, &header, budget_ns, err);
    gb_lua_journal_read_end(reader);
    return status;
}
