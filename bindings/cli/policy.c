#include "bindings/cli/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/cli/policy_check.h"
#include "bindings/cli/remote.h"
#include "bindings/lua/lua_host.h"
#include "core/base/nearest.h"

typedef struct policy_flags {
    gb_remote_flags remote;
    const char *hook, *name;
    bool activate, json;
} policy_flags;

static const gb_flag flags[] = {
    GB_FLAG(policy_flags, hook, STRING, "", 0, 0, "HOOK", "only this hook: select_engine or order_queue (default: all the policy has)"),
    GB_FLAG(policy_flags, name, STRING, "", 0, 0, "NAME", "load: a name other than the file's own"),
    GB_FLAG(policy_flags, activate, BOOL, "false", 0, 0, "", "load: let the new version decide at once"),
    GB_FLAG(policy_flags, json, BOOL, "false", 0, 0, "", "print the answer as JSON"),
    GB_REMOTE_FLAGS(policy_flags),
};

/* ---- list ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void join_hooks(char *out, size_t capacity, const json_t *policy)
{
    size_t i, n = 0;
    json_t *hook;
    out[0] = '\0';
    json_array_foreach(json_object_get(policy, "hooks"), i, hook)
        n += (size_t)snprintf(out + n, n < capacity ? capacity - n : 0, "%s%s", n ? "," : "", json_string_value(hook) ? json_string_value(hook) : "");
}

static void print_policies(const json_t *result)
{
    size_t i;
    json_t *policy;
    printf("%-8s%-20s%-10s%-28s%-14s%10s%8s\n", "version", "name", "state", "hooks", "sha256", "calls", "faults");
    json_array_foreach(json_object_get(result, "policies"), i, policy) {
        char hooks[128];
        join_hooks(hooks, sizeof hooks, policy);
        printf("%-8lld%-20s%-10s%-28s%-14.12s%10lld%8lld\n", (long long)json_integer_value(json_object_get(policy, "version")),
               text_of(policy, "name"), text_of(policy, "state"), hooks, text_of(policy, "sha256"),
               (long long)json_integer_value(json_object_get(policy, "calls")), (long long)json_integer_value(json_object_get(policy, "faults")));
    }
}

static int list(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const policy_flags *f = args->values;
    json_t *result = NULL;
    int status = gb_remote_call(remote, "policy_list", json_object(), &result, err);
    if (status) return status;
    if (f->json) json_dumpf(result, stdout, JSON_COMPACT), fputc('\n', stdout);
    else print_policies(result);
    json_decref(result);
    return GB_OK;
}

/* ---- activate ---- */

/* The newest version of a name, the number itself, or 0 for the C built-in. */
static int find_version(gb_remote *remote, const char *word, json_int_t *version, gb_error *err)
{
    char *end;
    json_t *result = NULL, *policy;
    size_t i;
    *version = strtoll(word, &end, 10);
    if (*word && !*end) return GB_OK;
    *version = 0;
    if (strcmp(word, "builtin") == 0) return GB_OK;
    int status = gb_remote_call(remote, "policy_list", json_object(), &result, err);
    json_array_foreach(json_object_get(result, "policies"), i, policy) {
        json_int_t v = json_integer_value(json_object_get(policy, "version"));
        if (strcmp(text_of(policy, "name"), word) == 0 && v > *version) *version = v;
    }
    json_decref(result);
    if (!status && !*version) status = gb_fail(err, GB_ENOTFOUND, "no policy is named %s; gimbal policy list shows them", word);
    return status;
}

static int activate_version(gb_remote *remote, const policy_flags *f, json_int_t version, gb_error *err)
{
    json_t *result = NULL, *params = json_pack("{s:I}", "version", version);
    if (params && *f->hook) json_object_set_new(params, "hook", json_string(f->hook));
    int status = gb_remote_call(remote, "policy_activate", params, &result, err);
    if (!status && f->json) json_dumpf(result, stdout, JSON_COMPACT), fputc('\n', stdout);
    else if (!status && version) printf("version %lld decides now\n", (long long)version);
    else if (!status) puts("the C built-in decides now");
    json_decref(result);
    return status;
}

