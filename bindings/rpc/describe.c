#include "bindings/rpc/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/params.h"
#include "bindings/rpc/stream.h"
#include "bindings/rpc/subscribe.h"
#include "core/flow/view.h"

/* --- types in words --- */

static void range_of(const gb_rpc_field *f, char *out, size_t room)
{
    bool any = f->low == 0 && f->high == 0;
    if (f->type == GB_RPC_INT && !any && f->high == INT64_MAX) snprintf(out, room, " of at least %lld", (long long)f->low);
    else if (f->type == GB_RPC_INT && !any) snprintf(out, room, " %lld..%lld", (long long)f->low, (long long)f->high);
    else if (f->type == GB_RPC_FLOAT && !any)
        snprintf(out, room, " %c%lld, %lld]", f->above_low ? '(' : '[', (long long)f->low, (long long)f->high);
    else if ((f->type == GB_RPC_STRING || f->type == GB_RPC_TEXT) && !any)
        snprintf(out, room, " of %lld..%lld bytes", (long long)f->low, (long long)f->high);
}

void gb_rpc_describe_type(const gb_rpc_field *f, char *out)
{
    static const char *const names[] = {"bool", "int", "float", "string", "text", "bin", "map", "matrix", "any"};
    char range[64] = "", one[96];
    range_of(f, range, sizeof range);
    snprintf(one, sizeof one, "%s%s", names[f->type], range);
    switch (f->shape) {
    case GB_RPC_ONE: snprintf(out, GB_RPC_TYPE_BYTES, "%s", one); break;
    case GB_RPC_LIST: snprintf(out, GB_RPC_TYPE_BYTES, "[%s]", one); break;
    case GB_RPC_ONE_OR_LIST: snprintf(out, GB_RPC_TYPE_BYTES, "%s or [%s]", one, names[f->type]); break;
    case GB_RPC_BY_NAME: snprintf(out, GB_RPC_TYPE_BYTES, "{name: %s}", one); break;
    }
}

/* --- JSON --- */

static json_t *fields_json(const gb_rpc_field *fields, bool are_params)
{
    json_t *map = json_object();
    for (const gb_rpc_field *f = fields; f->name; f++) {
        char type[GB_RPC_TYPE_BYTES];
        gb_rpc_describe_type(f, type);
        json_t *field = json_pack("{s:s, s:s}", "type", type, "doc", f->doc);
        if (are_params && f->required) json_object_set_new(field, "required", json_true());
        if (!are_params && f->optional) json_object_set_new(field, "optional", json_true());
        if (f->most) json_object_set_new(field, "most", json_integer(f->most));
        if (f->fields) json_object_set_new(field, "fields", fields_json(f->fields, are_params));
        json_object_set_new(map, f->name, field);
    }
    return map;
}

static json_t *methods_json(void)
{
    json_t *methods = json_object();
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++)
            json_object_set_new(methods, m->name,
                                json_pack("{s:s, s:i, s:b, s:b, s:o, s:o}", "doc", m->doc, "since", (int)m->since, "hello",
                                          m->right != GB_RPC_NEEDS_NOTHING, "admin", m->right == GB_RPC_NEEDS_ADMIN, "params",
                                          fields_json(m->params, true), "result", fields_json(m->result, false)));
    return methods;
}

static json_t *notifications_json(void)
{
    json_t *events = json_object();
    for (const gb_rpc_notification *n = gb_rpc_notifications; n->name; n++)
        json_object_set_new(events, n->name, json_pack("{s:s, s:o}", "doc", n->doc, "params", fields_json(n->fields, false)));
    return events;
}

static json_t *errors_json(void)
{
    json_t *errors = json_object();
#define X(name, value, when) json_object_set_new(errors, #name, json_pack("{s:i, s:s}", "code", value, "doc", when));
    GB_RPC_ERRORS(X)
#undef X
    return errors;
}

