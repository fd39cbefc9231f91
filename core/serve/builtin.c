#include "core/serve/builtin.h"

#include <math.h>

void gb_pressure_params_default(gb_pressure_params *params)
{
    *params = (gb_pressure_params){.w_wait = 1, .w_pending = 1, .kv_soft = 0.70, .w_kv = 8192, .w_moe = 2048, .near_tie_tokens = 64,
                                   .near_tie_ratio = 0.05, .kv_high = 0.90, .kv_gap = 0.10, .stale_after_ns = 1e9};
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

/* The first engine in rotating order whose cost is within the band above the lowest. */
static int first_near_lowest(const gb_pressure_params *p, const gb_engine_table *engines, bool by_kv)
{
    double lowest = INFINITY;
    for (uint32_t e = 0; e < engines->n; e++)
        if (engines->healthy[e] != 0) lowest = fmin(lowest, cost_of(p, engines, by_kv, e));
    double band = by_kv ? 0 : fmax(p->near_tie_tokens, p->near_tie_ratio * lowest);
    for (uint32_t i = 0; i < engines->n; i++) {
        uint32_t e = (engines->next + i) % engines->n;
        if (engines->healthy[e] != 0 && cost_of(p, engines, by_kv, e) <= lowest + band) return (int)e;
    }
    return GB_POLICY_NIL;
}

int gb_builtin_select(void *self, const gb_request_row *request, const gb_engine_table *engines, gb_time now)
{
    const gb_pressure_params *p = self;
    (void)request;
    (void)now;
    if (!gb_builtin_traces_fresh(engines, p->stale_after_ns)) return gb_builtin_ordered(engines);
    return first_near_lowest(p, engines, kv_is_clearly_uneven(p, engines));
}

/* --- Algorithm 2 --- */

int gb_builtin_order(void *self, gb_queue_table *queue, gb_time now)
{
    (void)self;
    (void)now;
    for (uint32_t i = 0; i < queue->n; i++) queue->key[i] = queue->prefill_tokens[i] - queue->cached_tokens[i];
    return 0;
}
