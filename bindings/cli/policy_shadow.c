/* A policy in shadow of what decides; comparisons of two policies. */
#include "bindings/cli/policy_verbs.h"

#include <string.h>

static void print_side(const char *name, const json_t *side)
{
    const json_t *spread = json_object_get(side, "spread");
    printf("  %-12s %10.2f %10.2f %10.2f %8lld %8lld", name, json_number_value(json_object_get(side, "mean_us")),
           json_number_value(json_object_get(side, "p50_us")), json_number_value(json_object_get(side, "p99_us")), (long long)gb_policy_int(side, "nils"),
           (long long)gb_policy_int(side, "faults"));
    if (spread) printf(" %8.3f %8.3f", json_number_value(spread), json_number_value(json_object_get(side, "moe_pressure")));
    fputc('\n', stdout);
    const char *fault = gb_policy_text(side, "last_fault");
    if (*fault) printf("    %.*s\n", (int)strcspn(fault, "\n"), fault);
}

void gb_policy_print_comparison(const json_t *c, const char *a, const char *b)
{
    const json_t *percent = json_object_get(c, "agreement_percent");
    printf("%s: %lld decisions", gb_policy_text(c, "hook"), (long long)gb_policy_int(c, "decisions"));
    if (percent) printf(", %lld agreed (%.1f %%)", (long long)gb_policy_int(c, "agreed"), json_number_value(percent));
    printf("\n  %-12s %10s %10s %10s %8s %8s %8s %8s\n", "", "mean us", "p50 us", "p99 us", "nils", "faults", "spread", "moe");
    print_side(a, json_object_get(c, a));
    print_side(b, json_object_get(c, b));
}

static void print_shadow(const json_t *s)
{
    size_t i;
    json_t *hook;
    if (!s) {
        printf("no policy is or was in shadow\n");
        return;
    }
    printf("%s v%lld (sha256 %.12s): ", gb_policy_text(s, "name"), (long long)gb_policy_int(s, "version"), gb_policy_text(s, "sha256"));
    if (json_is_true(json_object_get(s, "running"))) printf("in shadow, ratio %g", json_number_value(json_object_get(s, "ratio")));
    else printf("ended: %s", gb_policy_text(s, "ended"));
    printf("; %lld decisions seen, %lld skipped\n", (long long)gb_policy_int(s, "seen"), (long long)gb_policy_int(s, "skipped"));
    json_array_foreach(json_object_get(s, "hooks"), i, hook) gb_policy_print_comparison(hook, "active", "candidate");
}

static bool is_action(const char *word) { return strcmp(word, "stop") == 0 || strcmp(word, "promote") == 0 || strcmp(word, "status") == 0; }

int gb_policy_shadow(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    const char *word = args->words[1];
    json_int_t version = 0;
    json_t *result = NULL, *params;
    int status = is_action(word) ? GB_OK : gb_policy_find_version(remote, word, &version, err);
    if (status) return status;
    params = version ? json_pack("{s:s, s:I, s:f}", "action", "start", "version", version, "ratio", f->ratio) : json_pack("{s:s}", "action", word);
    if (params && *f->hook) json_object_set_new(params, "hook", json_string(f->hook));
    if (params && gb_args_given(args, "expected_generation")) json_object_set_new(params, "expected_generation", json_integer(f->expected_generation));
    status = gb_remote_call(remote, "policy_shadow", params, &result, err);
    if (!status && f->json) gb_policy_print_json(result);
    else if (!status) print_shadow(json_object_get(result, "shadow"));
    json_decref(result);
    return status;
}