/* X(name, value, meaning): the limits a client can meet. */
#define LIMITS(X) \
    X("max_message", GB_RPC_MESSAGE_MAX, "bytes of one message, in either direction") \
    X("max_depth", GB_RPC_DEPTH_MAX, "nested arrays and maps") \
    X("max_values", GB_RPC_VALUES_MAX, "values in one message") \
    X("max_calls", GB_RPC_INFLIGHT_MAX, "unanswered calls of a connection; the next is OVERLOADED") \
    X("max_streams", GB_RPC_STREAMS_MAX, "live requests of a connection") \
    X("max_subscriptions", GB_RPC_SUBSCRIPTIONS_MAX, "subscriptions of a connection") \
    X("max_connections", GB_RPC_CONNECTIONS_MAX, "connections of a server") \
    X("max_policy", GB_LUA_SOURCE_MAX, "bytes of an uploaded policy") \
    X("window", GB_RPC_WINDOW, "token events without `ack`, unless generate says otherwise") \
    X("stream_bytes", GB_RPC_STREAM_BYTES, "text held for a stream without credit before its 30 s begin") \
    X("backlog", GB_RPC_BACKLOG_BYTES, "events held for a connection; a stream that adds more ends with SLOW_READER") \
    X("whole_bytes", GB_RPC_WHOLE_BYTES, "results collected for the whole (`stream = false`) calls of a connection")

static json_t *limits_json(void)
{
    json_t *limits = json_object();
#define X(name, value, meaning) json_object_set_new(limits, name, json_integer(value));
    LIMITS(X)
#undef X
    return limits;
}

static json_t *view_field_json(const gb_field *field)
{
    bool is_column = field->type == GB_FIELD_COLUMN;
    json_t *object = json_pack("{s:s, s:s, s:s, s:b}", "type", is_column ? "column" : "number", "unit", field->unit, "doc", field->meaning,
                               "read_only", !field->written);
    if (is_column) json_object_set_new(object, "rows", json_string(field->rows));
    if (is_column) json_object_set_new(object, "index", json_string(field->index));
    return object;
}

/* What policies see: from the same table as their views. */
static json_t *policy_views_json(void)
{
    json_t *views = json_object();
    for (int v = 0; v < GB_VIEWS; v++) {
        json_t *fields = json_object();
        for (uint32_t i = 0; i < gb_views[v].n_fields; i++)
            if (!gb_views[v].fields[i].hidden) json_object_set_new(fields, gb_views[v].fields[i].name, view_field_json(&gb_views[v].fields[i]));
        json_object_set_new(views, gb_views[v].name, json_pack("{s:s, s:o}", "doc", gb_views[v].about, "fields", fields));
    }
    return views;
}

json_t *gb_rpc_describe(void)
{
    return json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:{s:s}}", "api_level", GB_RPC_API_LEVEL, "api_compatible",
                     GB_RPC_API_COMPATIBLE, "methods", methods_json(), "events", notifications_json(), "errors", errors_json(),
                     "limits", limits_json(), "policy_views", policy_views_json(), "ext_types", "1",
                     "matrix: u8 dtype (0 u32, 1 u64, 2 f32, 3 f64), u8 ndim, u16 0, u32 dims[ndim], data; little-endian");
}

