/* gimbal place: window dumps, placement policies on them, and what they are worth. */
#include "bindings/cli/place_verbs.h"

#include <string.h>

#include "bindings/cli/place_file.h"
#include "core/base/nearest.h"

static const gb_flag flags[] = {
    GB_FLAG(gb_place_flags, policy, STRING, "swap", 0, 0, "NAME", "stay, linear, eplb, moetuner, topology, paper, swap, grouped, max, budget, replicas, a shipped Lua policy or a .lua file"),
    GB_FLAG(gb_place_flags, weights, STRING, "paper", 0, 0, "paper|balanced|latency", "alpha, beta, gamma and the form of imbalance"),
    GB_FLAG(gb_place_flags, alpha, FLOAT, "1", 0, 1e9, "X", "weight of communication (default: that of --weights)"),
    GB_FLAG(gb_place_flags, beta, FLOAT, "0.0025", 0, 1e9, "X", "weight of imbalance (default: that of --weights)"),
    GB_FLAG(gb_place_flags, gamma, FLOAT, "1", 0, 1e9, "X", "weight of a moved expert (default: that of --weights)"),
    GB_FLAG(gb_place_flags, imbalance, STRING, "squares", 0, 0, "squares|max", "squared deviations, or the fullest rank (default: that of --weights)"),
    GB_FLAG(gb_place_flags, tolerance, FLOAT, "0.001", 0, 1, "X", "a layer is done when its gap is proved below this"),
    GB_FLAG(gb_place_flags, min_gain, FLOAT, "0", 0, 1, "X", "stay unless the cost falls by at least this share"),
    GB_FLAG(gb_place_flags, max_moves, INT, "-1", -1, 4294967294.0, "N", "most experts copied per rearrangement (-1: any number)"),
    GB_FLAG(gb_place_flags, max_bytes, INT, "-1", -1, 1e15, "BYTES", "most bytes copied per rearrangement (-1: any number)"),
    GB_FLAG(gb_place_flags, groups, INT, "1", 1, 1024, "N", "eplb, grouped: groups of experts that stay on a node together"),
    GB_FLAG(gb_place_flags, nodes, INT, "1", 1, 512, "N", "eplb, grouped: nodes"),
    GB_FLAG(gb_place_flags, raw, BOOL, "false", 0, 0, "", "decide on the window's own counts, not on the smoothed and shrunk estimate"),
    GB_FLAG(gb_place_flags, even_if_worse, BOOL, "false", 0, 0, "", "take a script's placement also when it costs more than staying"),
    GB_FLAG(gb_place_flags, window, INT, "-1", -1, 999999, "N", "solve, picture: the window to decide on (-1: the last)"),
    GB_FLAG(gb_place_flags, layer, INT, "-1", -1, 4095, "N", "solve --exact, picture: only this layer (-1: all; picture: the one that gains most)"),
    GB_FLAG(gb_place_flags, exact, BOOL, "false", 0, 0, "", "solve: compare with the exact optimum, layer by layer (needs the program cbc)"),
    GB_FLAG(gb_place_flags, exact_seconds, INT, "60", 1, 86400, "S", "solve --exact: most time for one layer"),
    GB_FLAG(gb_place_flags, moves, BOOL, "false", 0, 0, "", "solve: list the plan, step by step"),
    GB_FLAG(gb_place_flags, output, STRING, "", 0, 0, "FILE", "solve: write the dump again with the new placement"),
    GB_FLAG(gb_place_flags, json, BOOL, "false", 0, 0, "", "show, solve, compare: print JSON"),
    GB_FLAG(gb_place_flags, compute_weight, FLOAT, "2.8", 0, 1e9, "X", "calibrate: cost of load on the fullest rank, in remote assignments"),
    GB_FLAG(gb_place_flags, move_weight, FLOAT, "0.2", 0, 1e9, "X", "calibrate: cost of a move, in a mean expert's remote traffic"),
    GB_FLAG(gb_place_flags, layers, INT, "48", 1, 4096, "N", "gen: MoE layers"),
    GB_FLAG(gb_place_flags, sources, INT, "2", 1, 512, "N", "gen: sources (engines)"),
    GB_FLAG(gb_place_flags, experts, INT, "128", 2, 1024, "N", "gen: experts of a layer"),
    GB_FLAG(gb_place_flags, ranks, INT, "4", 1, 512, "N", "gen: expert-parallel ranks"),
    GB_FLAG(gb_place_flags, spare, INT, "0", 0, 1024, "N", "gen: spare slots per rank"),
    GB_FLAG(gb_place_flags, top_k, INT, "8", 1, 1023, "N", "gen: experts a token chooses"),
    GB_FLAG(gb_place_flags, windows, INT, "8", 1, 1000000, "N", "gen: windows"),
    GB_FLAG(gb_place_flags, pairs, INT, "160000", 0, 1e15, "N", "gen: assignments of a source per layer and window"),
    GB_FLAG(gb_place_flags, sigma, FLOAT, "0.5", 0, 8, "X", "gen: how much sources differ, expert by expert"),
    GB_FLAG(gb_place_flags, block, FLOAT, "0", 0, 8, "X", "gen: how much sources differ, block by block"),
    GB_FLAG(gb_place_flags, drift, FLOAT, "0.95", 0, 1, "X", "gen: correlation of neighbouring windows"),
    GB_FLAG(gb_place_flags, ranks_per_node, INT, "0", 0, 512, "N", "gen: ranks on a node (0: one tier of links)"),
    GB_FLAG(gb_place_flags, near, FLOAT, "0.2", 0, 1, "X", "gen: link cost inside a node, with --ranks-per-node"),
    GB_FLAG(gb_place_flags, expert_bytes, INT, "9437184", 1, 1e15, "BYTES", "gen: weights of one expert of one layer"),
    GB_FLAG(gb_place_flags, seed, INT, "1", 0, 9223372036854775807.0, "N", "gen: the same seed gives the same windows"),
    GB_REMOTE_FLAGS(gb_place_flags),
};

