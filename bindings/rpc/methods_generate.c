/* generate, ack, abort, request_list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "bindings/rpc/prompt.h"

/* --- sampling --- */

static void read_stop_strings(gb_sampling *s, const msgpack_object *stop)
{
    const msgpack_object *texts = stop->type == MSGPACK_OBJECT_ARRAY ? stop->via.array.ptr : stop;
    s->n_stop_strings = stop->type == MSGPACK_OBJECT_ARRAY ? stop->via.array.size : 1;
    for (uint32_t i = 0; i < s->n_stop_strings; i++) {
        s->stop_string_bytes[i] = (uint16_t)texts[i].via.str.size;
        memcpy(s->stop_strings[i], texts[i].via.str.ptr, texts[i].via.str.size);
    }
}

static gb_rpc_outcome read_stop_ids(gb_rpc_call *call, gb_sampling *s, const msgpack_object *ids)
{
    gb_rpc_tokens tokens;
    gb_rpc_outcome outcome = gb_rpc_tokens_of_ids(call, &tokens, "sampling.stop_token_ids", ids, GB_STOP_IDS_MAX);
    if (outcome == GB_RPC_FAILED) return outcome;
    s->n_stop_ids = tokens.n;
    memcpy(s->stop_ids, tokens.ids, tokens.n * sizeof *tokens.ids);
    return outcome;
}

/* What the request says over what the model wants. */
static gb_rpc_outcome read_sampling(gb_rpc_call *call, gb_sampling *s)
{
    gb_instance_sampling(call->service->instance, s);
    const msgpack_object *map = gb_rpc_param(call->params, "sampling");
    if (!map) return GB_RPC_REPLIED;
    s->temperature = (float)gb_rpc_param_float(map, "temperature", (double)s->temperature);
    s->top_p = (float)gb_rpc_param_float(map, "top_p", (double)s->top_p);
    s->min_p = (float)gb_rpc_param_float(map, "min_p", (double)s->min_p);
    s->top_k = (int32_t)gb_rpc_param_int(map, "top_k", s->top_k);
    s->presence_penalty = (float)gb_rpc_param_float(map, "presence_penalty", (double)s->presence_penalty);
    s->frequency_penalty = (float)gb_rpc_param_float(map, "frequency_penalty", (double)s->frequency_penalty);
    s->repetition_penalty = (float)gb_rpc_param_float(map, "repetition_penalty", (double)s->repetition_penalty);
    s->has_seed = gb_rpc_param(map, "seed") != NULL;
    s->seed = (uint64_t)gb_rpc_param_int(map, "seed", 0);
    s->logprobs = (int32_t)gb_rpc_param_int(map, "logprobs", s->logprobs);
    s->max_tokens = (uint32_t)gb_rpc_param_int(map, "max_tokens", s->max_tokens);
    s->min_tokens = (uint32_t)gb_rpc_param_int(map, "min_tokens", s->min_tokens);
    s->ignore_eos = gb_rpc_param_bool(map, "ignore_eos", s->ignore_eos);
    s->include_stop = gb_rpc_param_bool(map, "include_stop", s->include_stop);
    const msgpack_object *stop = gb_rpc_param(map, "stop"), *stop_ids = gb_rpc_param(map, "stop_token_ids");
    if (stop) read_stop_strings(s, stop);
    if (stop_ids && read_stop_ids(call, s, stop_ids) == GB_RPC_FAILED) return GB_RPC_FAILED;
    int status = gb_sampling_check(s, &call->error.sentence);
    return status == GB_OK ? GB_RPC_REPLIED : gb_rpc_fail_status(call, status, "sampling");
}

