/* What policies did: changes and who made them, failed decisions, decisions. */
#include "bindings/cli/policy_verbs.h"

#include <errno.h>
#include <string.h>

static json_t *log_params(const gb_policy_flags *f)
{
    json_t *params = json_pack("{s:I}", "after", (json_int_t)f->after);
    if (params && f->fault) json_object_set_new(params, "fault", json_integer(f->fault));
    return params;
}

/* ---- log ---- */

static void print_events(const json_t *events)
{
    size_t i;
    json_t *event;
    char ago[GB_POLICY_AGO_BYTES];
    printf("%6s %9s  %-32s %-11s %-13s %s\n", "seq", "ago", "who", "kind", "sha256", "what");
    json_array_foreach(events, i, event)
        printf("%6lld %9s  %-32s %-11s %-13.12s %s\n", (long long)gb_policy_int(event, "seq"), gb_policy_ago(ago, event), gb_policy_text(event, "who"),
               gb_policy_text(event, "kind"), gb_policy_text(event, "sha256"), gb_policy_text(event, "text"));
}

static void print_faults(const json_t *faults)
{
    size_t i;
    json_t *fault;
    char ago[GB_POLICY_AGO_BYTES];
    if (json_array_size(faults) == 0) return;
    puts("\nfailed decisions, made by the built-in:");
    printf("%6s %9s  %-16s %-8s %s\n", "fault", "ago", "hook", "kind", "version and first line");
    json_array_foreach(faults, i, fault) {
        const char *message = gb_policy_text(fault, "message");
        printf("%6lld %9s  %-16s %-8s %s v%lld: %.*s\n", (long long)gb_policy_int(fault, "seq"), gb_policy_ago(ago, fault),
               gb_policy_text(fault, "hook"), gb_policy_text(fault, "kind"), gb_policy_text(fault, "name"), (long long)gb_policy_int(fault, "version"),
               (int)strcspn(message, "\n"), message);
    }
}

static int write_snapshot(const json_t *fault, const char *path, gb_error *err)
{
    const char *snapshot = gb_policy_text(fault, "snapshot");
    if (!*snapshot) return gb_fail(err, GB_EABORTED, "fault %lld has no snapshot", (long long)gb_policy_int(fault, "seq"));
    FILE *file = fopen(path, "we");
    if (!file) return gb_fail(err, GB_EINVAL, "--output %s cannot be written: %s; give a file in a directory of yours", path, strerror(errno));
    fputs(snapshot, file);
    int failed = ferror(file);
    if (fclose(file) || failed) return gb_fail(err, GB_EINVAL, "--output %s: %s", path, strerror(errno));
    return GB_OK;
}

static int print_fault(const json_t *result, const gb_policy_flags *f, gb_error *err)
{
    const json_t *fault = json_array_get(json_object_get(result, "faults"), 0);
    char ago[GB_POLICY_AGO_BYTES];
    if (!fault) return gb_fail(err, GB_EABORTED, "there is no fault %lld, or it is forgotten; gimbal policy log lists those that are kept",
                               (long long)f->fault);
    if (f->json) gb_policy_print_json(result);
    else
        printf("fault %lld, %s ago: %s of %s v%lld (sha256 %.12s) failed with %s\n%s\n", (long long)gb_policy_int(fault, "seq"),
               gb_policy_ago(ago, fault), gb_policy_text(fault, "hook"), gb_policy_text(fault, "name"), (long long)gb_policy_int(fault, "version"),
               gb_policy_text(fault, "sha256"), gb_policy_text(fault, "kind"), gb_policy_text(fault, "message"));
    return *f->output ? write_snapshot(fault, f->output, err) : GB_OK;
}

int gb_policy_log(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *result = NULL;
    int status = *f->output && !f->fault ? gb_fail(err, GB_EINVAL, "--output needs --fault SEQ: it writes what that hook saw")
                                         : gb_remote_call(remote, "policy_log", log_params(f), &result, err);
    if (!status && f->fault) status = print_fault(result, f, err);
    else if (!status && f->json) gb_policy_print_json(result);
    else if (!status) {
        print_events(json_object_get(result, "events"));
        print_faults(json_object_get(result, "faults"));
    }
    json_decref(result);
    return status;
}

/* ---- decisions ---- */

static void print_decisions(const json_t *result)
{
    size_t i;
    json_t *decision;
    char ago[GB_POLICY_AGO_BYTES], engine[24];
    if (gb_policy_int(result, "lost")) printf("%lld earlier ones are forgotten\n", (long long)gb_policy_int(result, "lost"));
    printf("%8s %9s  %-16s %8s %6s %-8s %7s %10s  %s\n", "seq", "ago", "hook", "version", "rows", "outcome", "engine", "took us", "inputs");
    json_array_foreach(json_object_get(result, "decisions"), i, decision) {
        const json_t *chosen = json_object_get(decision, "engine");
        snprintf(engine, sizeof engine, chosen ? "%lld" : "-", (long long)json_integer_value(chosen));
        printf("%8lld %9s  %-16s %8lld %6lld %-8s %7s %10.1f  %s\n", (long long)gb_policy_int(decision, "seq"), gb_policy_ago(ago, decision),
               gb_policy_text(decision, "hook"), (long long)gb_policy_int(decision, "version"), (long long)gb_policy_int(decision, "rows"),
               gb_policy_text(decision, "outcome"), engine, json_number_value(json_object_get(decision, "took_us")), gb_policy_text(decision, "inputs"));
    }
}

int gb_policy_decisions(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *result = NULL, *params = json_pack("{s:I, s:I}", "after", (json_int_t)f->after, "most", (json_int_t)f->most);
    int status = gb_remote_call(remote, "decision_log", params, &result, err);
    if (!status && f->json) gb_policy_print_json(result);
    else if (!status) print_decisions(result);
    json_decref(result);
    return status;
}
