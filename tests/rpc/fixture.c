#include "tests/rpc/fixture.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/json.h"
#include "bindings/rpc/method.h"
#include "core/base/assert.h"
#include "tests/check.h"

/* --- the model --- */

/* tokenizer.json of bytes: GPT-2's table gives every byte a printable character, in order of its own choice. */
static void add_byte(json_t *vocab, uint32_t byte)
{
    bool is_plain = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    uint32_t shifted = 0;
    for (uint32_t b = 0; b < byte; b++) shifted += !((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae);
    uint32_t code = is_plain ? byte : 256 + shifted;
    char text[3] = {(char)code, 0, 0};
    if (code >= 0x80) {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 0x3f));
    }
    json_object_set_new(vocab, text, json_integer(byte));
}

static const char tokenizer_json[] =
    "{'version': '1.0', 'normalizer': {'type': 'NFC'},"
    " 'added_tokens': [{'id': 256, 'content': '<|end|>', 'single_word': false, 'lstrip': false, 'rstrip': false,"
    "                   'normalized': false, 'special': true}],"
    " 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': ["
    "     {'type': 'Split', 'pattern': {'Regex': '\\\\p{L}+|\\\\p{N}|[^\\\\p{L}\\\\p{N}]+'}, 'behavior': 'Isolated', 'invert': false},"
    "     {'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': false, 'use_regex': false}]},"
    " 'decoder': {'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': false, 'use_regex': false},"
    " 'model': {'type': 'BPE', 'vocab': {}, 'merges': []}}";

static gb_tokenizer *new_tokenizer(void)
{
    char json[sizeof tokenizer_json];
    for (size_t i = 0; i < sizeof json; i++) json[i] = tokenizer_json[i] == '\'' ? '"' : tokenizer_json[i];
    json_t *tree = json_loads(json, 0, NULL);
    GB_ASSERT(tree);
    for (uint32_t b = 0; b < 256; b++) add_byte(json_object_get(json_object_get(tree, "model"), "vocab"), b);
    char *text = json_dumps(tree, 0);
    gb_tokenizer *tokenizer = NULL;
    gb_error err = {0};
    int status = gb_tokenizer_parse(&tokenizer, text, strlen(text), "tokenizer.json", FIXTURE_VOCAB, &err);
    if (status) printf("%s\n", err.text);
    GB_ASSERT(status == GB_OK);
    free(text);
    json_decref(tree);
    return tokenizer;
}

static const char *script_of(const gb_executor *executor)
{
    return ((const fixture *)((const char *)executor - offsetof(fixture, executor)))->script;
}

static gb_sampled next_token(const gb_work *work, const char *script)
{
    uint32_t at = work->n_tokens - work->n_prompt, length = (uint32_t)strlen(script);
    gb_sampled sampled = {.token = -1};
    if (!work->samples) return sampled;
    bool ends = at >= length && !(work->sampling->ignore_eos || work->n_banned > 0);
    sampled.token = ends ? FIXTURE_END : (unsigned char)script[at % length];
    if (work->sampling->logprobs < 0) return sampled;
    sampled.logprobs.chosen = -0.5f;
    sampled.logprobs.n = (uint32_t)work->sampling->logprobs;
    for (uint32_t i = 0; i < sampled.logprobs.n; i++) {
        sampled.logprobs.ids[i] = (int32_t)i;
        sampled.logprobs.values[i] = i == 0 ? -0.5f : -INFINITY;
    }
    return sampled;
}