static const gb_rpc_field sampling_fields[] = {
    {.name = "temperature", .type = GB_RPC_FLOAT, .low = 0, .high = 100, .doc = "0 = greedy"},
    {.name = "top_p", .type = GB_RPC_FLOAT, .above_low = true, .low = 0, .high = 1,
     .doc = "smallest set of tokens with this probability; 1 = off"},
    {.name = "top_k", .type = GB_RPC_INT, .low = 0, .high = GB_TOP_K_MAX, .doc = "so many most likely tokens; 0 = off"},
    {.name = "min_p", .type = GB_RPC_FLOAT, .low = 0, .high = 1,
     .doc = "at least this part of the best token's probability; 0 = off"},
    {.name = "presence_penalty", .type = GB_RPC_FLOAT, .low = -2, .high = 2, .doc = "on tokens generated before"},
    {.name = "frequency_penalty", .type = GB_RPC_FLOAT, .low = -2, .high = 2, .doc = "on tokens generated before, by count"},
    {.name = "repetition_penalty", .type = GB_RPC_FLOAT, .above_low = true, .low = 0, .high = 10,
     .doc = "on tokens of prompt and text; 1 = off"},
    {.name = "seed", .type = GB_RPC_INT, .doc = "same seed, same tokens, whatever else is served"},
    {.name = "max_tokens", .type = GB_RPC_INT, .low = 1, .high = INT32_MAX,
     .doc = "most tokens to generate; default: the rest of the context"},
    {.name = "min_tokens", .type = GB_RPC_INT, .low = 0, .high = INT32_MAX, .doc = "no end before so many tokens"},
    {.name = "stop", .type = GB_RPC_TEXT, .shape = GB_RPC_ONE_OR_LIST, .low = 1, .high = GB_STOP_STRING_BYTES,
     .most = GB_STOP_STRINGS_MAX, .doc = "text that ends the request; it is not part of the result"},
    {.name = "stop_token_ids", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .low = 0, .high = INT32_MAX, .most = GB_STOP_IDS_MAX,
     .doc = "tokens that end the request"},
    {.name = "ignore_eos", .type = GB_RPC_BOOL, .doc = "the model's own end tokens do not end the request"},
    {.name = "include_stop", .type = GB_RPC_BOOL, .doc = "the stop text stays in the result"},
    {.name = "logprobs", .type = GB_RPC_INT, .low = 0, .high = GB_TOP_LOGPROBS_MAX,
     .doc = "log probability of each token, and of so many most likely ones"},
    {0},
};

/* --- prompt --- */

static gb_rpc_outcome read_messages(gb_rpc_call *call, gb_rpc_tokens *prompt)
{
    char *text = NULL;
    size_t bytes = 0;
    gb_rpc_outcome outcome = gb_rpc_text_of_messages(call, &text, &bytes, true);
    if (outcome == GB_RPC_REPLIED) outcome = gb_rpc_tokens_of_text(call, prompt, "messages", text, bytes, GB_RPC_VALUES_MAX);
    free(text);
    return outcome;
}

/* Exactly one of prompt, tokens and messages. */
static gb_rpc_outcome read_prompt(gb_rpc_call *call, gb_rpc_tokens *prompt)
{
    size_t bytes;
    const char *text = gb_rpc_param_text(call->params, "prompt", &bytes);
    const msgpack_object *ids = gb_rpc_param(call->params, "tokens"), *messages = gb_rpc_param(call->params, "messages");
    int given = (text != NULL) + (ids != NULL) + (messages != NULL);
    if (given != 1)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "prompt", "give one of prompt, tokens and messages, not %s",
                           given ? "several" : "none");
    const char *path = text ? "prompt" : ids ? "tokens" : "messages";
    gb_rpc_outcome outcome = text  ? gb_rpc_tokens_of_text(call, prompt, path, text, bytes, GB_RPC_VALUES_MAX)
                             : ids ? gb_rpc_tokens_of_ids(call, prompt, path, ids, GB_RPC_VALUES_MAX)
                                   : read_messages(call, prompt);
    if (outcome == GB_RPC_REPLIED && prompt->n == 0)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, path, "%s is empty: a request needs at least one prompt token", path);
    return outcome;
}

/* --- generate --- */

static gb_rpc_outcome read_request_id(gb_rpc_call *call, char *out)
{
    if (gb_rpc_param_string(call->params, "request_id", out)) {
        if (!gb_rpc_stream_find(call->service, out)) return GB_RPC_REPLIED;
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "request_id",
                           "request_id is in use by a live request: choose another or leave it out");
    }
    do snprintf(out, GB_RPC_REQUEST_ID_MAX + 1, "request-%llu", (unsigned long long)++call->service->last_request);
    while (gb_rpc_stream_find(call->service, out));
    return GB_RPC_REPLIED;
}

static uint32_t hash_session(const gb_rpc_call *call)
{
    size_t bytes;
    const char *session = gb_rpc_param_text(call->params, "session", &bytes);
    uint32_t hash = 2166136261u;    /* FNV-1a; 0 means no session */
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)session[i]) * 16777619u;
    return session ? (hash ? hash : 1) : 0;
}