static const struct verb {
    const char *name;
    uint32_t n_words;    /* itself and its files */
    bool reads;          /* the first file is a dump */
    bool calls;          /* a running server */
    int (*run)(gb_place_session *session, gb_error *err);
} verbs[] = {
    {"gen", 2, false, false, gb_place_gen},
    {"show", 2, true, false, gb_place_show},
    {"solve", 2, true, false, gb_place_solve},
    {"compare", 2, true, false, gb_place_compare},
    {"calibrate", 2, true, false, gb_place_calibrate},
    {"picture", 3, true, false, gb_place_picture},
    {"dump", 2, false, true, gb_place_dump},
    {"load", 2, true, true, gb_place_load},
};

enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const struct verb *find_verb(const gb_args *args, gb_error *err)
{
    gb_nearest nearest = gb_nearest_to(args->n_words ? args->words[0] : "");
    for (int i = 0; i < N_VERBS; i++) {
        if (args->n_words && strcmp(args->words[0], verbs[i].name) == 0) {
            if (args->n_words == verbs[i].n_words) return &verbs[i];
            gb_fail(err, GB_EINVAL, "gimbal place %s takes %s", verbs[i].name, verbs[i].n_words == 2 ? "one file" : "a dump and the file to write");
            return NULL;
        }
        gb_nearest_offer(&nearest, verbs[i].name);
    }
    const char *found = args->n_words ? gb_nearest_found(&nearest) : NULL;
    if (found) gb_fail(err, GB_EINVAL, "gimbal place has no verb \"%s\"; did you mean %s?", args->words[0], found);
    else gb_fail(err, GB_EINVAL, "gimbal place needs a verb: gen FILE, show FILE, solve FILE, compare FILE, calibrate FILE, picture FILE SVG, dump FILE or load FILE");
    return NULL;
}

/* --- weights and limits ----------------------------------------------------------------------------------------------------- */

/* The words were checked against the flags' choices. */
static int read_weights(gb_place_weights *w, const gb_args *args, gb_error *err)
{
    const gb_place_flags *f = args->values;
    *w = strcmp(f->weights, "balanced") == 0 ? gb_place_weights_balanced()
         : strcmp(f->weights, "latency") == 0 ? gb_place_weights_latency() : gb_place_weights_paper();
    if (gb_args_given(args, "alpha")) w->alpha = f->alpha;
    if (gb_args_given(args, "beta")) w->beta = f->beta;
    if (gb_args_given(args, "gamma")) w->gamma = f->gamma;
    if (gb_args_given(args, "imbalance")) w->imbalance = strcmp(f->imbalance, "max") == 0 ? GB_IMBALANCE_MAX : GB_IMBALANCE_SQUARES;
    return gb_place_weights_check(w, err);
}