static int run_script(gb_executor *executor, const gb_round *round, gb_result *result)
{
    gb_matrix_clear(&result->counts);
    memset(result->rank_tokens, 0, FIXTURE_RANKS * sizeof *result->rank_tokens);
    for (uint32_t e = 0; e < round->n_engines; e++) {
        const gb_batch *batch = &round->batches[e];
        for (uint32_t i = 0; i < batch->n_works; i++) result->sampled[e][i] = next_token(&batch->works[i], script_of(executor));
        for (uint32_t l = 0; l < FIXTURE_LAYERS; l++) gb_matrix_row(&result->counts, l, e)[l + e] += batch->n_tokens;
        result->rank_tokens[e] += (uint64_t)FIXTURE_LAYERS * batch->n_tokens;
    }
    result->elapsed = gb_ms(1);
    return GB_OK;
}

static void free_nothing(gb_executor *executor) { (void)executor; }

static const gb_executor_table executor_table = {.run = run_script, .free = free_nothing};

/* --- the instance --- */

static void open_server(fixture *f, const fixture_options *o)
{
    gb_instance *instance = &f->instance;
    gb_server_options options;
    gb_server_options_default(&options);
    options.engines = FIXTURE_ENGINES;
    options.ranks = FIXTURE_RANKS;
    options.moe_layers = FIXTURE_LAYERS;
    options.experts = FIXTURE_EXPERTS;
    options.vocab = FIXTURE_VOCAB;
    options.max_model_len = o->max_model_len ? o->max_model_len : 256;
    options.queue_capacity = o->queue_capacity ? o->queue_capacity : 64;
    options.max_num_seqs = options.queue_capacity;
    options.max_batched_tokens = options.queue_capacity > 512 ? options.queue_capacity : 512;
    options.blocks_per_engine = options.queue_capacity * (options.max_model_len / GB_BLOCK_TOKENS + 1);
    options.tokenizer = instance->tokenizer;
    options.n_end_ids = 1;
    options.end_ids[0] = FIXTURE_END;
    gb_round_limits limits = {
        .engines = options.engines, .ranks = options.ranks, .max_works = options.max_num_seqs,
        .max_tokens = options.max_batched_tokens, .moe_layers = options.moe_layers, .experts = options.experts,
    };
    gb_error err = {0};
    GB_ASSERT(gb_server_new(&instance->server, &options, &err) == GB_OK);
    GB_ASSERT(gb_round_init(&instance->round, &instance->arena, &limits) == GB_OK);
    GB_ASSERT(gb_result_init(&instance->result, &instance->arena, &limits) == GB_OK);
    f->executor.table = &executor_table;
    f->executor.info = (gb_executor_info){
        .backend = "script", .kernels = "none", .engines = limits.engines, .ranks = limits.ranks, .moe_layers = limits.moe_layers,
        .experts = limits.experts, .experts_per_token = 1, .vocab = FIXTURE_VOCAB, .max_positions = options.max_model_len,
        .blocks_per_engine = options.blocks_per_engine, .max_works = limits.max_works, .max_tokens = limits.max_tokens, .threads = 1,
    };
    instance->executor = &f->executor;
}

static void note_shutdown(void *self) { ((fixture *)self)->shutdown_called = true; }

void fixture_open(fixture *f, const fixture_options *options)
{
    static const fixture_options none;
    const fixture_options *o = options ? options : &none;
    gb_instance *instance = &f->instance;
    gb_error err = {0};
    *f = (fixture){.now = gb_seconds(1000), .script = o->script ? o->script : "The capital of France is Paris."};
    GB_ASSERT(gb_options_init(&f->options) == GB_OK);
    instance->options = &f->options;
    snprintf(instance->model_name, sizeof instance->model_name, "scripted");
    instance->config = (gb_model_config){
        .vocab = FIXTURE_VOCAB, .layers = FIXTURE_LAYERS, .moe_layers = FIXTURE_LAYERS, .experts = FIXTURE_EXPERTS,
        .experts_per_token = 1, .max_positions = 256,
    };
    gb_arena_init(&instance->arena);
    if (!o->no_tokenizer) instance->tokenizer = new_tokenizer();
    if (!o->no_template) GB_ASSERT(gb_lua_template_new(&instance->chat_template, "chatml", "", &err) == GB_OK);
    open_server(f, o);
    GB_ASSERT(gb_lua_host_new(&instance->policies, instance->server, 1, &err) == GB_OK);
    gb_rpc_service_options service = {.api_key = o->api_key, .admin_token = o->admin_token, .hello_within = gb_seconds(5),
                                      .slow_reader = gb_seconds(30), .checker = o->checker, .checks_loads = o->checker != NULL, .shutdown = note_shutdown, .self = f};
    GB_ASSERT(gb_rpc_service_new(&f->service, instance, &service, &err) == GB_OK);
}

