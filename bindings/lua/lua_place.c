/* Hooks that place experts: score_expert for the greedy rule, placement_cost for the search. A whole rearrangement is one decision with one
   budget; the first fault ends it, and the built-in answers. */
#include <math.h>

#include "bindings/lua/lua_policy_parts.h"

typedef struct placing {
    gb_lua_policy *policy;
    gb_hook hook;
    gb_rearrangement *r;
    gb_time now;
    int status;       /* GB_POLICY_FAULT: nothing more is asked */
    bool opinions;    /* there was one at least */
} placing;

static uint32_t count_unset(const double *cells, uint32_t n, uint32_t *first)
{
    uint32_t unset = 0;
    for (uint32_t i = n; i-- > 0;) {
        if (!isnan(cells[i])) continue;
        unset++;
        *first = i;
    }
    return unset;
}

static int failed(placing *p)
{
    p->status = gb_lua_policy_fault(p->policy, p->hook, p->now);
    return p->status;
}

#define BAD_ANSWER(p, kind, ...) \
    ((p)->status = gb_lua_policy_bad_answer((p)->policy, (gb_lua_complaint){(p)->hook, kind, (p)->now}, __VA_ARGS__))

/* Calls the hook above n_args arguments; a script that ran returned nothing. */
static bool call_hook(placing *p, int n_args)
{
    lua_State *L = p->policy->vm->L;
    if (!gb_lua_vm_step(p->policy->vm, n_args, 1)) {
        failed(p);
        return false;
    }
    int type = lua_type(L, -1);
    lua_settop(L, GB_LUA_SLOTS);
    if (type == LUA_TNIL) return true;
    const char *fills = p->hook == GB_HOOK_SCORE ? "ranks.score[r]" : "out.cost[i] and out.load[e], or out.expert_of_slot[i],";
    BAD_ANSWER(p, GB_LUA_FAULT_TYPE, "%s returned a %s; it must fill %s and return nothing", gb_hook_name(p->hook), lua_typename(L, type), fills);
    return false;
}

/* ---- score_expert ---- */

/* A full rank is never chosen: its score may be left out. */
static int scores_answer(placing *p, uint32_t layer, uint32_t expert, const gb_rank_table *ranks)
{
    uint32_t unset = 0, wanted = 0, first = 0;
    for (uint32_t r = ranks->n; r-- > 0;) {
        bool full = ranks->free[r] == 0;
        wanted += !full;
        if (!isnan(ranks->score[r])) continue;
        if (full) ranks->score[r] = 0;
        else unset++, first = r;
    }
    if (unset == 0) {
        p->opinions = true;
        return GB_OK;
    }
    if (unset == wanted) return GB_POLICY_NIL;
    return BAD_ANSWER(p, GB_LUA_FAULT_NAN, "score_expert left %u of %u scores of expert %u in layer %u unset, the first of them ranks.score[%u]",
                      unset, wanted, expert, layer, first);
}

static int score_expert(void *self, uint32_t layer, uint32_t expert, const gb_rank_table *ranks)
{
    placing *p = self;
    gb_lua_vm *vm = p->policy->vm;
    if (p->status) return GB_POLICY_NIL;
    vm->frame.ranks = ranks;
    for (uint32_t r = 0; r < ranks->n; r++) ranks->score[r] = NAN;
    lua_pushvalue(vm->L, GB_LUA_SLOT_SCORE);
    lua_pushinteger(vm->L, (lua_Integer)layer);
    lua_pushinteger(vm->L, (lua_Integer)expert);
    lua_pushvalue(vm->L, GB_LUA_RANKS);
    return call_hook(p, 3) ? scores_answer(p, layer, expert, ranks) : GB_POLICY_FAULT;
}

static void score_layer(placing *p, uint32_t layer)
{
    gb_greedy rule = {.score = score_expert, .self = p};
    gb_rearrange_score(p->r, layer);
    gb_rearrange_greedy(p->r, &rule, layer);
}

/* ---- placement_cost ---- */

static int check_load(placing *p, const gb_layer *layer, uint32_t index)
{
    for (uint32_t e = 0; e < layer->experts; e++)
        if (layer->load[e] < 0 || layer->load[e] > GB_SOLVE_LOAD_MAX)
            return BAD_ANSWER(p, GB_LUA_FAULT_RANGE, "placement_cost: out.load[%u] = %.14g in layer %u; loads are 0 to %g", e, layer->load[e], index,
                              GB_SOLVE_LOAD_MAX);
    return GB_OK;
}

