#include "bindings/rpc/describe.h"

#include <stdlib.h>

#include "bindings/rpc/stream.h"
#include "core/flow/view.h"
#include "tests/check.h"
#include "tests/rpc/fixture.h"

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    long n = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)n + 1);
    if (fread(text, 1, (size_t)n, file) != (size_t)n) text[0] = '\0';
    fclose(file);
    return text;
}

static void docs_rpc_md_is_what_the_method_table_says(void)
{
    char *file = read_file(check_path("docs/rpc.md")), *made = gb_rpc_api_markdown();
    if (!file || strcmp(file, made) != 0)
        check_fail(__FILE__, __LINE__, "docs/rpc.md is stale: gimbal api-info --markdown > docs/rpc.md");
    free(file);
    free(made);
}

static void api_info_over_the_wire_is_the_offline_json(void)
{
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_open(&p, &f, true);
    json_t *wire = peer_call(&p, "api_info", "{}");
    char *text = gb_rpc_api_json();
    json_t *offline = json_loads(text, 0, NULL);
    CHECK(json_equal(wire, offline));
    json_decref(wire);
    json_decref(offline);
    free(text);
    peer_close(&p);
    fixture_close(&f);
}

static size_t count_fields(const gb_rpc_field *fields)
{
    size_t n = 0;
    while (fields[n].name) n++;
    return n;
}

static void api_info_has_every_method_with_every_parameter(void)
{
    json_t *tree = gb_rpc_describe();
    const json_t *methods = json_object_get(tree, "methods");
    size_t n = 0;
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++, n++) {
            const json_t *method = json_object_get(methods, m->name);
            CHECK_EQ(json_object_size(json_object_get(method, "params")), count_fields(m->params));
            CHECK_EQ(json_object_size(json_object_get(method, "result")), count_fields(m->result));
            CHECK_EQ(json_is_true(json_object_get(method, "admin")), m->right == GB_RPC_NEEDS_ADMIN);
            CHECK_EQ(json_int(method, "since"), 1);
            for (const gb_rpc_field *f = m->params; f->name; f++) CHECK(f - m->params < 64);    /* names seen are kept in 64 bits */
        }
    CHECK_EQ(json_object_size(methods), n);
    CHECK_EQ(json_object_size(json_object_get(tree, "errors")), 19);
    CHECK_EQ(json_int(json_object_get(json_object_get(tree, "errors"), "SLOW_READER"), "code"), 1010);
    json_decref(tree);
}

static void the_promised_methods_exist(void)
{
    static const char *const names[] = {
        "hello", "api_info", "ping", "model_info", "server_stats", "config_get", "tokenize", "detokenize", "apply_template", "generate", "ack", "abort",
        "request_list", "engine_list", "expert_matrix", "placement_get", "policy_list", "policy_get", "policy_load", "policy_activate", "subscribe",
        "unsubscribe", "drain", "shutdown",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) CHECK(gb_rpc_method_find(names[i], strlen(names[i])) != NULL);
}

static void every_field_has_a_sentence(void)
{
    for (const gb_rpc_theme *t = gb_rpc_themes; t->title; t++)
        for (const gb_rpc_method *m = t->methods; m->name; m++) {
            CHECK(m->doc && m->doc[0]);
            for (const gb_rpc_field *f = m->params; f->name; f++) CHECK(f->doc && f->doc[0]);
            for (const gb_rpc_field *f = m->result; f->name; f++) CHECK(f->doc && f->doc[0]);
        }
}

static void types_are_said_with_their_range(void)
{
    static const struct { gb_rpc_field field; const char *type; } cases[] = {
        {{.type = GB_RPC_INT, .low = 1, .high = 5}, "int 1..5"},
        {{.type = GB_RPC_INT}, "int"},
        {{.type = GB_RPC_INT, .low = 1, .high = INT64_MAX}, "int of at least 1"},
        {{.type = GB_RPC_FLOAT, .low = 0, .high = 1, .above_low = true}, "float (0, 1]"},
        {{.type = GB_RPC_TEXT, .low = 1, .high = 256, .shape = GB_RPC_ONE_OR_LIST}, "text of 1..256 bytes or [text]"},
        {{.type = GB_RPC_MAP, .shape = GB_RPC_LIST}, "[map]"},
        {{.type = GB_RPC_INT, .shape = GB_RPC_BY_NAME}, "{name: int}"},
    };
    char type[GB_RPC_TYPE_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gb_rpc_describe_type(&cases[i].field, type);
        CHECK_STR(type, cases[i].type);
    }
}

static void api_info_has_every_column_that_policies_see(void)
{
    json_t *tree = gb_rpc_describe();
    const json_t *views = json_object_get(tree, "policy_views");
    CHECK_EQ(json_object_size(views), GB_VIEWS);
    for (int v = 0; v < GB_VIEWS; v++) {
        const json_t *fields = json_object_get(json_object_get(views, gb_views[v].name), "fields");
        size_t n = 0;
        for (uint32_t i = 0; i < gb_views[v].n_fields; i++) {
            const gb_field *field = &gb_views[v].fields[i];
            const json_t *said = json_object_get(fields, field->name);
            CHECK_EQ(said == NULL, field->hidden);
            if (!said) continue;
            CHECK_STR(json_text(said, "unit"), field->unit);
            CHECK_EQ(json_is_true(json_object_get(said, "read_only")), !field->written);
            CHECK_EQ(json_object_get(said, "rows") != NULL, field->type == GB_FIELD_COLUMN);
            n++;
        }
        CHECK_EQ(json_object_size(fields), n);
    }
    json_decref(tree);
}

TESTS(TEST(api_info_has_every_column_that_policies_see), TEST(docs_rpc_md_is_what_the_method_table_says), TEST(api_info_over_the_wire_is_the_offline_json),
      TEST(api_info_has_every_method_with_every_parameter), TEST(the_promised_methods_exist), TEST(every_field_has_a_sentence),
      TEST(types_are_said_with_their_range))
