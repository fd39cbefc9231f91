/* What a policy host does when there is time: windows for on_window, garbage. */
#include <stdlib.h>
#include <string.h>

#include "bindings/lua/lua_host_parts.h"
#include "core/flow/matrix.h"

enum { WINDOW_FAULTS = 3 }; /* then a script sees no more windows */

static bool fill_window(gb_lua_host *host, const gb_matrix *counts, gb_time duration)
{
    gb_window_table *window = &host->window;
    size_t rows = gb_matrix_cells(counts);
    if (rows > host->window_rows) {
        double *tokens = realloc(window->tokens, rows * sizeof *tokens);
        if (!tokens) return false;
        window->tokens = tokens;
        host->window_rows = rows;
    }
    for (size_t i = 0; i < rows; i++) window->tokens[i] = (double)counts->counts[i];
    window->n = (double)rows;
    window->id = (double)host->window_id;
    window->layers = counts->layers;
    window->sources = counts->sources;
    window->experts = counts->experts;
    window->duration_ns = (double)duration;
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
    for (int hook = 0; hook < GB_HOOKS; hook++) {
        const gb_lua_version *v = host->seats[hook].active;
        if (v) gb_lua_vm_idle(gb_lua_policy_vm(v->policy));
    }
}