static gb_rpc_outcome submit(gb_rpc_call *call, gb_request_id *id, const gb_rpc_tokens *prompt, const gb_sampling *sampling)
{
    int64_t deadline_ms = gb_rpc_param_int(call->params, "deadline_ms", 0);
    gb_request request = {
        .tokens = prompt->ids, .n_tokens = prompt->n, .sampling = sampling, .session = hash_session(call),
        .priority = (int32_t)gb_rpc_param_int(call->params, "priority", 0),
        .deadline = deadline_ms ? call->now + gb_ms((uint64_t)deadline_ms) : GB_NEVER,
    };
    int status = gb_server_submit(call->service->instance->server, id, &request, call->now, &call->error.sentence);
    return status == GB_OK ? GB_RPC_REPLIED : gb_rpc_fail_status(call, status, NULL);
}

static uint32_t engine_of(const gb_server *server, gb_request_id id)
{
    uint32_t cursor = (uint32_t)id;    /* its slot */
    gb_request_info info = {0};
    gb_server_request_next(server, &cursor, &info);
    return info.engine;
}

static void pack_accepted(gb_rpc_call *call, const gb_rpc_stream *stream, uint32_t prompt_tokens)
{
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_str(&map, "request_id", stream->request_id);
    gb_pack_key_uint(&map, "prompt_tokens", prompt_tokens);
    gb_pack_key_uint(&map, "engine", engine_of(call->service->instance->server, stream->id));
    gb_pack_end(&map);
}

