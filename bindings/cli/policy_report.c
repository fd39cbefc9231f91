/* What a check says, in words and in JSON. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "bindings/cli/policy_check.h"

enum { SENTENCE = GB_LUA_FAULT_BYTES + 256 };

static bool is_hook(const gb_check_outcome *o)
{
    for (int h = 0; h < GB_HOOKS; h++)
        if (strcmp(o->call, gb_hook_name((gb_hook)h)) == 0) return true;
    return false;
}

/* The warnings of one outcome, at most two: false after the last. */
static bool warning_of(char out[SENTENCE], const gb_check_outcome *o, int i)
{
    bool allocates = o->allocated_bytes > 0 && !o->faults, is_slow = o->p99_us > 0.1 * o->budget_us && !o->faults;
    if (allocates && i == 0)
        snprintf(out, SENTENCE, "%s on %s allocates %zu bytes per decision; keep tables in locals outside the hook", o->call, o->tables, o->allocated_bytes);
    else if (is_slow && i == allocates)
        snprintf(out, SENTENCE, "%s on %s takes %.0f us at p99, over a tenth of its budget of %.0f us", o->call, o->tables, o->p99_us, o->budget_us);
    else return false;
    return true;
}

/* The calls that the script has, in order of the outcomes. */
static bool is_first(const gb_check *c, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (strcmp(c->outcomes[k].call, c->outcomes[i].call) == 0) return false;
    return true;
}

/* ---- text ---- */

static void print_outcomes(const gb_check *c)
{
    if (c->n) printf("\n%-15s%-48s%10s%10s%10s%10s%8s%6s%8s\n", "hook", "tables", "p50 us", "p99 us", "max us", "budget", "bytes", "nil", "faults");
    for (uint32_t i = 0; i < c->n; i++) {
        const gb_check_outcome *o = &c->outcomes[i];
        printf("%-15s%-48s%10.2f%10.2f%10.2f%10.0f%8zu%6u%8u\n", o->call, o->tables, o->p50_us, o->p99_us, o->max_us, o->budget_us, o->allocated_bytes,
               o->nils, o->faults);
    }
}

static void sum_shares(uint32_t out[GB_CHECK_SHARES], const gb_check *c, const char *call)
{
    memset(out, 0, GB_CHECK_SHARES * sizeof *out);
    for (uint32_t i = 0; i < c->n; i++)
        for (int s = 0; s < GB_CHECK_SHARES && strcmp(c->outcomes[i].call, call) == 0; s++) out[s] += c->outcomes[i].shares[s];
}

static void print_histogram(const gb_check *c)
{
    uint32_t shares[GB_CHECK_SHARES];
    if (c->n) printf("\n%-15s", "calls by share");
    for (int s = 0; s < GB_CHECK_SHARES - 1 && c->n; s++) printf("   <= %5.4g %%", 100 * gb_check_share_limits[s]);
    if (c->n) printf("%12s\n", "over budget");
    for (uint32_t i = 0; i < c->n; i++) {
        if (!is_first(c, i)) continue;
        sum_shares(shares, c, c->outcomes[i].call);
        printf("%-15s", c->outcomes[i].call);
        for (int s = 0; s < GB_CHECK_SHARES; s++) printf("%12u%s", shares[s], s == GB_CHECK_SHARES - 1 ? "\n" : " ");
    }
}

static void print_findings(const gb_check *c)
{
    char sentence[SENTENCE];
    for (uint32_t i = 0; i < c->n_globals; i++) printf("%s:%u: %s\n", c->label, c->globals[i].line, c->globals[i].why);
    if (c->refusal.text[0]) printf("refused: %s\n", c->refusal.text);
    for (uint32_t i = 0; i < c->n; i++) {
        const gb_check_outcome *o = &c->outcomes[i];
        if (o->faults) printf("fault: %s on %s: %s\n", o->call, o->tables, o->fault);
        for (int w = 0; warning_of(sentence, o, w); w++) printf("warning: %s\n", sentence);
    }
}

void gb_check_print(const gb_check *c)
{
    if (!c->refusal.text[0]) {
        printf("policy %s, api 1:", c->name[0] ? c->name : "without a name");
        for (uint32_t i = 0; i < c->n; i++)
            if (is_first(c, i)) printf(" %s", c->outcomes[i].call);
        puts("");
    }
    print_outcomes(c);
    print_histogram(c);
    print_findings(c);
    printf("%s: %s\n", c->label, gb_check_is_good(c) ? "ok" : "not fit to serve");
}

/* ---- JSON ---- */

static json_t *outcome_json(const gb_check_outcome *o)
{
    json_t *shares = json_array();
    for (int s = 0; s < GB_CHECK_SHARES; s++) json_array_append_new(shares, json_integer(o->shares[s]));
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:o, s:I, s:i, s:i, s:i, s:s}", "hook", o->call, "tables", o->tables, "p50_us", o->p50_us,
                     "p99_us", o->p99_us, "max_us", o->max_us, "budget_us", o->budget_us, "shares", shares, "allocated_bytes",
                     (json_int_t)o->allocated_bytes, "calls", (int)o->calls, "nils", (int)o->nils, "faults", (int)o->faults, "fault", o->fault);
}

static json_t *warnings_json(const gb_check *c)
{
    char sentence[SENTENCE];
    json_t *warnings = json_array();
    for (uint32_t i = 0; i < c->n; i++)
        for (int w = 0; warning_of(sentence, &c->outcomes[i], w); w++) json_array_append_new(warnings, json_string(sentence));
    return warnings;
}

void gb_check_print_json(const gb_check *c)
{
    json_t *globals = json_array(), *tables = json_array(), *hooks = json_array();
    for (uint32_t i = 0; i < c->n_globals; i++)
        json_array_append_new(globals, json_pack("{s:i, s:s}", "line", (int)c->globals[i].line, "why", c->globals[i].why));
    for (uint32_t i = 0; i < c->n; i++) {
        if (is_hook(&c->outcomes[i]) && is_first(c, i)) json_array_append_new(hooks, json_string(c->outcomes[i].call));
        json_array_append_new(tables, outcome_json(&c->outcomes[i]));
    }
    json_t *root = json_pack("{s:s, s:b, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "file", c->label, "ok", gb_check_is_good(c), "name", c->name, "sha256",
                             c->sha256, "refusal", c->refusal.text, "hooks", hooks, "globals", globals, "tables", tables, "warnings", warnings_json(c));
    json_dumpf(root, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    json_decref(root);
}
