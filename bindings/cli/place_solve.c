/* gimbal place gen, show, solve and compare. */
#include "bindings/cli/place_verbs.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "bindings/cli/place_exact.h"
#include "bindings/cli/place_file.h"
#include "core/moe/generate.h"

/* --- gen --------------------------------------------------------------------------------------------------------------------- */

static gb_generator_options generator_options(const gb_place_flags *f)
{
    gb_generator_options o = gb_generator_defaults();
    o.layers = (uint32_t)f->layers, o.sources = (uint32_t)f->sources, o.experts = (uint32_t)f->experts, o.top_k = (uint32_t)f->top_k;
    o.pairs_per_source = (double)f->pairs;
    o.sigma = f->sigma, o.block = f->block, o.drift = f->drift;
    o.seed = (uint64_t)f->seed;
    return o;
}

int gb_place_gen(gb_place_session *s, gb_error *err)
{
    const gb_place_flags *f = s->flags;
    gb_generator_options o = generator_options(f);
    gb_generator g;
    int rc = gb_dump_init(&s->dump, &s->arena, (uint32_t)f->windows, o.layers, o.sources, o.experts, (uint32_t)f->ranks, (uint32_t)f->spare,
                          (uint64_t)f->expert_bytes, err);
    if (rc == GB_OK) rc = gb_generator_init(&g, &s->arena, &o, err);
    if (rc != GB_OK) return rc;
    if (f->ranks_per_node > 0) gb_links_tiers(&s->dump.links, (uint32_t)f->ranks_per_node, f->near);
    for (uint32_t w = 0; w < s->dump.windows; w++) {
        gb_window *window = &s->dump.window[w];
        gb_generator_next(&g, &window->counts);
        window->id = w + 1;
    }
    rc = gb_place_file_write(&s->dump, s->args->words[1], err);
    if (rc == GB_OK)
        printf("%s: %u windows of %u layers, %u sources, %u experts on %u ranks\n", s->args->words[1], s->dump.windows, o.layers, o.sources, o.experts,
               s->dump.placement.ranks);
    return rc;
}

/* --- show --------------------------------------------------------------------------------------------------------------------- */

static double assignments(const gb_matrix *m)
{
    double total = 0;
    for (size_t i = 0, n = gb_matrix_cells(m); i < n; i++) total += (double)m->counts[i];
    return total;
}

static gb_place_report report_on(gb_place_session *s, const gb_placement *placement, uint32_t window, const gb_placement *before)
{
    gb_place_report r;
    gb_score_placement(&r, &s->placer.options.weights, &s->placer.links, gb_placer_numbers(&s->placer, &s->dump.window[window].counts), placement,
                       before, s->dump.expert_bytes);
    return r;
}

int gb_place_show(gb_place_session *s, gb_error *err)
{
    const gb_placement *p = &s->dump.placement;
    json_t *list = json_array();
    (void)err;
    if (!s->flags->json)
        printf("%u windows of %u layers, %u sources, %u experts on %u ranks of %u slots; placement version %u; %.2f MB an expert\n\n%-8s%14s%12s%12s%10s%10s\n",
               s->dump.windows, p->layers, p->sources, p->experts, p->ranks, p->slots_per_rank, p->version, 1e-6 * (double)s->dump.expert_bytes, "window",
               "assignments", "variation", "persists", "remote", "max/mean");
    for (uint32_t w = 0; w < s->dump.windows; w++) {
        gb_estimate *e = &s->placer.estimate;
        gb_estimate_add(e, &s->dump.window[w].counts);
        gb_place_report r = report_on(s, p, w, NULL);
        double total = assignments(&s->dump.window[w].counts), variation = gb_estimate_variation(e), persistence = gb_estimate_persistence(e);
        if (s->flags->json)
            json_array_append_new(list, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "window", (json_int_t)w, "assignments", total, "variation", variation,
                                                  "persistence", persistence, "remote_ratio", r.remote_ratio, "max_over_mean", r.max_over_mean));
        else printf("%-8u%14.0f%12.3f%12.3f%10.3f%10.3f\n", w, total, variation, persistence, r.remote_ratio, r.max_over_mean);
    }
    if (s->flags->json) json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(8)), fputc('\n', stdout);
    json_decref(list);
    return GB_OK;
}