void fixture_close(fixture *f)
{
    gb_instance *instance = &f->instance;
    gb_rpc_service_free(f->service);
    gb_lua_host_free(instance->policies);
    gb_server_free(instance->server);
    if (instance->chat_template) gb_lua_template_free(instance->chat_template);
    if (instance->tokenizer) gb_tokenizer_free(instance->tokenizer);
    gb_arena_deinit(&instance->arena);
    gb_options_deinit(&f->options);
}

/* --- time --- */

static void deliver(fixture *f)
{
    gb_event event;
    while (gb_server_poll_event(f->instance.server, &event)) gb_rpc_event(f->service, &event);
}

static void tick(fixture *f)
{
    if (f->now >= gb_server_deadline(f->instance.server)) gb_server_tick(f->instance.server, f->now);
    if (f->now >= gb_rpc_deadline(f->service)) gb_rpc_tick(f->service, f->now);
    deliver(f);
}

bool fixture_round(fixture *f)
{
    gb_instance *instance = &f->instance;
    tick(f);
    if (!gb_server_poll_round(instance->server, &instance->round, f->now)) return false;
    gb_executor_run(instance->executor, &instance->round, &instance->result);
    f->now += gb_ms(1);
    gb_server_round_done(instance->server, &instance->result, f->now);
    tick(f);
    return true;
}

void fixture_run(fixture *f)
{
    while (fixture_round(f)) {}
}

void fixture_pass(fixture *f, gb_time time)
{
    gb_time end = f->now + time;
    for (;;) {
        gb_time due = gb_time_min(gb_server_deadline(f->instance.server), gb_rpc_deadline(f->service));
        if (due > end) break;
        if (due > f->now) f->now = due;
        tick(f);
        GB_ASSERT(gb_time_min(gb_server_deadline(f->instance.server), gb_rpc_deadline(f->service)) > f->now);
    }
    f->now = end;
    tick(f);
}

/* --- answers keep to the method table --- */

static void check_map(const char *where, const json_t *map, const gb_rpc_field *fields);

static void check_one(const char *where, const json_t *value, const gb_rpc_field *f)
{
    bool fits[] = {
        [GB_RPC_BOOL] = json_is_boolean(value), [GB_RPC_INT] = json_is_integer(value), [GB_RPC_FLOAT] = json_is_real(value),
        [GB_RPC_STRING] = json_is_string(value), [GB_RPC_TEXT] = json_is_string(value), [GB_RPC_BYTES] = json_is_string(value),
        [GB_RPC_MAP] = json_is_object(value), [GB_RPC_MATRIX] = json_is_array(value), [GB_RPC_ANY] = true,
    };
    if (!fits[f->type]) check_fail(__FILE__, __LINE__, "%s.%s has another type than the method table says", where, f->name);
    else if (f->type == GB_RPC_MAP && f->fields) check_map(where, value, f->fields);
}

static void check_value(const char *where, const json_t *value, const gb_rpc_field *f)
{
    const char *key;
    json_t *element;
    size_t i;
    if (f->shape == GB_RPC_ONE) check_one(where, value, f);
    else if (f->shape == GB_RPC_BY_NAME) json_object_foreach((json_t *)value, key, element) check_one(where, element, f);
    else json_array_foreach(value, i, element) check_one(where, element, f);
}

