/* gimbal place calibrate: which beta and gamma make a policy's placements cheapest on the window that comes next. The price of a
   placement is alpha-free and physical: remote traffic, load on the fullest rank, and moves, in units of a mean expert's
   remote traffic (docs/placement.md). */
#include "bindings/cli/place_verbs.h"

#include <math.h>

enum { STEPS = 9, MIDDLE = 4, ROWS = STEPS * STEPS };

typedef struct trial {
    double beta, gamma, price;    /* price per layer and window */
    gb_place_run run;
} trial;

/* Sum over layers of the fullest rank above the mean, from the report's mean of max/mean. */
static double top_above_mean(const gb_place_session *s, const gb_place_run *r)
{
    double mean_load = (double)s->dump.placement.experts / s->dump.placement.ranks;
    return (r->next.max_over_mean - 1) * mean_load * s->dump.placement.layers;
}

static int try_weights(gb_place_session *s, trial *t, gb_error *err)
{
    s->placer.options.weights.beta = t->beta;
    s->placer.options.weights.gamma = t->gamma;
    int rc = gb_place_run_policy(s, s->policy, false, true, &t->run, err);
    double moves = (double)t->run.moves / t->run.rearrangements;
    t->price = (t->run.next.comm + s->flags->compute_weight * top_above_mean(s, &t->run) + s->flags->move_weight * moves) / s->dump.placement.layers;
    return rc;
}

static void print_trial(const char *name, const trial *t)
{
    printf("%-22s%10.4g%10.4g%10.4f%9.3f%10.3f%10.0f%12.1f%%%+12.2f%%\n", name, t->beta, t->gamma, t->price, t->run.next.remote_ratio,
           t->run.next.max_over_mean, (double)t->run.moves / t->run.rearrangements, 100 * t->run.agreement, 100 * t->run.comm_excess);
}

/* Cheaper by more than a part in two thousand, or as cheap with fewer moves. */
static bool better(const trial *a, const trial *b)
{
    if (fabs(a->price - b->price) > 5e-4 * b->price) return a->price < b->price;
    return a->run.moves < b->run.moves;
}

int gb_place_calibrate(gb_place_session *s, gb_error *err)
{
    gb_place_weights preset = s->placer.options.weights;
    trial given = {.beta = preset.beta, .gamma = preset.gamma}, best = {0}, stay = {.beta = preset.beta, .gamma = preset.gamma};
    const gb_placer_policy *policy = s->policy;
    if (s->dump.windows < 3) return gb_fail(err, GB_EINVAL, "calibrate needs at least 3 windows, to decide on and to score on; this dump has %u", s->dump.windows);
    if (preset.beta == 0 || preset.gamma == 0) return gb_fail(err, GB_EINVAL, "calibrate searches around beta and gamma: start from values above 0");
    int rc = gb_placer_find(&s->policy, "stay", err);
    if (rc == GB_OK) rc = try_weights(s, &stay, err);
    s->policy = policy;
    if (rc == GB_OK) rc = try_weights(s, &given, err);
    best = given;
    for (int i = 0; i < ROWS && rc == GB_OK; i++) {
        trial t = {.beta = preset.beta * pow(4, i / STEPS - MIDDLE + 2), .gamma = preset.gamma * pow(4, i % STEPS - MIDDLE - 2)};
        rc = try_weights(s, &t, err);
        if (rc == GB_OK && better(&t, &best)) best = t;
    }
    if (rc != GB_OK) return rc;
    printf("policy %s, %u windows, %d weightings; price = remote + %g x (fullest rank - mean) + %g x moves, per layer, on the next window\n\n", policy->name,
           s->dump.windows, ROWS, s->flags->compute_weight, s->flags->move_weight);
    printf("%-22s%10s%10s%10s%9s%10s%10s%13s%13s\n", "", "beta", "gamma", "price", "remote", "max/mean", "moves", "agreement", "comm above");
    print_trial("stay", &stay);
    print_trial("given", &given);
    print_trial("best", &best);
    printf("\nagreement: experts that the certified search of the same weights puts on the same rank (the paper asks for more than 80 %%);\n"
           "comm above: their traffic against that reference (the paper: within 0.6 %%). Both say how well the rule follows its weights,\n"
           "the price says what the weights are worth.\n");
    return GB_OK;
}
