#include "core/serve/builtin.h"

#include <math.h>

void gb_pressure_params_default(gb_pressure_params *params)
{
    *params = (gb_pressure_params){.w_wait = 1, .w_pending = 1, .kv_soft = 0.70, .w_kv = 8192, .w_moe = 2048, .near_tie_tokens = 64,
                                   .near_tie_ratio = 0.05, .kv_high = 0.90, .kv_gap = 0.10, .affinity_lead = 8,
                                   .stale_after_ns = 1e9};
}

/* --- Algorithm 1 --- */

bool gb_builtin_traces_fresh(const gb_engine_table *engines, double stale_after_ns)
{
    for (uint32_t e = 0; e < engines->n; e++)
        if (engines->healthy[e] != 0 && (engines->valid[e] == 0 || engines->age_ns[e] > stale_after_ns)) return false;
    return true;
}

int gb_builtin_ordered(const gb_engine_table *engines)
{
    for (uint32_t i = 0; i < engines->n; i++) {
        uint32_t e = (engines->next + i) % engines->n;
        if (engines->healthy[e] != 0) return (int)e;
    }
    return GB_POLICY_NIL;
}

static double pressure(const gb_pressure_params *p, const gb_engine_table *engines, uint32_t e)
{
    return engines->running_prefill_tokens[e] + p->w_wait * engines->waiting_prefill_tokens[e] +
           p->w_pending * engines->pending_tokens[e] + p->w_kv * fmax(0, engines->kv_used_ratio[e] - p->kv_soft) +
           p->w_moe * fmax(0, engines->moe_pressure[e] - 1);
}

static bool kv_is_clearly_uneven(const gb_pressure_params *p, const gb_engine_table *engines)
{
    double low = INFINITY, high = -INFINITY;
    for (uint32_t e = 0; e < engines->n; e++) {
        if (engines->healthy[e] == 0) continue;
        low = fmin(low, engines->kv_used_ratio[e]);
        high = fmax(high, engines->kv_used_ratio[e]);
    }
    return high > p->kv_high && high - low > p->kv_gap;
}

static double cost_of(const gb_pressure_params *p, const gb_engine_table *engines, bool by_kv, uint32_t e)
{
    return by_kv ? engines->kv_used_ratio[e] : pressure(p, engines, e);
}

static double requests_on(const gb_engine_table *engines, uint32_t e) { return engines->running[e] + engines->waiting[e]; }

/* Of the near-ties the one whose cache has most of the prompt, else the session's own engine or the next one after it, else the next
   in turn. An engine that is far ahead in requests comes last when one of the first two speaks, so that an affinity draws no crowd. */
static int choose_near(const gb_pressure_params *p, const gb_request_row *request, const gb_engine_table *engines, bool by_kv, double limit)
{
    double fewest = INFINITY, cached = 0, most = -2;
    int best = GB_POLICY_NIL;
    for (uint32_t e = 0; e < engines->n; e++) {
        if (engines->healthy[e] == 0 || cost_of(p, engines, by_kv, e) > limit) continue;
        fewest = fmin(fewest, requests_on(engines, e));
        cached = fmax(cached, engines->cached_tokens[e]);
    }
    bool session = request->session != 0;
    double enough = session || cached > 0 ? fewest + p->affinity_lead : INFINITY;
    uint32_t turn = session ? (uint32_t)fmod(request->session, engines->n) : engines->next;
    for (uint32_t i = 0; i < engines->n; i++) {
        uint32_t e = (turn + i) % engines->n;
        if (engines->healthy[e] == 0 || cost_of(p, engines, by_kv, e) > limit) continue;
        double draw = requests_on(engines, e) > enough ? -1 : engines->cached_tokens[e];
        if (draw > most) most = draw, best = (int)e;
    }
    return best;
}

static int choose(const gb_pressure_params *p, const gb_request_row *request, const gb_engine_table *engines, bool by_kv)
{
    double lowest = INFINITY;
    for (uint32_t e = 0; e < engines->n; e++)
        if (engines->healthy[e] != 0) lowest = fmin(lowest, cost_of(p, engines, by_kv, e));
    double band = by_kv ? 0 : fmax(p->near_tie_tokens, p->near_tie_ratio * lowest);
    return choose_near(p, request, engines, by_kv, lowest + band);
}

int gb_builtin_select(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now)
{
    const gb_pressure_params *p = self;
    (void)now;
    if (!gb_builtin_traces_fresh(engines, p->stale_after_ns)) return gb_builtin_ordered(engines);
    return choose(p, request, engines, kv_is_clearly_uneven(p, engines));
}

/* --- Algorithm 2 --- */

int gb_builtin_order(void *self, gb_queue_table *queue, gb_time now)
{
    (void)self;
    (void)now;
    for (uint32_t i = 0; i < queue->n; i++) queue->key[i] = queue->prefill_tokens[i] - queue->cached_tokens[i];
    return 0;
}