static gb_rpc_outcome run_generate(gb_rpc_call *call)
{
    char request_id[GB_RPC_STRING_MAX + 1];
    bool streams = gb_rpc_param_bool(call->params, "stream", false);
    gb_rpc_tokens prompt;
    gb_sampling sampling;
    gb_request_id id;
    if (!call->replies) return gb_rpc_fail(call, GB_RPC_INVALID_REQUEST, NULL, "generate has an answer: call it with a msgid");
    if (call->conn->n_streams == GB_RPC_STREAMS_MAX)
        return gb_rpc_fail(call, GB_RPC_OVERLOADED, NULL, "this connection has %d live requests: wait for one to end",
                           GB_RPC_STREAMS_MAX);
    if (read_request_id(call, request_id) == GB_RPC_FAILED || read_sampling(call, &sampling) == GB_RPC_FAILED ||
        read_prompt(call, &prompt) == GB_RPC_FAILED || submit(call, &id, &prompt, &sampling) == GB_RPC_FAILED)
        return GB_RPC_FAILED;
    gb_rpc_stream_options options = {
        .request_id = request_id, .whole = !streams, .msgid = call->msgid,
        .detach = gb_rpc_param_bool(call->params, "detach", false),
        .window = (uint32_t)gb_rpc_param_int(call->params, "window", GB_RPC_WINDOW),
    };
    gb_rpc_stream *stream = gb_rpc_stream_new(call->conn, id, &options);
    if (!stream) {
        gb_server_cancel(call->service->instance->server, id, call->now);
        return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    }
    if (!streams) return GB_RPC_LATER;
    pack_accepted(call, stream, prompt.n);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field generate_params[] = {
    {.name = "prompt", .type = GB_RPC_TEXT, .doc = "text to continue; special tokens written in it are parsed"},
    {.name = "tokens", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .low = 0, .high = INT32_MAX, .doc = "the prompt as token ids"},
    {.name = "messages", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .most = GB_RPC_MESSAGES_MAX, .fields = gb_rpc_message_fields,
     .doc = "a chat, through the model's template"},
    {.name = "enable_thinking", .type = GB_RPC_BOOL, .doc = "with messages, for templates that know it; default true"},
    {.name = "sampling", .type = GB_RPC_MAP, .fields = sampling_fields,
     .doc = "default: the model's generation_config, else temperature 1"},
    {.name = "stream", .type = GB_RPC_BOOL, .doc = "true: events; false (default): one result at the end"},
    {.name = "window", .type = GB_RPC_INT, .low = 0, .high = INT32_MAX,
     .doc = "token events without ack; default 64, 0 = no limit"},
    {.name = "request_id", .type = GB_RPC_STRING, .low = 1, .high = GB_RPC_REQUEST_ID_MAX,
     .doc = "made by the server if absent; unique among live requests"},
    {.name = "priority", .type = GB_RPC_INT, .low = INT32_MIN, .high = INT32_MAX, .doc = "lower is more urgent; default 0"},
    {.name = "deadline_ms", .type = GB_RPC_INT, .low = 1, .high = INT32_MAX,
     .doc = "from now; then the request fails with DEADLINE"},
    {.name = "session", .type = GB_RPC_STRING, .doc = "requests of one session like the same engine"},
    {.name = "detach", .type = GB_RPC_BOOL, .doc = "the request goes on when the connection closes"},
    {.name = "n", .type = GB_RPC_INT, .low = 1, .high = 1,
     .doc = "outputs of one request: only 1; send the request again for more"},
    {0},
};

static const gb_rpc_field usage_fields[] = {
    {.name = "prompt_tokens", .type = GB_RPC_INT, .doc = "tokens of the prompt"},
    {.name = "completion_tokens", .type = GB_RPC_INT, .doc = "tokens generated, the end token included"},
    {.name = "total_tokens", .type = GB_RPC_INT, .doc = "both"},
    {.name = "cached_tokens", .type = GB_RPC_INT, .doc = "prompt tokens that were not computed again"},
    {0},
};

static const gb_rpc_field timings_fields[] = {
    {.name = "queued_ms", .type = GB_RPC_FLOAT, .doc = "arrival to first scheduled"},
    {.name = "prefill_ms", .type = GB_RPC_FLOAT, .doc = "first scheduled to first token"},
    {.name = "decode_ms", .type = GB_RPC_FLOAT, .doc = "first token to last token"},
    {.name = "total_ms", .type = GB_RPC_FLOAT, .doc = "arrival to end"},
    {0},
};

static const gb_rpc_field top_fields[] = {
    {.name = "token", .type = GB_RPC_INT, .doc = "id"},
    {.name = "logprob", .type = GB_RPC_FLOAT, .doc = "natural logarithm"},
    {0},
};

static const gb_rpc_field logprobs_fields[] = {
    {.name = "token", .type = GB_RPC_INT, .doc = "the chosen one"},
    {.name = "logprob", .type = GB_RPC_FLOAT,
     .doc = "natural logarithm of its probability before any filter; -9999 stands for minus infinity"},
    {.name = "top", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = top_fields, .doc = "the most likely tokens, best first"},
    {0},
};

static const gb_rpc_field generate_result[] = {
    {.name = "request_id", .type = GB_RPC_STRING, .doc = "for ack and abort"},
    {.name = "prompt_tokens", .type = GB_RPC_INT, .optional = true, .doc = "stream: length of the prompt"},
    {.name = "engine", .type = GB_RPC_INT, .optional = true, .doc = "stream: which engine serves it"},
    {.name = "text", .type = GB_RPC_TEXT, .optional = true,
     .doc = "whole: valid UTF-8, without special tokens and stop text; \"\" without tokenizer"},
    {.name = "tokens", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .optional = true,
     .doc = "whole: the ids, the end token included"},
    {.name = "logprobs", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .optional = true, .fields = logprobs_fields,
     .doc = "whole: when asked for"},
    {.name = "finish_reason", .type = GB_RPC_STRING, .optional = true, .doc = "whole: \"stop\" or \"length\""},
    {.name = "stop_token", .type = GB_RPC_INT, .optional = true, .doc = "whole: the token that ended it"},
    {.name = "stop_string", .type = GB_RPC_INT, .optional = true, .doc = "whole: index of the stop text that ended it"},
    {.name = "usage", .type = GB_RPC_MAP, .optional = true, .fields = usage_fields, .doc = "whole: tokens"},
    {.name = "timings", .type = GB_RPC_MAP, .optional = true, .fields = timings_fields, .doc = "whole: where the time went"},
    {0},
};

/* --- ack, abort --- */

/* Streams of other connections are nobody's business, but an admin's. */
static bool is_own(const gb_rpc_call *call, const gb_rpc_stream *stream)
{
    return call->conn->admin || stream->conn == call->conn;
}

static gb_rpc_outcome run_ack(gb_rpc_call *call)
{
    char request_id[GB_RPC_STRING_MAX + 1];
    const char *given = gb_rpc_param_string(call->params, "request_id", request_id);
    const msgpack_object *sub_id = gb_rpc_param(call->params, "sub_id");
    if (!given == !sub_id) return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "request_id", "give either request_id or sub_id");
    gb_rpc_stream *stream = given ? gb_rpc_stream_find(call->service, request_id) : NULL;
    if (stream && stream->conn == call->conn)
        gb_rpc_stream_ack(stream, (uint64_t)gb_rpc_param_int(call->params, "n", 1), call->now);
    if (sub_id) gb_rpc_subscription_ack(call->conn, sub_id->via.u64, call->now);
    gb_pack_map(call->out, 0);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field ack_params[] = {
    {.name = "request_id", .type = GB_RPC_STRING, .low = 1, .high = GB_RPC_REQUEST_ID_MAX,
     .doc = "the stream; unknown ones are ignored, for it may just have ended"},
    {.name = "n", .type = GB_RPC_INT, .low = 1, .high = INT32_MAX, .doc = "token events read since the last ack; default 1"},
    {.name = "sub_id", .type = GB_RPC_INT, .low = 1, .high = INT64_MAX,
     .doc = "instead of request_id: a subscription whose events were read"},
    {0},
};

static void abort_stream(gb_rpc_call *call, gb_rpc_stream *stream)
{
    gb_rpc_stream_stop(stream, GB_RPC_ABORTED, "aborted", call->now);
}

static uint32_t abort_all(gb_rpc_call *call)
{
    uint32_t aborted = 0;
    for (uint32_t b = 0; b < GB_RPC_BUCKETS; b++)
        for (gb_rpc_stream *s = call->service->buckets[b], *next; s; s = next) {
            next = s->next_in_bucket;
            if (!is_own(call, s)) continue;
            abort_stream(call, s);
            aborted++;
        }
    return aborted;
}

static gb_rpc_outcome run_abort(gb_rpc_call *call)
{
    char request_id[GB_RPC_STRING_MAX + 1];
    const char *given = gb_rpc_param_string(call->params, "request_id", request_id);
    bool all = gb_rpc_param_bool(call->params, "all", false);
    if (all == (given != NULL))
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "request_id", "give either request_id or all = true");
    gb_rpc_stream *stream = given ? gb_rpc_stream_find(call->service, request_id) : NULL;
    bool one = stream && is_own(call, stream);
    uint32_t aborted = all ? abort_all(call) : one;
    if (one) abort_stream(call, stream);
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_key_uint(&map, "aborted", aborted);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field abort_params[] = {
    {.name = "request_id", .type = GB_RPC_STRING, .low = 1, .high = GB_RPC_REQUEST_ID_MAX,
     .doc = "which request; an unknown one aborts nothing"},
    {.name = "all", .type = GB_RPC_BOOL, .doc = "every request: of the server for an admin, of this connection for others"},
    {0},
};

static const gb_rpc_field abort_result[] = {
    {.name = "aborted",
     .type = GB_RPC_INT,
     .doc = "how many were live; each has been sent its `failed` or error with ABORTED before this answer, and its request_id is "
            "free again"},
    {0},
};

/* --- request_list --- */

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };

