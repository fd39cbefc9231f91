#include "bindings/cli/policy_replay.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/cli/command.h"
#include "bindings/cli/policy_check.h"
#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_host.h"

/* An answer of policy_log holds the snapshot as text in text. */
enum { TEXT_MAX = 2 * GB_LUA_SNAPSHOT_BYTES_MAX };

typedef struct replay {
    const char *path;
    gb_lua_snapshot *snapshot;
    gb_lua_budgets budgets;
    gb_error refusal;             /* of the file; "" when it was opened */
    gb_error params;              /* the first param of the snapshot that the script does not take */
    char sha256[GB_SHA256_HEX + 1];
    gb_lua_trial trial;
} replay;

/* ---- the snapshot ---- */

static int read_text(char **text, size_t *bytes, const char *path, gb_error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!file) return gb_fail(err, GB_ENOTFOUND, "snapshot %s cannot be opened: %s; gimbal policy log --fault SEQ --output FILE writes one", path, strerror(errno));
    *text = malloc(TEXT_MAX);
    *bytes = *text ? fread(*text, 1, TEXT_MAX, file) : 0;
    int failed = ferror(file) ? errno : 0;
    if (file != stdin) fclose(file);
    if (!*text) return gb_fail(err, GB_ENOMEM, "out of memory for snapshot %s", path);
    return failed ? gb_fail(err, GB_EIO, "snapshot %s: %s", path, strerror(failed)) : GB_OK;
}

static int read_snapshot(gb_lua_snapshot **out, const char *path, gb_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int status = read_text(&text, &bytes, path, err);
    if (!status) status = gb_lua_snapshot_read(out, path, text, bytes, err);
    free(text);
    return status;
}

/* ---- deciding it again ---- */

static int open_desk(gb_lua_desk **desk, replay *r, uint32_t engines)
{
    gb_lua_text text;
    int status = gb_lua_file_read(&text, r->path, "a policy", GB_LUA_SOURCE_MAX, &r->refusal);
    if (status) return status;
    status = gb_lua_desk_open(desk, r->path, text.data, text.bytes, engines, &r->budgets, &r->refusal);
    gb_lua_text_free(&text);
    return status;
}

static void run_replay(replay *r)
{
    gb_lua_desk *desk;
    const gb_lua_snapshot *s = r->snapshot;
    uint32_t engines = s->hook == GB_HOOK_SELECT ? s->tables.engines.n : s->hook == GB_HOOK_ORDER ? s->tables.queue.engine + 1 : s->rearrangement.links.sources;
    if (open_desk(&desk, r, engines)) return;
    memcpy(r->sha256, gb_lua_desk_sha256(desk), sizeof r->sha256);
    gb_lua_desk_restore(desk, s, &r->params);
    if (gb_lua_desk_has(desk, s->hook)) gb_lua_desk_try(desk, r->snapshot, &r->trial);
    else gb_fail(&r->refusal, GB_EINVAL, "%s has no %s, which the snapshot is of", r->path, gb_hook_name(s->hook));
    gb_lua_desk_close(desk);
}

static bool is_good(const replay *r) { return !r->refusal.text[0] && r->trial.answer != GB_POLICY_FAULT; }

/* ":12: why" of "mine.lua:12: why"; a message without a line is compared from behind its file. */
static const char *behind_file(const char *message)
{
    for (const char *colon = message; (colon = strchr(colon, ':')); colon++) {
        if (isdigit((unsigned char)colon[1]) || colon[1] == ' ') return colon;
    }
    return message;
}

/* The file may have another name here; the calls that led there are not compared. */
static bool is_the_recorded_fault(const replay *r)
{
    const gb_lua_fault *recorded = &r->snapshot->fault;
    const char *a = behind_file(recorded->message), *b = behind_file(r->trial.fault);
    size_t n = strcspn(a, "\n");
    return r->trial.answer == GB_POLICY_FAULT && recorded->kind == r->trial.fault_kind && strcspn(b, "\n") == n && memcmp(a, b, n) == 0;
}

static bool is_another_text(const replay *r)
{
    const char *recorded = r->snapshot->fault.sha256;
    return recorded[0] && r->sha256[0] && strcmp(recorded, r->sha256) != 0;
}

/* ---- reporting ---- */

