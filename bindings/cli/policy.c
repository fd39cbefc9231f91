/* gimbal policy: check policies, and see and replace those of a running server. */
#include "bindings/cli/policy_verbs.h"

#include <string.h>

#include "bindings/cli/policy_check.h"
#include "bindings/cli/policy_replay.h"
#include "bindings/cli/policy_test.h"
#include "core/base/nearest.h"

static const gb_flag flags[] = {
    GB_FLAG(gb_policy_flags, hook, STRING, "", 0, 0, "HOOK", "only this hook, as policy status lists them (default: all that the policy has)"),
    GB_FLAG(gb_policy_flags, expected_generation, INT, "0", 0, 9007199254740992.0, "N",
            "change nothing unless the server is at this generation, as policy status says it"),
    GB_FLAG(gb_policy_flags, name, STRING, "", 0, 0, "NAME", "load: a name other than the file's own; check -: how errors name it"),
    GB_FLAG(gb_policy_flags, activate, BOOL, "false", 0, 0, "", "load: let the new version decide at once"),
    GB_FLAG(gb_policy_flags, force, BOOL, "false", 0, 0, "",
            "activate, load --activate: also a quarantined script, and without the state of the one before"),
    GB_FLAG(gb_policy_flags, policy, STRING, "", 0, 0, "POLICY", "set: the version or name whose param it is (default: the one that decides and has it)"),
    GB_FLAG(gb_policy_flags, after, INT, "0", 0, 9007199254740992.0, "SEQ", "log, decisions: only what came after this one"),
    GB_FLAG(gb_policy_flags, most, INT, "256", 1, 1024, "N", "decisions, diff: at most so many"),
    GB_FLAG(gb_policy_flags, fault, INT, "0", 0, 9007199254740992.0, "SEQ", "log: only this fault, in full"),
    GB_FLAG(gb_policy_flags, output, STRING, "", 0, 0, "FILE", "log --fault: write what the hook saw, for a replay"),
    GB_FLAG(gb_policy_flags, replay, STRING, "", 0, 0, "SNAP", "check: decide again what a fault saw, as log --fault --output writes it; - is standard input"),
    GB_FLAG(gb_policy_flags, on, STRING, "", 0, 0, "FILE", "check: also on these recorded snapshots, one a line; diff: on this journal, without a server"),
    GB_FLAG(gb_policy_flags, engines, INT, "0", 0, 512, "N", "check: as a server with so many engines would (default: with 1, 8 and 512)"),
    GB_FLAG(gb_policy_flags, spec, STRING, "", 0, 0, "FILE", "test: another spec than the file beside the policy"),
    GB_FLAG(gb_policy_flags, ratio, FLOAT, "1", 0.000001, 1, "RATIO", "shadow: the part of the decisions that it is to see"),
    GB_FLAG(gb_policy_flags, json, BOOL, "false", 0, 0, "", "print the answer as JSON"),
    GB_REMOTE_FLAGS(gb_policy_flags),
};

static int check(const gb_args *args)
{
    const gb_policy_flags *f = args->values;
    if (*f->replay) return gb_policy_replay(f->replay, args->words[1], f->json);
    return gb_policy_check(args->words[1], *f->name ? f->name : "standard input", *f->on ? f->on : NULL, (uint32_t)f->engines, f->json);
}

static int test(const gb_args *args)
{
    const gb_policy_flags *f = args->values;
    return gb_policy_test(args->words[1], *f->spec ? f->spec : NULL, f->json);
}

static const gb_policy_verb verbs[] = {
    {"check", "FILE", "all that can be said of a policy without a server; - reads standard input", 1, NULL, check},
    {"test", "FILE", "run its spec with busted: FILE_spec.lua beside it", 1, NULL, test},
    {"list", "", "every version: state, calls, faults; * marks the hooks it decides", 0, gb_policy_list, NULL},
    {"status", "", "who decides each hook, with params and faults", 0, gb_policy_status, NULL},
    {"get", "VERSION|NAME", "the source of a version", 1, gb_policy_get, NULL},
    {"log", "", "changes and who made them, and failed decisions", 0, gb_policy_log, NULL},
    {"decisions", "", "the latest decisions of scripts", 0, gb_policy_decisions, NULL},
    {"load", "FILE", "compile and probe; nothing decides differently yet", 1, gb_policy_load, NULL},
    {"activate", "VERSION|NAME|builtin", "let a version decide, the newest of a name", 1, gb_policy_activate, NULL},
    {"rollback", "", "back to what decided before, at once; again = forward", 0, gb_policy_rollback, NULL},
    {"builtin", "", "the red button: the built-in in C decides", 0, gb_policy_builtin, NULL},
    {"shadow", "VERSION|NAME|status|stop|promote", "compare a version with what decides, on live decisions", 1, gb_policy_shadow, NULL},
    {"diff", "A B", "two policies on recorded decisions: names and files with --on, else versions of a running server", 2, gb_policy_diff,
     gb_policy_diff_journal},
    {"set", "NAME=VALUE", "change one param while the policy runs", 1, gb_policy_set, NULL},
};

enum { N_VERBS = sizeof verbs / sizeof *verbs };

static void help(FILE *out)
{
    fputs("\nVerbs:\n", out);
    for (int i = 0; i < N_VERBS; i++) gb_option_help_line(out, verbs[i].name, verbs[i].arguments, verbs[i].summary, "");
}

static const gb_policy_verb *find_verb(const gb_args *args, gb_error *err)
{
    if (args->n_words == 0) {
        gb_fail(err, GB_EINVAL, "gimbal policy needs a verb: gimbal policy --help lists them");
        return NULL;
    }
    gb_nearest nearest = gb_nearest_to(args->words[0]);
    for (int i = 0; i < N_VERBS; i++) {
        const gb_policy_verb *v = &verbs[i];
        gb_nearest_offer(&nearest, v->name);
        if (strcmp(args->words[0], v->name) != 0) continue;
        if (args->n_words == v->n_words + 1) return v;
        gb_fail(err, GB_EINVAL, "gimbal policy %s takes %s: %s", v->name, v->n_words ? v->arguments : "no argument", v->summary);
        return NULL;
    }
    const char *found = gb_nearest_found(&nearest);
    if (found) gb_fail(err, GB_EINVAL, "gimbal policy has no verb \"%s\"; did you mean %s?", args->words[0], found);
    else gb_fail(err, GB_EINVAL, "gimbal policy has no verb \"%s\"; gimbal policy --help lists them", args->words[0]);
    return NULL;
}

static int ask(const gb_policy_verb *v, const gb_args *args)
{
    const gb_policy_flags *f = args->values;
    gb_error err = {0};
    gb_remote *remote = NULL;
    int status = gb_remote_open(&remote, &f->remote, &err);
    if (!status) status = v->ask(remote, args, &err);
    gb_remote_close(remote);
    return status ? gb_remote_failed(status, &err) : GB_EXIT_OK;
}

static int run(const gb_args *args)
{
    gb_error err = {0};
    const gb_policy_verb *v = find_verb(args, &err);
    if (!v) return gb_command_failed(GB_EINVAL, &err);
    const gb_policy_flags *f = args->values;
    return v->work && (!v->ask || *f->on) ? v->work(args) : ask(v, args);
}

const gb_command gb_command_policy = {
    .name = "policy", .arguments = "VERB ...", .summary = "check policies; see, load, switch and tune those of a running server", .help = help,
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(gb_policy_flags), .max_words = 3, .run = run,
};