static const char *const states[] = {"waiting", "running", "preempted"};    /* by gb_request_state */
enum { STATES = sizeof states / sizeof *states };

static void pack_request(gb_pack *out, const gb_request_info *info, const gb_rpc_stream *stream, gb_time now)
{
    gb_pack_list map = gb_pack_begin_map(out);
    gb_pack_key_uint(&map, "id", info->id);
    if (stream) gb_pack_key_str(&map, "request_id", stream->request_id);
    gb_pack_key_str(&map, "state", states[info->state]);
    gb_pack_key_uint(&map, "engine", info->engine);
    gb_pack_key_uint(&map, "prompt_tokens", info->prompt_tokens);
    gb_pack_key_uint(&map, "computed_tokens", info->computed_tokens);
    gb_pack_key_uint(&map, "generated_tokens", info->generated_tokens);
    gb_pack_key_uint(&map, "max_tokens", info->max_tokens);
    gb_pack_key_uint(&map, "preemptions", info->preemptions);
    gb_pack_key_int(&map, "priority", info->priority);
    gb_pack_key_float(&map, "age_ms", gb_to_ms(gb_time_since(info->arrived, now)));
    gb_pack_key_bool(&map, "detached", stream && !stream->conn);
    gb_pack_end(&map);
}

/* *state = STATES when all are wanted. */
static gb_rpc_outcome read_state(gb_rpc_call *call, int *state)
{
    char text[GB_RPC_STRING_MAX + 1];
    const char *given = gb_rpc_param_string(call->params, "state", text);
    *state = given ? 0 : STATES;
    while (*state < STATES && strcmp(states[*state], given) != 0) ++*state;
    if (!given || *state < STATES) return GB_RPC_REPLIED;
    return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "state", "there is no such state: states are waiting, running and preempted");
}