static void print_note(const replay *r)
{
    const gb_lua_snapshot *s = r->snapshot;
    if (r->params.text[0]) printf("note: %s\n", r->params.text);
    if (s->cut) printf("note: the queue was longer; the snapshot has its first %u requests\n", s->tables.queue.n);
    if (is_another_text(r)) printf("note: %s differs from the script that failed (sha256 %.12s, now %.12s)\n", r->path, s->fault.sha256, r->sha256);
    else if (is_good(r) && s->fault.message[0])
        printf("note: it is the script that failed; what it kept in its locals, or a timer's grain, is not in a snapshot\n");
}

static const char *verdict(const replay *r)
{
    if (r->refusal.text[0]) return "not fit to serve";
    if (r->trial.answer != GB_POLICY_FAULT) return "decides it";
    if (!r->snapshot->fault.message[0]) return "fails";
    return is_the_recorded_fault(r) ? "fails as recorded" : "fails in another way";
}

static void print_tables(const gb_lua_snapshot *s)
{
    const char *hook = gb_hook_name(s->hook);
    double at = (double)s->now / 1e9;
    if (s->hook == GB_HOOK_SELECT) printf("%s, %u engines, at %.6f s\n", hook, s->tables.engines.n, at);
    else if (s->hook == GB_HOOK_ORDER) printf("%s, %u waiting, at %.6f s\n", hook, s->tables.queue.n, at);
    else printf("%s, %u layers of %u experts on %u ranks, at %.6f s\n", hook, s->solver.layers, s->solver.experts, s->solver.ranks, at);
}

static void print_text(const replay *r)
{
    const gb_lua_snapshot *s = r->snapshot;
    print_tables(s);
    if (s->fault.message[0])
        printf("recorded: %s v%u, decision %llu, %s: %s\n", s->fault.name, s->fault.version, (unsigned long long)s->fault.decision,
               gb_lua_fault_kind_name(s->fault.kind), s->fault.message);
    if (r->refusal.text[0]) printf("now: refused: %s\n", r->refusal.text);
    else if (r->trial.answer == GB_POLICY_FAULT) printf("now: %s: %s\n", gb_lua_fault_kind_name(r->trial.fault_kind), r->trial.fault);
    else if (r->trial.answer == GB_POLICY_NIL) printf("now: nil, the built-in decides\n");
    else if (s->hook == GB_HOOK_SELECT) printf("now: engine %d\n", r->trial.answer);
    else if (s->hook == GB_HOOK_ORDER) printf("now: %u keys\n", s->tables.queue.n);
    else printf("now: all %u layers are decided\n", s->solver.layers);
    print_note(r);
    printf("%s: %s\n", r->path, verdict(r));
}

static json_t *keys_json(const gb_queue_table *queue)
{
    json_t *keys = json_array();
    for (uint32_t i = 0; i < queue->n; i++) json_array_append_new(keys, json_real(queue->key[i]));
    return keys;
}

static void print_json(const replay *r)
{
    const gb_lua_snapshot *s = r->snapshot;
    bool tried = !r->refusal.text[0], failed = tried && r->trial.answer == GB_POLICY_FAULT;
    json_t *root = json_pack("{s:s, s:b, s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "file", r->path, "ok", is_good(r), "hook", gb_hook_name(s->hook),
                             "refusal", r->refusal.text, "kind", failed ? gb_lua_fault_kind_name(r->trial.fault_kind) : "", "fault",
                             failed ? r->trial.fault : "", "recorded", s->fault.message, "verdict", verdict(r), "same_source", !is_another_text(r));
    if (tried && r->trial.answer >= 0 && s->hook == GB_HOOK_SELECT) json_object_set_new(root, "engine", json_integer(r->trial.answer));
    if (tried && r->trial.answer >= 0 && s->hook == GB_HOOK_ORDER) json_object_set_new(root, "keys", keys_json(&s->tables.queue));
    json_dumpf(root, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    json_decref(root);
}

int gb_policy_replay(const char *snapshot, const char *path, bool json)
{
    static replay r;
    gb_error err = {{0}};
    r = (replay){.path = path};
    int status = gb_check_budgets(&r.budgets, &err);
    if (!status) status = read_snapshot(&r.snapshot, snapshot, &err);
    if (status) return gb_command_failed(status, &err);
    run_replay(&r);
    if (json) print_json(&r);
    else print_text(&r);
    gb_lua_snapshot_free(r.snapshot);
    return is_good(&r) ? GB_EXIT_OK : GB_EXIT_FAILED;
}
