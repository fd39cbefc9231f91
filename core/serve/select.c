#include "core/serve/select.h"

static bool is_up(const gb_engine_table *engines, int answer)
{
    return answer >= 0 && (uint32_t)answer < engines->n && engines->healthy[answer] != 0;
}

static int ask(const gb_policy *policy, gb_hook_stats *stats, const gb_tables *tables, gb_time now)
{
    stats->calls++;
    int answer = policy->select_engine ? policy->select_engine(policy->self, &tables->request, &tables->engines, now) : GB_POLICY_NIL;
    if (is_up(&tables->engines, answer)) return answer;
    if (answer == GB_POLICY_NIL) stats->nils++;
    else stats->faults++;
    return GB_POLICY_NIL;
}

int gb_select_engine(const gb_policy *policy, const gb_policy *builtin, gb_hook_stats *stats, gb_tables *tables, gb_time now)
{
    gb_engine_table *engines = &tables->engines;
    if (gb_builtin_ordered(engines) < 0) return GB_POLICY_NIL;
    int engine = ask(policy, stats, tables, now);
    if (engine < 0) engine = builtin->select_engine(builtin->self, &tables->request, engines, now);
    engines->next = ((uint32_t)engine + 1) % engines->n;
    return engine;
}
