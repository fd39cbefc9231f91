/* Loading policies, and changing which decide and how. */
#include "bindings/cli/policy_verbs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_host.h"

/* What every change may say: for which hook, and what the caller believes is true. */
static json_t *change_params(const gb_args *args)
{
    const gb_policy_flags *f = args->values;
    json_t *params = json_object();
    if (params && *f->hook) json_object_set_new(params, "hook", json_string(f->hook));
    if (params && gb_args_given(args, "expected_generation"))
        json_object_set_new(params, "expected_generation", json_integer(f->expected_generation));
    return params;
}

/* Makes the change and shows who decides then. */
static int change(gb_remote *remote, const gb_args *args, const char *method, json_t *params, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *result = NULL;
    int status = gb_remote_call(remote, method, params, &result, err);
    if (!status && f->json) gb_policy_print_json(result);
    else if (!status) status = gb_policy_print_seats(remote, err);
    json_decref(result);
    return status;
}

/* ---- activate, rollback, builtin ---- */

static int activate_version(gb_remote *remote, const gb_args *args, json_int_t version, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *params = change_params(args);
    if (params) json_object_set_new(params, "version", json_integer(version));
    if (params && f->force) json_object_set_new(params, "force", json_true());
    return change(remote, args, "policy_activate", params, err);
}

int gb_policy_activate(gb_remote *remote, const gb_args *args, gb_error *err)
{
    json_int_t version;
    if (strcmp(args->words[1], "builtin") == 0) return gb_policy_builtin(remote, args, err);
    int status = gb_policy_find_version(remote, args->words[1], &version, err);
    return status ? status : activate_version(remote, args, version, err);
}

int gb_policy_rollback(gb_remote *remote, const gb_args *args, gb_error *err)
{
    return change(remote, args, "policy_rollback", change_params(args), err);
}

int gb_policy_builtin(gb_remote *remote, const gb_args *args, gb_error *err)
{
    return change(remote, args, "policy_builtin", change_params(args), err);
}

/* ---- load ---- */

/* Its file's name without directory and .lua, for a script that names itself otherwise or not at all. */
static json_t *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    return json_stringn(base, dot && dot > base ? (size_t)(dot - base) : strlen(base));
}

static int send_source(gb_remote *remote, const gb_args *args, json_t **result, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    const char *path = args->words[1];
    gb_lua_text source;
    if (gb_lua_file_read(&source, path, "a policy", GB_LUA_SOURCE_MAX, err)) return GB_EINVAL;
    json_t *text = json_stringn(source.data, source.bytes);
    gb_lua_text_free(&source);
    if (!text) return gb_fail(err, GB_EINVAL, "%s is not valid UTF-8; save it as UTF-8", path);
    json_t *params = json_pack("{s:o, s:o}", "name", *f->name ? json_string(f->name) : name_of_file(path), "source", text);
    if (params && *f->hook) json_object_set_new(params, "hook", json_string(f->hook));
    return gb_remote_call(remote, "policy_load", params, result, err);
}

static void print_loaded(const json_t *loaded, json_int_t version)
{
    size_t i;
    json_t *warning;
    bool checked = json_is_true(json_object_get(loaded, "checked"));
    printf("loaded as version %lld (%s, sha256 %.12s)%s\n", (long long)version, gb_policy_text(loaded, "name"), gb_policy_text(loaded, "sha256"),
           checked ? "" : ", probed but not checked");
    json_array_foreach(json_object_get(loaded, "warnings"), i, warning) printf("warning: %s\n", json_string_value(warning));
}

int gb_policy_load(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *loaded = NULL;
    int status = send_source(remote, args, &loaded, err);
    json_int_t version = gb_policy_int(loaded, "version");
    if (!status && f->json && !f->activate) gb_policy_print_json(loaded);
    else if (!status && !f->json)
        print_loaded(loaded, version);
    json_decref(loaded);
    return status || !f->activate ? status : activate_version(remote, args, version, err);
}

