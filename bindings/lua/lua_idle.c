/* What a policy host does when there is time: windows for on_window, garbage. */
#include <stdlib.h>
#include <string.h>

#include "bindings/lua/lua_host_parts.h"
#include "core/flow/matrix.h"

enum { WINDOW_FAULTS = 3 }; /* then a script sees no more windows */

/* One block for all columns. */
static bool make_room(gb_lua_host *host, size_t rows)
{
    if (rows <= host->window_rows) return true;
    double *block = realloc(host->window_block, rows * sizeof *block);
    if (!block) return false;
    host->window_block = block;
    host->window_rows = rows;
    return true;
}

static void fill_tokens(gb_window_table *w, const gb_matrix *counts)
{
    size_t source = 0;
    for (size_t i = 0; i < (size_t)w->expert_rows; i++) w->expert_tokens[i] = 0;
    for (uint32_t l = 0; l < counts->layers; l++)
        for (uint32_t s = 0; s < counts->sources; s++, source++)
            for (uint32_t e = 0; e < counts->experts; e++) {
                double tokens = (double)counts->counts[source * counts->experts + e];
                w->tokens[source * counts->experts + e] = tokens;
                w->expert_tokens[(size_t)l * counts->experts + e] += tokens;
            }
}

/* Where an expert has copies, its home is the one that serves source 0. */
static void fill_homes(gb_window_table *w, const gb_placement *p)
{
    for (uint32_t l = 0; l < p->layers; l++)
        for (uint32_t e = 0; e < p->experts; e++)
            w->home[(size_t)l * p->experts + e] = gb_placement_rank_of_slot(p, gb_placement_routes(p, l, 0)[e]);
}

static bool fill_window(gb_lua_host *host, const gb_matrix *counts, gb_time duration)
{
    gb_window_table *w = &host->window;
    const gb_placement *p = gb_server_placement(host->server);
    size_t n = gb_matrix_cells(counts), homes = (size_t)counts->layers * counts->experts, links = (size_t)counts->sources * p->ranks;
    if (!make_room(host, n + 2 * homes + links)) return false;
    *w = (gb_window_table){
        .n = (double)n, .id = (double)host->window_id, .layers = counts->layers, .sources = counts->sources, .experts = counts->experts,
        .duration_ns = (double)duration, .ranks = p->ranks, .capacity = p->experts / p->ranks, .expert_rows = (double)homes,
        .link_rows = (double)links, .tokens = host->window_block,
    };
    w->expert_tokens = w->tokens + n;
    w->home = w->expert_tokens + homes;
    w->link_cost = w->home + homes;
    fill_tokens(w, counts);
    fill_homes(w, p);
    gb_links_groups(&(gb_links){counts->sources, p->ranks, w->link_cost});
    return true;
}

static void show_window(gb_lua_host *host, gb_lua_version *v)
{
    gb_error err = {0};
    if (v->windows_stopped || !gb_lua_policy_wants_windows(v->policy) ||
        !gb_lua_policy_window(v->policy, &host->window, host->now, &err))
        return;
    v->windows_stopped = ++v->window_faults == WINDOW_FAULTS;
    gb_lua_host_tell(host, GB_LUA_EVENT_REFUSED, v, &(gb_lua_change){.who = "fault"}, "policy %s v%u failed in on_window%s: %.300s",
                     v->name, v->number, v->windows_stopped ? ", and is shown no more windows" : "", err.text);
}

static void show_closed_window(gb_lua_host *host)
{
    uint64_t id;
    gb_time from, to;
    const gb_matrix *counts = gb_server_window(host->server, false, &id, &from, &to);
    if (id == host->window_id) return;
    host->window_id = id;
    const gb_lua_version *shown = NULL;
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        gb_lua_version *v = host->seats[hook].active;
        if (!v || v == shown) continue;
        if (!shown && !fill_window(host, counts, gb_time_since(from, to))) return;
        show_window(host, v);
        shown = v;
    }
}

void gb_lua_host_idle(gb_lua_host *host, gb_time now)
{
    if (now > host->now) host->now = now;
    show_closed_window(host);
    if (host->journal) gb_lua_journal_write(host->journal);
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        const gb_lua_version *v = host->seats[hook].active;
        if (v) gb_lua_vm_idle(gb_lua_policy_vm(v->policy));
    }
}