static int check_cost(placing *p, const gb_layer *layer, uint32_t index)
{
    for (uint32_t i = 0; i < layer->ranks * layer->experts; i++)
        if (fabs(layer->cost[i]) > GB_SOLVE_COST_MAX)
            return BAD_ANSWER(p, GB_LUA_FAULT_RANGE, "placement_cost: out.cost[%u] = %.14g in layer %u; costs are numbers up to %g", i, layer->cost[i],
                              index, GB_SOLVE_COST_MAX);
    return GB_OK;
}

/* Slots that were left out are empty. */
static int slots_answer(placing *p, const gb_layer *layer, uint32_t index)
{
    gb_error why = {{0}};
    uint32_t n = layer->ranks * p->r->slots_per_rank;
    for (uint32_t i = 0; i < layer->ranks * layer->experts; i++) layer->cost[i] = 0;    /* nothing for the search to gain */
    for (uint32_t e = 0; e < layer->experts; e++) layer->load[e] = 0;
    for (uint32_t i = 0; i < n; i++)
        if (isnan(p->r->slots[i])) p->r->slots[i] = -1;
    p->opinions = true;
    if (gb_rearrange_take_slots(p->r, index, &why) == GB_OK) return GB_OK;
    return BAD_ANSWER(p, GB_LUA_FAULT_RANGE, "placement_cost: out.expert_of_slot: %s", why.text);
}

static int costs_answer(placing *p, const gb_layer *layer, uint32_t index)
{
    uint32_t n = layer->ranks * layer->experts, slots = layer->ranks * p->r->slots_per_rank, cost = 0, load = 0, slot = 0;
    if (count_unset(p->r->slots, slots, &slot) < slots) return slots_answer(p, layer, index);
    uint32_t no_costs = count_unset(layer->cost, n, &cost), no_loads = count_unset(layer->load, layer->experts, &load);
    if (no_costs == n && no_loads == layer->experts) {
        gb_rearrange_score(p->r, index);
        return GB_OK;
    }
    p->opinions = true;
    if (no_costs)
        return BAD_ANSWER(p, GB_LUA_FAULT_NAN, "placement_cost left %u of %u costs of layer %u unset, the first of them out.cost[%u]", no_costs, n, index, cost);
    if (no_loads)
        return BAD_ANSWER(p, GB_LUA_FAULT_NAN, "placement_cost left %u of %u loads of layer %u unset, the first of them out.load[%u]", no_loads,
                          layer->experts, index, load);
    int status = check_load(p, layer, index);
    return status ? status : check_cost(p, layer, index);
}

static void cost_layer(placing *p, uint32_t index)
{
    gb_lua_vm *vm = p->policy->vm;
    gb_layer *layer = &p->r->solver->layer[index];
    uint32_t n = layer->ranks * layer->experts;
    uint32_t slots = layer->ranks * p->r->slots_per_rank;
    gb_cost_table out = {.n = n, .ranks = layer->ranks, .experts = layer->experts, .slots = slots, .cost = layer->cost, .load = layer->load,
                         .expert_of_slot = p->r->slots};
    for (uint32_t i = 0; i < n; i++) layer->cost[i] = NAN;
    for (uint32_t e = 0; e < layer->experts; e++) layer->load[e] = NAN;
    for (uint32_t i = 0; i < slots; i++) p->r->slots[i] = NAN;
    vm->frame.out = &out;
    lua_pushvalue(vm->L, GB_LUA_SLOT_COST);
    lua_pushinteger(vm->L, (lua_Integer)index);
    lua_pushvalue(vm->L, GB_LUA_WINDOW);
    lua_pushvalue(vm->L, GB_LUA_OUT);
    if (call_hook(p, 3)) costs_answer(p, layer, index);
}

/* ---- a rearrangement ---- */

int gb_lua_policy_place(gb_lua_policy *policy, gb_hook hook, gb_rearrangement *r, gb_time now)
{
    gb_lua_vm *vm = policy->vm;
    placing p = {.policy = policy, .hook = hook, .r = r, .now = now};
    policy->counts->calls++;
    vm->frame.window = &r->window;
    vm->frame.now_ns = (double)now;
    gb_lua_vm_begin(vm, gb_hook_name(hook), policy->budgets.hooks[hook]);
    for (uint32_t layer = 0; layer < r->solver->layers && !p.status; layer++) {
        if (hook == GB_HOOK_SCORE) score_layer(&p, layer);
        else cost_layer(&p, layer);
        gb_lua_vm_relieve(vm);
    }
    gb_lua_vm_end(vm);
    lua_settop(vm->L, GB_LUA_SLOTS);
    gb_lua_frame_clear(&vm->frame);
    if (p.status) return p.status;
    return p.opinions ? GB_OK : gb_lua_policy_no_opinion(policy);
}