/* ---- set ---- */

/* The version that decides, has the param and is meant by --hook; *old its value. */
static int find_param(gb_remote *remote, const gb_args *args, const char *name, json_int_t *version, json_t **old, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    json_t *result = NULL, *seat;
    json_int_t deciding = 0;
    size_t i;
    int status = gb_remote_call(remote, "policy_status", json_object(), &result, err);
    json_array_foreach(json_object_get(result, "hooks"), i, seat) {
        json_int_t v = gb_policy_int(seat, "version");
        json_t *value = json_object_get(json_object_get(seat, "params"), name);
        if (*f->hook && strcmp(f->hook, gb_policy_text(seat, "hook")) != 0) continue;
        if (v) deciding = v;
        if (!value || v == *version) continue;
        if (*version)
            status = gb_fail(err, GB_EINVAL, "versions %lld and %lld both decide and have the param %s; say which with --policy or --hook",
                             (long long)*version, (long long)v, name);
        *version = v;
        if (!*old) *old = json_incref(value);
    }
    json_decref(result);
    if (status || *version) return status;
    *version = deciding;    /* which has no such param: the server says what it has */
    return deciding ? GB_OK : gb_fail(err, GB_EABORTED, "no script decides that; name a loaded policy with --policy");
}

static int find_param_of(gb_remote *remote, const char *policy, const char *name, json_int_t *version, json_t **old, gb_error *err)
{
    json_t *result = NULL;
    int status = gb_policy_find_version(remote, policy, version, err);
    if (!status) status = gb_remote_call(remote, "policy_get", json_pack("{s:I}", "version", *version), &result, err);
    *old = json_incref(json_object_get(json_object_get(result, "params"), name));
    json_decref(result);
    return status;
}

/* The value in the param's own type; by its looks when that is not known. */
static int add_value(json_t *params, const json_t *old, const char *name, const char *text, gb_error *err)
{
    char *end;
    double number = strtod(text, &end);
    bool is_number = *text && !*end && isfinite(number), is_flag = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    if (json_is_number(old) && !is_number) return gb_fail(err, GB_EINVAL, "%s=%.80s: the param is a finite number", name, text);
    if (json_is_boolean(old) && !is_flag) return gb_fail(err, GB_EINVAL, "%s=%.80s: the param is true or false", name, text);
    if (is_number && !json_is_string(old)) json_object_set_new(params, "number", json_real(number));
    else if (is_flag && !json_is_string(old)) json_object_set_new(params, "flag", json_boolean(text[0] == 't'));
    else if (json_object_set_new(params, "text", json_string(text))) return gb_fail(err, GB_EINVAL, "%s: the value is not valid UTF-8", name);
    return GB_OK;
}

int gb_policy_set(gb_remote *remote, const gb_args *args, gb_error *err)
{
    const gb_policy_flags *f = args->values;
    const char *equals = strchr(args->words[1], '=');
    char name[GB_LUA_NAME_MAX + 1];
    json_int_t version = 0;
    json_t *old = NULL, *params = NULL;
    if (!equals || equals == args->words[1] || equals - args->words[1] > GB_LUA_NAME_MAX)
        return gb_fail(err, GB_EINVAL, "\"%.80s\": expected NAME=VALUE, a param of at most %d bytes and its new value", args->words[1], GB_LUA_NAME_MAX);
    snprintf(name, sizeof name, "%.*s", (int)(equals - args->words[1]), args->words[1]);
    int status = *f->policy ? find_param_of(remote, f->policy, name, &version, &old, err) : find_param(remote, args, name, &version, &old, err);
    if (!status) {
        params = change_params(args);
        json_object_del(params, "hook");
        json_object_set_new(params, "version", json_integer(version));
        json_object_set_new(params, "param", json_string(name));
        status = add_value(params, old, name, equals + 1, err);
    }
    json_decref(old);
    if (!status) return change(remote, args, "policy_set", params, err);
    json_decref(params);
    return status;
}