/* --- solve -------------------------------------------------------------------------------------------------------------------- */

static void print_report(const char *name, const gb_place_report *r)
{
    printf("%-24s%10.3f%10.3f%10.3f%10.3f%14.2f\n", name, r->max_over_mean, r->worst_max_over_mean, r->remote_ratio, r->cost_ratio, r->objective);
}

static void print_plan(const gb_plan *plan, const gb_placement *p)
{
    printf("\n%-8s%-8s%-8s%-14s%s\n", "step", "layer", "expert", "from slot", "to slot (rank)");
    for (uint32_t i = 0; i < plan->n; i++) {
        const gb_move *m = &plan->moves[i];
        if (m->expert < 0) printf("%-8u%-8u%-8s%-14s%d (%u) is emptied\n", m->step, m->layer, "-", "-", m->to, gb_placement_rank_of_slot(p, m->to));
        else printf("%-8u%-8u%-8d%-14d%d (%u)\n", m->step, m->layer, m->expert, m->from, m->to, gb_placement_rank_of_slot(p, m->to));
    }
}

/* The search stands in for a script that failed or had no opinion: that must not look like the script's own merit. */
static void print_script_failures(const gb_place_script *script)
{
    if (!script->desk || script->nils + script->faults == 0) return;
    printf("%s was asked about %u window%s: %u without an opinion, %u failed; the built-in search decided those\n", script->name, script->asked,
           script->asked == 1 ? "" : "s", script->nils, script->faults);
    if (script->faults) printf("the last failure: %s\n", gb_lua_desk_fault(script->desk));
}

static json_t *script_json(const gb_place_script *script)
{
    return json_pack("{s:I, s:I, s:I, s:s}", "asked", (json_int_t)script->asked, "nils", (json_int_t)script->nils, "faults", (json_int_t)script->faults,
                     "fault", gb_lua_desk_fault(script->desk));
}

static json_t *report_json(const gb_place_report *r)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "max_over_mean", r->max_over_mean, "worst_max_over_mean", r->worst_max_over_mean, "remote_ratio",
                     r->remote_ratio, "cost_ratio", r->cost_ratio, "objective", r->objective);
}

