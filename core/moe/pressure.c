#include "core/moe/pressure.h"

#include "core/base/status.h"

int gb_pressure_init(gb_pressure *p, gb_arena *arena, gb_topology topology)
{
    *p = (gb_pressure){.topology = topology};
    p->rank_load = GB_ARENA_NEW(arena, double, topology.ranks);
    return p->rank_load ? GB_OK : GB_ENOMEM;
}

/* The start at zero needs no correction: it scales all ranks alike, and only ratios are read. */
void gb_pressure_add(gb_pressure *p, const uint64_t *rank_tokens)
{
    for (uint32_t r = 0; r < p->topology.ranks; r++)
        p->rank_load[r] += ((double)rank_tokens[r] - p->rank_load[r]) / GB_PRESSURE_ROUNDS;
}

double gb_pressure_of(const gb_pressure *p, uint32_t engine)
{
    double all = 0, own = 0;
    for (uint32_t r = 0; r < p->topology.ranks; r++) {
        all += p->rank_load[r];
        if (gb_topology_engine_of_rank(p->topology, r) == engine) own += p->rank_load[r];
    }
    return all > 0 ? own * p->topology.engines / all : 1;
}
