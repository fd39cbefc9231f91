/* vectors.json against the service: calls as JSON and as bytes with their responses, and bytes that are refused. The clients'
   codecs are tested with the same file (client_python.py, client_lua.lua). */
#include <stdlib.h>

#include "tests/check.h"
#include "tests/rpc/fixture.h"

static json_t *vectors(void)
{
    json_error_t error;
    json_t *tree = json_load_file(check_path("tests/rpc/vectors.json"), 0, &error);
    if (!tree) check_fail(__FILE__, __LINE__, "vectors.json:%d: %s", error.line, error.text);
    return tree;
}

static size_t unhex(const char *hex, char *out, size_t room)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n && i < room; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (char)strtoul(two, NULL, 16);
    }
    return n;
}

/* Times differ between runs: their values are taken out of both. */
static void hide(json_t *value, const json_t *keys)
{
    size_t i;
    json_t *key, *inner;
    const char *name;
    if (json_is_array(value)) json_array_foreach(value, i, inner) hide(inner, keys);
    if (!json_is_object(value)) return;
    json_array_foreach(keys, i, key)
        if (json_object_get(value, json_string_value(key))) json_object_set_new(value, json_string_value(key), json_null());
    json_object_foreach(value, name, inner) hide(inner, keys);
}

static void try_call(const json_t *vector, const json_t *changing)
{
    char bytes[4096];
    size_t n = unhex(json_text(vector, "request_hex"), bytes, sizeof bytes), n_packed;
    const json_t *request = json_object_get(vector, "request");
    char *json = json_dumps(request, 0), *packed = peer_pack(json, &n_packed);
    CHECK(n == n_packed && memcmp(bytes, packed, n) == 0);
    fixture f;
    peer p;
    fixture_open(&f, NULL);
    peer_hello(&p, &f);
    peer_send(&p, bytes, n);
    fixture_run(&f);
    peer_receive(&p);
    json_t *response = peer_take_response(&p, (uint32_t)json_integer_value(json_array_get(request, 1)));
    json_t *expected = json_deep_copy(json_object_get(vector, "response"));
    hide(response, changing);
    hide(expected, changing);
    if (!json_equal(response, expected)) {
        char *said = json_dumps(response, 0);
        check_fail(__FILE__, __LINE__, "%s: %s", json_text(vector, "name"), said);
        free(said);
    }
    json_decref(response);
    json_decref(expected);
    free(json);
    free(packed);
    peer_close(&p);
    fixture_close(&f);
}

static void calls_are_answered_as_the_vectors_say(void)
{
    json_t *tree = vectors(), *vector;
    const json_t *calls = json_object_get(tree, "calls");
    size_t i;
    CHECK(json_array_size(calls) >= 25);
    json_array_foreach(calls, i, vector) try_call(vector, json_object_get(tree, "changing"));
    json_decref(tree);
}

static void bytes_that_are_no_calls_end_the_connection_with_the_code(void)
{
    json_t *tree = vectors(), *vector;
    const json_t *refused = json_object_get(tree, "refused");
    size_t i;
    CHECK(json_array_size(refused) >= 10);
    json_array_foreach(refused, i, vector)
    {
        char bytes[4096];
        size_t n = unhex(json_text(vector, "hex"), bytes, sizeof bytes);
        fixture f;
        peer p;
        fixture_open(&f, NULL);
        peer_hello(&p, &f);
        peer_send(&p, bytes, n);
        CHECK(gb_rpc_wants_close(p.conn));
        json_t *event = peer_take(&p, "error_event");
        CHECK_EQ(json_int(event, "code"), json_int(vector, "code"));
        json_decref(event);
        peer_close(&p);
        fixture_close(&f);
    }
    json_decref(tree);
}

TESTS(TEST(calls_are_answered_as_the_vectors_say), TEST(bytes_that_are_no_calls_end_the_connection_with_the_code))