static void print_solved_json(gb_place_session *s, const gb_placer_outcome *o, const gb_place_report *before, const gb_place_report *after)
{
    json_t *moves = json_array();
    for (uint32_t i = 0; i < s->placer.decider.plan.n; i++) {
        const gb_move *m = &s->placer.decider.plan.moves[i];
        json_array_append_new(moves, json_pack("{s:I, s:I, s:i, s:i, s:i}", "step", (json_int_t)m->step, "layer", (json_int_t)m->layer, "expert", m->expert,
                                               "from", m->from, "to", m->to));
    }
    json_t *j = json_pack("{s:s, s:s, s:f, s:f, s:f, s:o, s:o, s:o}", "policy", s->policy->name, "verdict", gb_verdict_name(o->verdict), "stay", o->stay,
                          "objective", o->objective, "cpu_ms", o->cpu_ms, "before", report_json(before), "after", report_json(after), "moves", moves);
    if (isfinite(o->bound)) json_object_set_new(j, "bound", json_real(o->bound));
    if (s->script.desk) json_object_set_new(j, "script", script_json(&s->script));
    json_dumpf(j, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
    fputc('\n', stdout);
    json_decref(j);
}

static void print_solved(gb_place_session *s, const gb_placer_outcome *o, const gb_place_report *before, const gb_place_report *after, uint32_t window)
{
    uint32_t copies = gb_plan_copies(&s->placer.decider.plan);
    printf("policy %s on window %u: %s, %u experts copied in %u steps, %.1f MB, %.2f ms of CPU time\n", s->policy->name, window, gb_verdict_name(o->verdict),
           copies, s->placer.decider.plan.steps, 1e-6 * (double)s->dump.expert_bytes * copies, o->cpu_ms);
    printf("cost on what it decided by: %.4f, staying %.4f", o->objective, o->stay);
    if (isfinite(o->bound)) printf("; without copies nothing is below %.4f (proved gap %.3f %%)", o->bound, 100 * (o->objective - o->bound) / fabs(o->bound));
    printf("\n\n%-24s%10s%10s%10s%10s%14s\n", "", "max/mean", "worst", "remote", "link cost", "cost");
    print_report("this window, before", before);
    print_report("this window, after", after);
    if (window + 1 < s->dump.windows) {
        gb_place_report next_before = report_on(s, &s->now, window + 1, NULL), next_after = report_on(s, &s->next, window + 1, &s->now);
        print_report("next window, before", &next_before);
        print_report("next window, after", &next_after);
    }
    print_script_failures(&s->script);
    if (s->flags->moves) print_plan(&s->placer.decider.plan, &s->next);
}

/* Our search against CBC on the same numbers, layer by layer. */
static int compare_with_exact(gb_place_session *s, gb_error *err)
{
    gb_placer *p = &s->placer;
    double ours = 0, theirs = 0, seconds = 0;
    const gb_place_flags *f = s->flags;
    uint32_t first = f->layer >= 0 ? (uint32_t)f->layer : 0, last = f->layer >= 0 ? first + 1 : p->solver.layers;
    gb_place_exact exact = {.rank_of = GB_ARENA_NEW(&s->arena, int32_t, p->solver.experts)};
    if (!exact.rank_of) return gb_fail(err, GB_ENOMEM, "out of memory");
    printf("\n%-8s%14s%14s%14s%12s%10s\n", "layer", "swap", "exact", "difference", "", "seconds");
    for (uint32_t l = first; l < last; l++) {
        int rc = gb_place_exact_solve(&exact, &p->solver.layer[l], &p->options.weights, p->solver.capacity, 1e-6, (uint32_t)f->exact_seconds, err);
        if (rc != GB_OK) return rc;
        double here = gb_score_objective(&p->solver.layer[l], &p->options.weights, exact.rank_of);
        printf("%-8u%14.6f%14.6f%13.4f%%%12s%10.2f\n", l, p->solver.objective[l], here, 100 * (p->solver.objective[l] / here - 1),
               exact.optimal ? "optimal" : "time out", exact.seconds);
        ours += p->solver.objective[l], theirs += here, seconds += exact.seconds;
    }
    printf("%-8s%14.6f%14.6f%13.4f%%%12s%10.2f\n", "all", ours, theirs, 100 * (ours / theirs - 1), "", seconds);
    return GB_OK;
}

static int write_result(gb_place_session *s, gb_error *err)
{
    if (!*s->flags->output) return GB_OK;
    gb_placement_copy(&s->dump.placement, &s->next);
    return gb_place_file_write(&s->dump, s->flags->output, err);
}

int gb_place_solve(gb_place_session *s, gb_error *err)
{
    gb_placer *p = &s->placer;
    uint32_t window = s->flags->window >= 0 ? (uint32_t)s->flags->window : s->dump.windows - 1;
    gb_placer_outcome o;
    for (uint32_t w = 0; w < window; w++) gb_estimate_add(&p->estimate, &s->dump.window[w].counts);
    int rc = gb_placer_step(p, s->policy, &s->next, &s->now, &s->dump.window[window].counts, true, &o, err);
    if (rc != GB_OK) return rc;
    gb_place_report before = report_on(s, &s->now, window, NULL), after = report_on(s, &s->next, window, &s->now);
    if (s->flags->json) print_solved_json(s, &o, &before, &after);
    else print_solved(s, &o, &before, &after, window);
    /* The bound came last, so the solver still holds the free search and its numbers. */
    if (s->flags->exact) rc = compare_with_exact(s, err);
    return rc == GB_OK ? write_result(s, err) : rc;
}

/* --- compare ------------------------------------------------------------------------------------------------------------------ */

static void add_report(gb_place_run *run, const gb_place_report *r)
{
    run->next.objective += r->objective;
    run->next.comm += r->comm;
    run->next.imbalance += r->imbalance;
    run->next.max_over_mean += r->max_over_mean;
    run->next.remote_ratio += r->remote_ratio;
    run->next.cost_ratio += r->cost_ratio;
    run->worst = fmax(run->worst, r->worst_max_over_mean);
}

static void finish_run(gb_place_run *run)
{
    double n = run->rearrangements;
    double *means[] = {&run->next.objective, &run->next.comm, &run->next.imbalance, &run->next.max_over_mean, &run->next.remote_ratio,
                       &run->next.cost_ratio, &run->cpu_ms, &run->gap, &run->agreement, &run->comm_excess};
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) *means[i] /= n;
}