static void check_map(const char *where, const json_t *map, const gb_rpc_field *fields)
{
    size_t known = 0;
    for (const gb_rpc_field *f = fields; f->name; f++) {
        const json_t *value = json_object_get(map, f->name);
        if (value) check_value(where, value, f);
        else if (!f->optional) check_fail(__FILE__, __LINE__, "%s.%s is missing", where, f->name);
        known += value != NULL;
    }
    if (known != json_object_size(map))
        check_fail(__FILE__, __LINE__, "%s has %zu fields, but %zu of them are documented", where, json_object_size(map), known);
}

static const gb_rpc_field *fields_of_notification(const char *name)
{
    const gb_rpc_notification *n = gb_rpc_notifications;
    while (n->name && strcmp(n->name, name) != 0) n++;
    GB_ASSERT(n->name);
    return n->fields;
}

/* --- peers --- */

void peer_open(peer *p, fixture *f, bool trusted)
{
    *p = (peer){.f = f, .reads = true, .messages = json_array(), .conn = gb_rpc_open(f->service, trusted, f->now)};
    GB_ASSERT(p->conn);
}

void peer_hello(peer *p, fixture *f)
{
    peer_open(p, f, true);
    json_decref(peer_call(p, "hello", "{}"));
}

void peer_close(peer *p)
{
    gb_rpc_close(p->conn, p->f->now);
    json_decref(p->messages);
    free(p->bytes);
}

static void keep_bytes(peer *p, const void *bytes, size_t n)
{
    if (p->n + n > p->capacity) {
        p->capacity = 2 * (p->n + n);
        p->bytes = realloc(p->bytes, p->capacity);
        GB_ASSERT(p->bytes);
    }
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

static void unpack_messages(peer *p)
{
    size_t at = 0;
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    while (at < p->n && msgpack_unpack_next(&unpacked, p->bytes, p->n, &at) == MSGPACK_UNPACK_SUCCESS)
        json_array_append_new(p->messages, gb_rpc_json_of(&unpacked.data));
    msgpack_unpacked_destroy(&unpacked);
    memmove(p->bytes, p->bytes + at, p->n - at);
    p->n -= at;
}

void peer_receive(peer *p)
{
    size_t n;
    const void *bytes;
    while (p->reads && (bytes = gb_rpc_output(p->conn, &n))) {
        keep_bytes(p, bytes, n);
        gb_rpc_sent(p->conn, n, p->f->now);
    }
    if (p->n > 0) unpack_messages(p);
}

void peer_send(peer *p, const void *bytes, size_t n)
{
    p->status = gb_rpc_input(p->conn, bytes, n, p->f->now);
    peer_receive(p);
}

char *peer_pack(const char *json, size_t *n)
{
    json_error_t error;
    json_t *tree = json_loads(json, JSON_DECODE_ANY, &error);
    if (!tree) printf("%s: %s\n", json, error.text);
    GB_ASSERT(tree);
    gb_pack pack;
    gb_pack_init(&pack, SIZE_MAX);
    gb_rpc_json_pack(&pack, tree);
    json_decref(tree);
    *n = pack.n;
    return (char *)pack.data;
}

static char *pack_message(const char *format, uint32_t msgid, const char *method, const char *params, size_t *n)
{
    size_t room = strlen(format) + strlen(method) + strlen(params) + 16;
    char *json = malloc(room);
    GB_ASSERT(json);
    if (strncmp(format, "[0", 2) == 0) snprintf(json, room, "[0, %u, \"%s\", [%s]]", msgid, method, params);
    else snprintf(json, room, "[2, \"%s\", [%s]]", method, params);
    char *bytes = peer_pack(json, n);
    free(json);
    return bytes;
}

char *peer_pack_call(uint32_t msgid, const char *method, const char *params, size_t *n)
{
    return pack_message("[0", msgid, method, params, n);
}

void peer_post(peer *p, uint32_t msgid, const char *method, const char *params)
{
    size_t n;
    char *bytes = peer_pack_call(msgid, method, params, &n);
    peer_send(p, bytes, n);
    free(bytes);
}

void peer_notify(peer *p, const char *method, const char *params)
{
    size_t n;
    char *bytes = pack_message("[2", 0, method, params, &n);
    peer_send(p, bytes, n);
    free(bytes);
}

static json_t *take_at(peer *p, size_t i)
{
    json_t *message = json_incref(json_array_get(p->messages, i));
    json_array_remove(p->messages, i);
    return message;
}

json_t *peer_take_response(peer *p, uint32_t msgid)
{
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        const json_t *m = json_array_get(p->messages, i);
        if (json_integer_value(json_array_get(m, 0)) == 1 && json_integer_value(json_array_get(m, 1)) == msgid)
            return take_at(p, i);
    }
    return NULL;
}

