#include "bindings/rpc/prompt.h"

#include <stdio.h>
#include <stdlib.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"

const gb_rpc_field gb_rpc_message_fields[] = {
    {.name = "role", .type = GB_RPC_STRING, .required = true, .low = 1, .high = 64, .doc = "system, user or assistant"},
    {.name = "content", .type = GB_RPC_TEXT, .required = true, .doc = "what was said"},
    {0},
};

gb_rpc_outcome gb_rpc_tokens_of_text(gb_rpc_call *call, gb_rpc_tokens *out, const char *path, const char *text, size_t bytes,
                                     uint32_t most)
{
    const gb_tokenizer *tokenizer = call->service->instance->tokenizer;
    if (!tokenizer)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, path, "this model has no tokenizer.json: give token ids in `tokens`");
    size_t capacity = bytes + 1 < most ? bytes + 1 : most, n = 0;
    int32_t *ids = gb_rpc_service_tokens(call->service, capacity);
    if (!ids) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    int status = gb_tokenizer_encode(tokenizer, text, bytes, ids, capacity, &n, &call->error.sentence);
    if (status == GB_EFULL && n <= most) {    /* normalizing may make text longer than it was */
        ids = gb_rpc_service_tokens(call->service, n);
        if (!ids) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
        status = gb_tokenizer_encode(tokenizer, text, bytes, ids, n, &n, &call->error.sentence);
    }
    if (status == GB_EFULL)
        return gb_rpc_fail(call, GB_RPC_TOO_LARGE, path, "%s has %zu tokens, but at most %u are allowed", path, n, most);
    if (status != GB_OK) return gb_rpc_fail_status(call, status, path);
    *out = (gb_rpc_tokens){ids, (uint32_t)n};
    return GB_RPC_REPLIED;
}

gb_rpc_outcome gb_rpc_tokens_of_ids(gb_rpc_call *call, gb_rpc_tokens *out, const char *path, const msgpack_object *ids,
                                    uint32_t most)
{
    uint32_t n = ids->via.array.size, vocab = call->service->instance->config.vocab;
    if (n > most) return gb_rpc_fail(call, GB_RPC_TOO_LARGE, path, "%s has %u tokens, but at most %u are allowed", path, n, most);
    int32_t *tokens = gb_rpc_service_tokens(call->service, n + 1);
    if (!tokens) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = ids->via.array.ptr[i].via.u64;    /* checked: not negative */
        if (id >= vocab) {
            char where[GB_RPC_PATH_BYTES];
            snprintf(where, sizeof where, "%s[%u]", path, i);
            return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, where, "%s is %llu, but token ids of this model are 0..%u", where,
                               (unsigned long long)id, vocab - 1);
        }
        tokens[i] = (int32_t)id;
    }
    *out = (gb_rpc_tokens){tokens, n};
    return GB_RPC_REPLIED;
}

static void read_messages(const msgpack_object *list, gb_message *messages)
{
    for (uint32_t i = 0; i < list->via.array.size; i++) {
        const msgpack_object *m = &list->via.array.ptr[i];
        messages[i].role = gb_rpc_param_text(m, "role", &messages[i].role_bytes);
        messages[i].content = gb_rpc_param_text(m, "content", &messages[i].content_bytes);
    }
}

gb_rpc_outcome gb_rpc_text_of_messages(gb_rpc_call *call, char **text, size_t *bytes, bool add_generation_prompt)
{
    gb_lua_template *template = call->service->instance->chat_template;
    const msgpack_object *list = gb_rpc_param(call->params, "messages");
    uint32_t n = list->via.array.size;
    if (!template)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "messages",
                           "this model has no chat template: give a prompt, or start the server with --chat-template");
    if (n == 0) return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "messages", "messages is empty, but needs at least one message");
    gb_message *messages = calloc(n, sizeof *messages);
    if (!messages) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    read_messages(list, messages);
    bool thinks = gb_rpc_param_bool(call->params, "enable_thinking", true);
    int status = gb_lua_template_apply(template, text, bytes, messages, n, add_generation_prompt, thinks, &call->error.sentence);
    free(messages);
    return status == GB_OK ? GB_RPC_REPLIED : gb_rpc_fail_status(call, status, "messages");
}