static int activate(gb_remote *remote, const gb_args *args, gb_error *err)
{
    json_int_t version;
    int status = find_version(remote, args->words[1], &version, err);
    return status ? status : activate_version(remote, args->values, version, err);
}

/* ---- load ---- */

static int read_source(char **source, size_t *bytes, const char *path, gb_error *err)
{
    FILE *file = fopen(path, "re");
    if (!file) return gb_fail(err, GB_EINVAL, "policy %s: %s", path, strerror(errno));
    *source = malloc(GB_LUA_SOURCE_MAX + 1);
    *bytes = *source ? fread(*source, 1, GB_LUA_SOURCE_MAX + 1, file) : 0;
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (!*source) return gb_fail(err, GB_ENOMEM, "out of memory for policy %s", path);
    if (failed) return gb_fail(err, GB_EINVAL, "policy %s: %s", path, strerror(failed));
    if (*bytes > GB_LUA_SOURCE_MAX) return gb_fail(err, GB_EINVAL, "policy %s: a policy file has at most %d bytes", path, GB_LUA_SOURCE_MAX);
    return GB_OK;
}

/* Its file's name without directory and .lua, for a script that names itself otherwise or not at all. */
static json_t *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    return json_stringn(base, dot && dot > base ? (size_t)(dot - base) : strlen(base));
}

static int load(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const policy_flags *f = args->values;
    char *source = NULL;
    size_t bytes = 0;
    json_t *result = NULL;
    int status = read_source(&source, &bytes, args->words[1], err);
    json_t *text = status ? NULL : json_stringn(source, bytes);
    free(source);
    if (status) return status;
    if (!text) return gb_fail(err, GB_EINVAL, "policy %s: the file is not valid UTF-8", args->words[1]);
    json_t *params = json_pack("{s:o, s:o}", "name", *f->name ? json_string(f->name) : name_of_file(args->words[1]), "source", text);
    if (params && *f->hook) json_object_set_new(params, "hook", json_string(f->hook));
    status = gb_remote_call(remote, "policy_load", params, &result, err);
    json_int_t version = json_integer_value(json_object_get(result, "version"));
    if (!status && f->json) json_dumpf(result, stdout, JSON_COMPACT), fputc('\n', stdout);
    else if (!status) printf("loaded as version %lld\n", (long long)version);
    json_decref(result);
    return status || !f->activate ? status : activate_version(remote, f, version, err);
}

/* ---- the command ---- */

typedef struct verb {
    const char *name;
    uint32_t n_words;    /* itself and its arguments */
    int (*run)(gb_remote *remote, const gb_args *args, gb_error *err);
} verb;

static const verb verbs[] = {{"list", 1, list}, {"load", 2, load}, {"activate", 2, activate}, {"check", 2, NULL}};    /* check needs no server */

static const verb *find_verb(const gb_args *args, gb_error *err)
{
    gb_nearest nearest = gb_nearest_to(args->n_words ? args->words[0] : "");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        gb_nearest_offer(&nearest, verbs[i].name);
        if (args->n_words && strcmp(args->words[0], verbs[i].name) == 0 && args->n_words == verbs[i].n_words) return &verbs[i];
    }
    const char *found = args->n_words ? gb_nearest_found(&nearest) : NULL;
    gb_fail(err, GB_EINVAL, "expected policy check FILE, policy list, policy load FILE or policy activate VERSION|NAME|builtin%s%s%s", found ? "; did you mean " : "",
            found ? found : "", found ? "?" : "");
    return NULL;
}

static int run(const gb_args *args)
{
    const policy_flags *f = args->values;
    gb_error err = {0};
    gb_remote *remote = NULL;
    const verb *v = find_verb(args, &err);
    if (v && !v->run) return gb_policy_check(args->words[1], f->json);
    int status = v ? gb_remote_open(&remote, &f->remote, &err) : GB_EINVAL;
    if (!status) status = v->run(remote, args, &err);
    gb_remote_close(remote);
    return status ? gb_remote_failed(status, &err) : GB_EXIT_OK;
}

const gb_command gb_command_policy = {
    .name = "policy", .arguments = "check FILE | list | load FILE | activate VERSION|NAME|builtin", .summary = "check a policy; see and replace those of a running server",
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(policy_flags), .max_words = 2, .run = run,
};