/* The name was of no built-in policy: err says so, for the case that no script has it either. */
static int choose_script(gb_place_session *s, const char *name, gb_error *err)
{
    gb_error other = {{0}};
    bool is_path = gb_place_script_is_path(name);
    int rc = gb_place_script_open(&s->script, &s->placer, name, s->dump.placement.sources, is_path ? err : &other);
    if (rc == GB_ENOTFOUND && !is_path) return rc;
    if (rc != GB_OK) return is_path ? rc : gb_fail(err, rc, "%s", other.text);
    s->script.policy.even_if_worse |= s->flags->even_if_worse;
    s->policy = &s->script.policy;
    return GB_OK;
}

static int choose_policy(gb_place_session *s, gb_error *err)
{
    int rc = gb_placer_find(&s->policy, s->flags->policy, err);
    return rc == GB_ENOTFOUND ? choose_script(s, s->flags->policy, err) : rc;
}

static int set_up(gb_place_session *s, gb_error *err)
{
    const gb_place_flags *f = s->flags;
    const gb_placement *shape = &s->dump.placement;
    gb_placer *p = &s->placer;
    uint32_t spare = shape->slots_per_rank - shape->experts / shape->ranks;
    int rc = gb_placer_init(p, &s->arena, &s->dump, err);
    if (rc == GB_OK) rc = read_weights(&p->options.weights, s->args, err);
    if (rc == GB_OK) rc = choose_policy(s, err);
    if (rc == GB_OK) rc = gb_placement_init(&s->now, &s->arena, shape->layers, shape->sources, shape->experts, shape->ranks, spare, err);
    if (rc == GB_OK) rc = gb_placement_init(&s->next, &s->arena, shape->layers, shape->sources, shape->experts, shape->ranks, spare, err);
    if (rc != GB_OK) return rc;
    gb_placement_copy(&s->now, shape);
    p->options.tolerance = f->tolerance;
    p->options.min_gain_ratio = f->min_gain;
    if (f->max_moves >= 0) p->options.max_moves = (uint32_t)f->max_moves;
    if (f->max_bytes >= 0) p->options.max_bytes = (uint64_t)f->max_bytes;
    p->groups = (uint32_t)f->groups;
    p->nodes = (uint32_t)f->nodes;
    p->raw = f->raw;
    if (f->window >= (int64_t)s->dump.windows)
        return gb_fail(err, GB_EINVAL, "--window %lld: the dump has windows 0 to %u", (long long)f->window, s->dump.windows - 1);
    if (f->layer >= (int64_t)shape->layers) return gb_fail(err, GB_EINVAL, "--layer %lld: the dump has layers 0 to %u", (long long)f->layer, shape->layers - 1);
    return gb_solve_options_check(&p->options, err);
}

static int run(const gb_args *args)
{
    static gb_place_session session;    /* large, and the only one */
    gb_error err = {{0}};
    const struct verb *verb = find_verb(args, &err);
    if (!verb) return gb_command_failed(GB_EINVAL, &err);
    session = (gb_place_session){.args = args, .flags = args->values};
    gb_arena_init(&session.arena);
    int rc = verb->reads ? gb_place_file_read(&session.dump, &session.arena, args->words[1], &err) : GB_OK;
    if (rc == GB_OK && verb->reads) rc = set_up(&session, &err);
    bool called = rc == GB_OK && verb->calls;
    if (rc == GB_OK) rc = verb->run(&session, &err);
    gb_place_script_close(&session.script);
    gb_arena_deinit(&session.arena);
    if (rc == GB_OK) return GB_EXIT_OK;
    return called ? gb_remote_failed(rc, &err) : gb_command_failed(rc, &err);
}

const gb_command gb_command_place = {
    .name = "place", .arguments = "VERB FILE", .summary = "expert placement on dumped windows: gen, show, solve, compare, calibrate, picture; to and from a server: dump, load",
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(gb_place_flags), .max_words = 3, .run = run,
};