/* The certified search from the same homes on the same numbers: how many experts go to the same rank, and Comm above its Comm. */
static void compare_with_reference(gb_place_session *s, gb_place_run *run, const double *traffic)
{
    gb_placer *p = &s->placer;
    const gb_placement *next = &s->next;
    size_t n = (size_t)next->layers * next->experts, same = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t l = (uint32_t)(i / next->experts), e = (uint32_t)(i % next->experts);
        same += gb_placement_rank_of_slot(next, gb_placement_routes(next, l, 0)[e]) == (uint32_t)p->out[i];
    }
    gb_place_report ours, reference;
    gb_score_placement(&ours, &p->options.weights, &p->links, traffic, next, NULL, 1);
    gb_plan_settle(&p->decider.cut, &s->now, p->out);
    gb_score_placement(&reference, &p->options.weights, &p->links, traffic, &p->decider.cut, NULL, 1);
    run->agreement += (double)same / (double)n;
    run->comm_excess += ours.comm / reference.comm - 1;
}

/* The bound knows no copies. */
static bool has_copies(const gb_placement *p)
{
    size_t held = 0;
    for (size_t i = 0, n = (size_t)p->layers * gb_placement_slots(p); i < n; i++) held += p->expert_of_slot[i] >= 0;
    return held > (size_t)p->layers * p->experts;
}

int gb_place_run_policy(gb_place_session *s, const gb_placer_policy *policy, bool prove, bool against_reference, gb_place_run *run, gb_error *err)
{
    gb_placer *p = &s->placer;
    uint32_t decided = s->dump.windows > 1 ? s->dump.windows - 1 : 1;
    *run = (gb_place_run){.rearrangements = decided};
    gb_placer_forget(p);
    gb_placement_copy(&s->now, &s->dump.placement);
    for (uint32_t w = 0; w < decided; w++) {
        gb_placer_outcome o;
        int rc = gb_placer_step(p, policy, &s->next, &s->now, &s->dump.window[w].counts, prove || against_reference, &o, err);
        if (rc != GB_OK) return rc;
        uint32_t copies = gb_plan_copies(&p->decider.plan), looked_at = w + 1 < s->dump.windows ? w + 1 : w;
        if (against_reference) compare_with_reference(s, run, p->raw ? p->window : p->estimate.traffic);
        gb_place_report next = report_on(s, &s->next, looked_at, NULL);
        add_report(run, &next);
        run->moves += copies;
        if (w == 0) run->first_moves = copies;
        run->cpu_ms += o.cpu_ms;
        run->gap += has_copies(&s->next) ? NAN : (o.objective - o.bound) / fabs(o.bound);
        gb_placement_copy(&s->now, &s->next);
    }
    finish_run(run);
    return GB_OK;
}

/* Moves per rearrangement once the first one is done. */
static double later_moves(const gb_place_run *r)
{
    return r->rearrangements > 1 ? (double)(r->moves - r->first_moves) / (r->rearrangements - 1) : (double)r->moves;
}

static json_t *run_json(const gb_placer_policy *policy, const gb_place_run *r, uint64_t expert_bytes)
{
    json_t *j = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:I, s:f}", "policy", policy->name, "max_over_mean", r->next.max_over_mean,
                          "worst_max_over_mean", r->worst, "remote_ratio", r->next.remote_ratio, "cost_ratio", r->next.cost_ratio, "objective",
                          r->next.objective, "moves", (json_int_t)r->moves, "first_moves", (json_int_t)r->first_moves, "later_moves", later_moves(r),
                          "bytes", (json_int_t)(r->moves * expert_bytes), "cpu_ms", r->cpu_ms);
    json_object_set_new(j, "gap", isfinite(r->gap) ? json_real(r->gap) : json_null());
    return j;
}