char *gb_rpc_api_json(void)
{
    json_t *tree = gb_rpc_describe();
    char *text = json_dumps(tree, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    json_decref(tree);
    return text;
}

/* --- Markdown --- */

static const char intro[] =
    "# msgpack-RPC\n"
    "\n"
    "This file is made from the method table (`gimbal api-info --markdown`); a test compares the two.\n"
    "\n"
    "A server listens on a Unix socket (`--socket PATH`, mode 0600) and, when asked, on TCP (`--rpc-port`). Messages follow\n"
    "the msgpack-RPC specification, so any client of it can call: request `[0, msgid, method, [map]]`, response\n"
    "`[1, msgid, error, result]`, notification `[2, method, [map]]`. Parameters are one map by name and results are maps; `[]`\n"
    "stands for an empty map. Clients for C, Lua and Python are one file each in `bindings/clients`.\n"
    "\n"
    "## Rules\n"
    "\n"
    "- Maps may gain keys; codes, names and meanings stay. A parameter that is `nil` is absent, an absent result is left out.\n"
    "  Integers are accepted for floats. Times end in `_ms`.\n"
    "- Names of parameters that the server does not know are ignored, so that newer clients work with older servers. A name\n"
    "  one or two letters beside a known one, or one that belongs into another map (`max_tokens` outside `sampling`), is\n"
    "  refused with INVALID_PARAMS.\n"
    "- `hello` comes first, within 5 s; without it only `ping`, `api_info` and `hello` answer. On the Unix socket everyone is\n"
    "  admin. Over TCP `hello` needs the API key as `auth` where one is configured, and the admin token makes the connection\n"
    "  an admin's.\n"
    "- The response to `generate` is sent before its first event; token events carry `seq` 0, 1, 2 ... without a gap; exactly\n"
    "  one of `done` and `failed` ends a stream. Responses may come in any order. A msgid may be used again once it is\n"
    "  answered, not before.\n"
    "- Closing a connection aborts its requests, unless they were made with `detach = true`.\n"
    "- Credit: at most `window` token events are unacknowledged. What is generated meanwhile is joined into the next event,\n"
    "  which `ack` lets go. A client that never acknowledges sets `window = 0`.\n"
    "- A stream that holds 256 KiB, or has ended and holds anything, fails with SLOW_READER after 30 s without credit. A\n"
    "  stream that adds to more than 1 MiB of unread events fails with SLOW_READER at once. Calls are not read while more than\n"
    "  1 MiB waits for the reader.\n"
    "- A malformed message, or a msgid in use, is answered with `error_event`, and the connection is closed.\n"
    "- Any method may be sent as a notification, which is not answered; its error comes as `error_event`. `ack` is meant to be\n"
    "  one; `generate` is refused.\n"
    "\n";

static void print_rows(FILE *out, const gb_rpc_field *fields, const char *prefix, bool are_params)
{
    for (const gb_rpc_field *f = fields; f->name; f++) {
        char type[GB_RPC_TYPE_BYTES], inner[256];
        gb_rpc_describe_type(f, type);
        const char *mark = are_params && f->required ? " (required)" : !are_params && f->optional ? " (may be absent)" : "";
        fprintf(out, "| `%s%s` | %s%s | %s |\n", prefix, f->name, type, mark, f->doc);
        const char *each = f->shape == GB_RPC_LIST ? "[]" : f->shape == GB_RPC_BY_NAME ? ".NAME" : "";
        snprintf(inner, sizeof inner, "%s%s%s.", prefix, f->name, each);
        if (f->fields) print_rows(out, f->fields, inner, are_params);
    }
}

static void print_fields(FILE *out, const char *title, const gb_rpc_field *fields, bool are_params)
{
    if (!fields->name) return;
    fprintf(out, "| %s | type | |\n|---|---|---|\n", title);
    print_rows(out, fields, "", are_params);
    fputc('\n', out);
}

static void print_method(FILE *out, const gb_rpc_method *m)
{
    static const char *const rights[] = {" *(before hello too)*", "", " *(admin)*"};
    fprintf(out, "### %s%s\n\n%s\n\n", m->name, rights[m->right], m->doc);
    print_fields(out, "parameter", m->params, true);
    print_fields(out, "result", m->result, false);
}

static void print_document(FILE *out)
{
    fputs(intro, out);
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++) {
        fprintf(out, "## %s\n\n", t->title);
        for (const gb_rpc_method *m = t->methods; m->name; m++) print_method(out, m);
    }
    fputs("## Notifications of the server\n\n", out);
    for (const gb_rpc_notification *n = gb_rpc_notifications; n->name; n++) {
        fprintf(out, "### %s\n\n%s\n\n", n->name, n->doc);
        print_fields(out, "field", n->fields, false);
    }
    fputs("## Errors\n\nAn error is a map `{code, name, message, data?}`; `data.path` names the parameter.\n\n"
          "| code | name | when |\n|---|---|---|\n", out);
#define X(name, value, when) fprintf(out, "| %d | %s | %s |\n", value, #name, when);
    GB_RPC_ERRORS(X)
#undef X
    fputs("\n## Limits\n\n| name | value | |\n|---|---|---|\n", out);
#define X(name, value, meaning) fprintf(out, "| %s | %d | %s |\n", name, value, meaning);
    LIMITS(X)
#undef X
    fputs("\n## Extension types\n\n"
          "Ext 1 is a matrix: u8 dtype (0 u32, 1 u64, 2 f32, 3 f64), u8 ndim, u16 0, u32 dims[ndim], then the data, row by\n"
          "row; little-endian.\n", out);
}

char *gb_rpc_api_markdown(void)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    print_document(out);
    fclose(out);
    return text;
}
