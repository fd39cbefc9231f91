/* Which policies there are and which decide. */
#include "bindings/cli/policy_verbs.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/nearest.h"

/* ---- parts of answers ---- */

const char *gb_policy_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

json_int_t gb_policy_int(const json_t *object, const char *key) { return json_integer_value(json_object_get(object, key)); }

void gb_policy_print_json(const json_t *result)
{
    json_dumpf(result, stdout, JSON_COMPACT);
    fputc('\n', stdout);
}

const char *gb_policy_ago(char out[GB_POLICY_AGO_BYTES], const json_t *record)
{
    const json_t *age = json_object_get(record, "age_ms");
    double s = json_number_value(age) / 1e3;
    if (!json_is_number(age)) return "-";
    if (s < 1) snprintf(out, GB_POLICY_AGO_BYTES, "%.0f ms", s * 1e3);
    else if (s < 60) snprintf(out, GB_POLICY_AGO_BYTES, "%.1f s", s);
    else if (s < 3600) snprintf(out, GB_POLICY_AGO_BYTES, "%.0f min", s / 60);
    else snprintf(out, GB_POLICY_AGO_BYTES, "%.1f h", s / 3600);
    return out;
}

/* ---- list ---- */

static bool lists(const json_t *array, const char *word)
{
    size_t i;
    json_t *entry;
    json_array_foreach(array, i, entry)
        if (strcmp(json_string_value(entry) ? json_string_value(entry) : "", word) == 0) return true;
    return false;
}

static void print_hooks(const json_t *policy)
{
    size_t i;
    json_t *hook;
    json_array_foreach(json_object_get(policy, "hooks"), i, hook) {
        const char *name = json_string_value(hook) ? json_string_value(hook) : "";
        printf("%s%s%s", i ? ", " : "", name, lists(json_object_get(policy, "active"), name) ? "*" : "");
    }
    fputc('\n', stdout);
}

static void print_policies(const json_t *result)
{
    size_t i;
    json_t *policy;
    printf("%-8s %-20s %-12s %-13s %10s %8s  %s\n", "version", "name", "state", "sha256", "calls", "faults", "hooks");
    json_array_foreach(json_object_get(result, "policies"), i, policy) {
        printf("%-8lld %-20s %-12s %-13.12s %10lld %8lld  ", (long long)gb_policy_int(policy, "version"), gb_policy_text(policy, "name"),
               gb_policy_text(policy, "state"), gb_policy_text(policy, "sha256"), (long long)gb_policy_int(policy, "calls"),
               (long long)gb_policy_int(policy, "faults"));
        print_hooks(policy);
    }
}

int gb_policy_list(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *result = NULL;
    int status = gb_remote_call(remote, "policy_list", json_object(), &result, err);
    if (!status && f->json) gb_policy_print_json(result);
    else if (!status) print_policies(result);
    json_decref(result);
    return status;
}

/* ---- status ---- */

static json_int_t sum(const json_t *by_name)
{
    const char *key;
    json_t *count;
    json_int_t all = 0;
    json_object_foreach((json_t *)by_name, key, count) all += json_integer_value(count);
    return all;
}

static void print_params(const json_t *params)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)params, key, value) {
        if (json_is_string(value)) printf(" %s=%s", key, json_string_value(value));
        else if (json_is_boolean(value)) printf(" %s=%s", key, json_is_true(value) ? "true" : "false");
        else printf(" %s=%.14g", key, json_number_value(value));
    }
    fputc('\n', stdout);
}

static void print_seats(const json_t *status)
{
    size_t i;
    json_t *seat;
    printf("%-16s %-8s %-20s %-13s %8s  %s\n", "hook", "version", "name", "sha256", "faults", "params");
    json_array_foreach(json_object_get(status, "hooks"), i, seat) {
        const char *sha256 = gb_policy_text(seat, "sha256");
        printf("%-16s %-8lld %-20s %-13.12s %8lld ", gb_policy_text(seat, "hook"), (long long)gb_policy_int(seat, "version"),
               gb_policy_text(seat, "name"), *sha256 ? sha256 : "-", (long long)sum(json_object_get(seat, "faults")));
        print_params(json_object_get(seat, "params"));
    }
    printf("generation %lld\n", (long long)gb_policy_int(status, "generation"));
}

int gb_policy_print_seats(gb_remote *remote, gb_error *err)
{
    json_t *result = NULL;
    int status = gb_remote_call(remote, "policy_status", json_object(), &result, err);
    if (!status) print_seats(result);
    json_decref(result);
    return status;
}

static void print_status(const json_t *result)
{
    print_seats(result);
    printf("%lld decisions of scripts, %lld failed; %lld changes; scripts that run too long are stopped by %s\n",
           (long long)gb_policy_int(result, "decisions"), (long long)gb_policy_int(result, "faults"), (long long)gb_policy_int(result, "events"),
           gb_policy_text(result, "interrupts"));
}

int gb_policy_status(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *result = NULL;
    int status = gb_remote_call(remote, "policy_status", json_object(), &result, err);
    if (!status && f->json) gb_policy_print_json(result);
    else if (!status) print_status(result);
    json_decref(result);
    return status;
}

/* ---- one version ---- */

static int unknown_name(const json_t *policies, const char *word, gb_error *err)
{
    size_t i;
    json_t *policy;
    gb_nearest nearest = gb_nearest_to(word);
    gb_nearest_offer(&nearest, "builtin");
    json_array_foreach(policies, i, policy) gb_nearest_offer(&nearest, gb_policy_text(policy, "name"));
    const char *found = gb_nearest_found(&nearest);
    if (found) return gb_fail(err, GB_EABORTED, "no policy is named %.64s; did you mean %s?", word, found);
    return gb_fail(err, GB_EABORTED, "no policy is named %.64s; gimbal policy list shows them", word);
}

int gb_policy_find_version(gb_remote *remote, const char *word, json_int_t *version, gb_error *err)
{
    char *end;
    json_t *result = NULL, *policy;
    size_t i;
    *version = strtoll(word, &end, 10);
    if (*word && !*end) return GB_OK;
    *version = 0;
    int status = gb_remote_call(remote, "policy_list", json_object(), &result, err);
    const json_t *policies = json_object_get(result, "policies");
    json_array_foreach(policies, i, policy) {
        if (strcmp(gb_policy_text(policy, "name"), word) == 0 && gb_policy_int(policy, "version") > *version)
            *version = gb_policy_int(policy, "version");
    }
    if (!status && !*version) status = unknown_name(policies, word, err);
    json_decref(result);
    return status;
}

int gb_policy_get(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_int_t version;
    json_t *result = NULL;
    int status = gb_policy_find_version(remote, args->words[1], &version, err);
    if (!status) status = gb_remote_call(remote, "policy_get", json_pack("{s:I}", "version", version), &result, err);
    if (!status && f->json) gb_policy_print_json(result);
    else if (!status) fputs(gb_policy_text(result, "source"), stdout);
    json_decref(result);
    return status;
}