json_t *peer_take(peer *p, const char *notification)
{
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        const json_t *m = json_array_get(p->messages, i);
        if (json_integer_value(json_array_get(m, 0)) != 2 || strcmp(json_string_value(json_array_get(m, 1)), notification) != 0)
            continue;
        json_t *message = take_at(p, i), *map = json_incref(json_array_get(json_array_get(message, 2), 0));
        json_decref(message);
        check_map(notification, map, fields_of_notification(notification));
        return map;
    }
    return NULL;
}

size_t peer_waiting(const peer *p) { return json_array_size(p->messages); }

static json_t *call(peer *p, const char *method, const char *params)
{
    uint32_t msgid = ++p->last_msgid;
    peer_post(p, msgid, method, params);
    json_t *response = peer_take_response(p, msgid);
    while (!response && fixture_round(p->f)) {
        peer_receive(p);
        response = peer_take_response(p, msgid);
    }
    if (!response) check_fail(__FILE__, __LINE__, "%s has no answer", method);
    return response;
}

json_t *peer_call(peer *p, const char *method, const char *params)
{
    json_t *response = call(p, method, params), *result = NULL;
    const json_t *error = json_array_get(response, 2);
    if (error && !json_is_null(error))
        check_fail(__FILE__, __LINE__, "%s %.200s failed: %s", method, params, json_text(error, "message"));
    else {
        result = json_incref(json_array_get(response, 3));
        check_map(method, result, gb_rpc_method_find(method, strlen(method))->result);
    }
    json_decref(response);
    return result;
}

void peer_call_fails(peer *p, const char *method, const char *params, int code, const char *path, const char *part)
{
    json_t *response = call(p, method, params);
    const json_t *error = json_array_get(response, 2);
    if (!json_is_object(error)) check_fail(__FILE__, __LINE__, "%s %.200s did not fail", method, params);
    else {
        const char *said = json_string_value(json_object_get(json_object_get(error, "data"), "path"));
        if (json_int(error, "code") != code || !strstr(json_text(error, "message"), part))
            check_fail(__FILE__, __LINE__, "%s %.200s failed with %d \"%s\", not with %d \"%s\"", method, params,
                       (int)json_int(error, "code"), json_text(error, "message"), code, part);
        if ((path != NULL) != (said != NULL) || (path && strcmp(path, said) != 0))
            check_fail(__FILE__, __LINE__, "%s %.200s: data.path is %s, not %s", method, params, said ? said : "absent",
                       path ? path : "absent");
    }
    json_decref(response);
}

int64_t json_int(const json_t *map, const char *key)
{
    const json_t *value = json_object_get(map, key);
    if (!json_is_integer(value)) check_fail(__FILE__, __LINE__, "%s is no integer", key);
    return json_integer_value(value);
}

const char *json_text(const json_t *map, const char *key)
{
    const json_t *value = json_object_get(map, key);
    if (!json_is_string(value)) check_fail(__FILE__, __LINE__, "%s is no text", key);
    return json_is_string(value) ? json_string_value(value) : "";
}