static void print_run(const gb_placer_policy *policy, const gb_place_run *r, uint64_t expert_bytes)
{
    char gap[16] = "-";
    if (isfinite(r->gap)) snprintf(gap, sizeof gap, "%.3f %%", 100 * r->gap);
    printf("%-18s%9.3f%9.3f%9.3f%9.3f%12.1f%9llu%9.0f%10.2f%11s%9.2f\n", policy->name, r->next.max_over_mean, r->worst, r->next.remote_ratio,
           r->next.cost_ratio, r->next.objective, (unsigned long long)r->first_moves, later_moves(r), 1e-9 * (double)(r->moves * expert_bytes), gap, r->cpu_ms);
}

static bool is_script(const gb_place_session *s, const gb_placer_policy *policy)
{
    return s->placer.script && policy == &s->placer.script->policy;
}

static int compare_one(gb_place_session *s, const gb_placer_policy *policy, json_t *list, gb_error *err)
{
    gb_place_run run;
    int rc = gb_place_run_policy(s, policy, true, false, &run, err);
    if (rc != GB_OK) return rc;
    if (!s->flags->json) {
        print_run(policy, &run, s->dump.expert_bytes);
        if (is_script(s, policy)) print_script_failures(s->placer.script);
        return GB_OK;
    }
    json_t *row = run_json(policy, &run, s->dump.expert_bytes);
    if (is_script(s, policy)) json_object_set_new(row, "script", script_json(s->placer.script));
    json_array_append_new(list, row);
    return GB_OK;
}

/* Those that come with gimbal, each opened for its own row. */
static int compare_shipped_scripts(gb_place_session *s, json_t *list, gb_error *err)
{
    int rc = GB_OK;
    uint32_t at = 0;
    const char *name;
    while (rc == GB_OK && (name = gb_place_script_shipped(&at))) {
        gb_place_script script;
        rc = gb_place_script_open(&script, &s->placer, name, s->dump.placement.sources, err);
        if (rc != GB_OK) return rc;
        rc = compare_one(s, &script.policy, list, err);
        gb_place_script_close(&script);
    }
    return rc;
}

int gb_place_compare(gb_place_session *s, gb_error *err)
{
    const gb_place_weights *w = &s->placer.options.weights;
    json_t *list = json_array();
    int rc = GB_OK;
    if (!s->flags->json)
        printf("%u windows; each policy decides on a window%s and is scored on %s; weights %g, %g, %g (%s)\n\n%-18s%9s%9s%9s%9s%12s%9s%9s%10s%11s%9s\n",
               s->dump.windows, s->flags->raw ? "" : "'s estimate", s->dump.windows > 1 ? "the next" : "the same", w->alpha, w->beta, w->gamma,
               w->imbalance == GB_IMBALANCE_MAX ? "max" : "squares", "policy", "max/mean", "worst", "remote", "links", "cost", "first", "later", "GB", "gap", "CPU ms");
    for (uint32_t i = 0; i < gb_placer_policy_count && rc == GB_OK; i++) rc = compare_one(s, &gb_placer_policies[i], list, err);
    if (rc == GB_OK && s->script.desk) rc = compare_one(s, &s->script.policy, list, err);
    if (rc == GB_OK) rc = compare_shipped_scripts(s, list, err);
    if (s->flags->json && rc == GB_OK) json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(8)), fputc('\n', stdout);
    if (!s->flags->json && rc == GB_OK)
        puts("\nmax/mean: load of the fullest rank, mean over layers; worst: the worst layer; remote: assignments off the source's ranks; first, later:\n"
             "experts copied by the first and by each later rearrangement; gap: above the proved bound (of placements without copies), before scoring");
    json_decref(list);
    return rc;
}