static bool is_listed(const gb_rpc_call *call, const gb_request_info *info, const gb_rpc_stream *stream, int state)
{
    bool visible = call->conn->admin || (stream && is_own(call, stream));
    return visible && (state == STATES || (int)info->state == state);
}

static gb_rpc_outcome run_request_list(gb_rpc_call *call)
{
    int state;
    uint32_t limit = (uint32_t)gb_rpc_param_int(call->params, "limit", LIST_DEFAULT);
    uint32_t cursor = (uint32_t)gb_rpc_param_int(call->params, "cursor", 0);
    gb_request_info info;
    if (read_state(call, &state) == GB_RPC_FAILED) return GB_RPC_FAILED;
    gb_pack_list map = gb_pack_begin_map(call->out);
    gb_pack_list list = gb_pack_begin_array(gb_pack_key(&map, "requests"));
    bool more = true;
    while (list.n < limit && (more = gb_server_request_next(call->service->instance->server, &cursor, &info))) {
        const gb_rpc_stream *stream = gb_rpc_stream_of(call->service, info.id);
        if (is_listed(call, &info, stream, state)) pack_request(gb_pack_next(&list), &info, stream, call->now);
    }
    gb_pack_end(&list);
    if (more) gb_pack_key_uint(&map, "cursor", cursor);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static const gb_rpc_field request_list_params[] = {
    {.name = "state", .type = GB_RPC_STRING, .doc = "only those that are waiting, running or preempted; default: all"},
    {.name = "limit", .type = GB_RPC_INT, .low = 1, .high = LIST_MAX, .doc = "most requests to list; default 100"},
    {.name = "cursor", .type = GB_RPC_INT, .low = 0, .high = UINT32_MAX, .doc = "go on from an earlier list"},
    {0},
};

static const gb_rpc_field request_fields[] = {
    {.name = "id", .type = GB_RPC_INT, .doc = "the server's own number"},
    {.name = "request_id", .type = GB_RPC_STRING, .optional = true, .doc = "for abort; absent when it did not come by RPC"},
    {.name = "state", .type = GB_RPC_STRING, .doc = "\"waiting\", \"running\" or \"preempted\""},
    {.name = "engine", .type = GB_RPC_INT, .doc = "which engine has it"},
    {.name = "prompt_tokens", .type = GB_RPC_INT, .doc = "length of the prompt"},
    {.name = "computed_tokens", .type = GB_RPC_INT, .doc = "positions in its KV cache"},
    {.name = "generated_tokens", .type = GB_RPC_INT, .doc = "tokens generated so far"},
    {.name = "max_tokens", .type = GB_RPC_INT, .doc = "most tokens it may generate"},
    {.name = "preemptions", .type = GB_RPC_INT, .doc = "how often it lost its blocks"},
    {.name = "priority", .type = GB_RPC_INT, .doc = "lower is more urgent"},
    {.name = "age_ms", .type = GB_RPC_FLOAT, .doc = "time since it arrived"},
    {.name = "detached", .type = GB_RPC_BOOL, .doc = "its connection is gone"},
    {0},
};

static const gb_rpc_field request_list_result[] = {
    {.name = "requests", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .fields = request_fields,
     .doc = "live requests: all of them for an admin, those of this connection for others"},
    {.name = "cursor", .type = GB_RPC_INT, .optional = true, .doc = "there may be more: call again with it"},
    {0},
};

/* --- tables --- */

const gb_rpc_method gb_rpc_generate_methods[] = {
    {"generate", GB_RPC_NEEDS_HELLO, 1, run_generate, generate_params, generate_result,
     "Generates text. With `stream = true` the answer comes at once and the text as `token` events, with one `done` or `failed` "
     "at the end; else the answer is the whole result, or an error. Exactly one of `prompt`, `tokens` and `messages` is given."},
    {"ack", GB_RPC_NEEDS_HELLO, 1, run_ack, ack_params, gb_rpc_no_fields,
     "Gives credit back to a stream or a subscription. Meant as a notification."},
    {"abort", GB_RPC_NEEDS_HELLO, 1, run_abort, abort_params, abort_result, "Ends requests early. May be repeated without harm."},
    {"request_list", GB_RPC_NEEDS_HELLO, 1, run_request_list, request_list_params, request_list_result, "Lists live requests."},
    {0},
};

static const gb_rpc_field token_fields[] = {
    {.name = "request_id", .type = GB_RPC_STRING, .doc = "which stream"},
    {.name = "index", .type = GB_RPC_INT, .doc = "which output of the request; always 0"},
    {.name = "seq", .type = GB_RPC_INT, .doc = "0, 1, 2 ... within the stream"},
    {.name = "text", .type = GB_RPC_TEXT,
     .doc = "valid UTF-8; without special tokens and stop text; \"\" for a model without tokenizer"},
    {.name = "tokens", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .doc = "the ids, the end token included"},
    {.name = "logprobs", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .optional = true, .fields = logprobs_fields,
     .doc = "one for each token, when asked for"},
    {0},
};

static const gb_rpc_field done_fields[] = {
    {.name = "request_id", .type = GB_RPC_STRING, .doc = "which stream"},
    {.name = "index", .type = GB_RPC_INT, .doc = "which output of the request; always 0"},
    {.name = "finish_reason", .type = GB_RPC_STRING, .doc = "\"stop\" or \"length\""},
    {.name = "stop_token", .type = GB_RPC_INT, .optional = true, .doc = "the token that ended it"},
    {.name = "stop_string", .type = GB_RPC_INT, .optional = true, .doc = "index of the stop text that ended it"},
    {.name = "usage", .type = GB_RPC_MAP, .fields = usage_fields, .doc = "tokens"},
    {.name = "timings", .type = GB_RPC_MAP, .fields = timings_fields, .doc = "where the time went"},
    {0},
};

static const gb_rpc_field error_fields[] = {
    {.name = "code", .type = GB_RPC_INT, .doc = "see Errors"},
    {.name = "name", .type = GB_RPC_STRING, .doc = "see Errors"},
    {.name = "message", .type = GB_RPC_TEXT, .doc = "what is wrong, and what to do"},
    {0},
};

static const gb_rpc_field failed_fields[] = {
    {.name = "request_id", .type = GB_RPC_STRING, .doc = "which stream"},
    {.name = "error", .type = GB_RPC_MAP, .fields = error_fields, .doc = "why; ABORTED after abort"},
    {0},
};

static const gb_rpc_field event_fields[] = {
    {.name = "sub_id", .type = GB_RPC_INT, .doc = "which subscription"},
    {.name = "topic", .type = GB_RPC_STRING, .doc = "what `data` is"},
    {.name = "seq", .type = GB_RPC_INT, .doc = "0, 1, 2 ... within the subscription"},
    {.name = "skipped", .type = GB_RPC_INT, .doc = "values of this topic that were left out since the last one"},
    {.name = "data", .type = GB_RPC_ANY, .doc = "the result of the topic's method"},
    {0},
};

static const gb_rpc_field error_event_fields[] = {
    {.name = "method", .type = GB_RPC_STRING, .optional = true,
     .doc = "the notification that failed; absent when the connection is closed"},
    {.name = "code", .type = GB_RPC_INT, .doc = "see Errors"},
    {.name = "name", .type = GB_RPC_STRING, .doc = "see Errors"},
    {.name = "message", .type = GB_RPC_TEXT, .doc = "what is wrong, and what to do"},
    {.name = "path", .type = GB_RPC_STRING, .optional = true, .doc = "the parameter that is wrong"},
    {0},
};

static const gb_rpc_field goaway_fields[] = {
    {.name = "reason", .type = GB_RPC_STRING, .doc = "why: for people"},
    {.name = "deadline_ms", .type = GB_RPC_FLOAT, .optional = true, .doc = "after so long, open requests are ended"},
    {0},
};

const gb_rpc_notification gb_rpc_notifications[] = {
    {"token", token_fields,
     "Text of a stream: one token, or several that waited for credit together. The last one may have no token, only text that "
     "was held back."},
    {"done", done_fields, "A stream ended well. After its last `token`."},
    {"failed", failed_fields, "A stream ended otherwise. Nothing of it comes after."},
    {"event", event_fields, "A snapshot for a subscription."},
    {"error_event", error_event_fields,
     "A notification failed, or bytes could not be understood; then it is the last message and the connection is closed."},
    {"goaway", goaway_fields, "The server takes no new requests. What is open is finished."},
    {0},
};
