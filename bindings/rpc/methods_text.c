/* tokenize, detokenize, apply_template. */
#include <stdlib.h>

#include "bindings/rpc/conn.h"
#include "bindings/rpc/params.h"
#include "bindings/rpc/prompt.h"

static void pack_tokens(gb_pack_list *map, const gb_rpc_tokens *tokens)
{
    gb_pack_array(gb_pack_key(map, "tokens"), tokens->n);
    for (uint32_t i = 0; i < tokens->n; i++) gb_pack_int(map->pack, tokens->ids[i]);
    gb_pack_key_uint(map, "count", tokens->n);
}

static gb_rpc_outcome run_tokenize(gb_rpc_call *call)
{
    size_t bytes;
    const char *text = gb_rpc_param_text(call->params, "text", &bytes);
    gb_rpc_tokens tokens;
    if (gb_rpc_tokens_of_text(call, &tokens, "text", text, bytes, GB_RPC_VALUES_MAX) == GB_RPC_FAILED) return GB_RPC_FAILED;
    gb_pack_list map = gb_pack_begin_map(call->out);
    pack_tokens(&map, &tokens);
    gb_pack_end(&map);
    return GB_RPC_REPLIED;
}

static gb_rpc_outcome run_detokenize(gb_rpc_call *call)
{
    const gb_tokenizer *tokenizer = call->service->instance->tokenizer;
    gb_rpc_tokens tokens;
    size_t bytes = 0;
    char none[1];
    if (!tokenizer)
        return gb_rpc_fail(call, GB_RPC_INVALID_PARAMS, "tokens", "this model has no tokenizer.json: its tokens have no text");
    if (gb_rpc_tokens_of_ids(call, &tokens, "tokens", gb_rpc_param(call->params, "tokens"), GB_RPC_VALUES_MAX) == GB_RPC_FAILED)
        return GB_RPC_FAILED;
    int status = gb_tokenizer_decode(tokenizer, tokens.ids, tokens.n, none, 0, &bytes, &call->error.sentence);
    if (status == GB_EFULL && bytes > GB_RPC_MESSAGE_MAX)
        return gb_rpc_fail(call, GB_RPC_TOO_LARGE, "tokens",
                           "the text has %zu bytes, more than a message of %d: send fewer tokens", bytes, GB_RPC_MESSAGE_MAX);
    char *text = malloc(bytes + 1);
    if (!text) return gb_rpc_fail_status(call, GB_ENOMEM, NULL);
    status = gb_tokenizer_decode(tokenizer, tokens.ids, tokens.n, text, bytes + 1, &bytes, &call->error.sentence);
    if (status == GB_OK) {
        gb_pack_list map = gb_pack_begin_map(call->out);
        gb_pack_text(gb_pack_key(&map, "text"), text, bytes);
        gb_pack_key_uint(&map, "count", tokens.n);
        gb_pack_end(&map);
    }
    free(text);
    return status == GB_OK ? GB_RPC_REPLIED : gb_rpc_fail_status(call, status, "tokens");
}

static gb_rpc_outcome run_apply_template(gb_rpc_call *call)
{
    char *text = NULL;
    size_t bytes = 0;
    gb_rpc_tokens tokens = {0};
    bool open_turn = gb_rpc_param_bool(call->params, "add_generation_prompt", true);
    bool counts = call->service->instance->tokenizer != NULL;
    gb_rpc_outcome outcome = gb_rpc_text_of_messages(call, &text, &bytes, open_turn);
    if (outcome == GB_RPC_REPLIED && counts)
        outcome = gb_rpc_tokens_of_text(call, &tokens, "messages", text, bytes, GB_RPC_VALUES_MAX);
    if (outcome == GB_RPC_REPLIED) {
        gb_pack_list map = gb_pack_begin_map(call->out);
        gb_pack_text(gb_pack_key(&map, "text"), text, bytes);
        if (counts) pack_tokens(&map, &tokens);
        gb_pack_end(&map);
    }
    free(text);
    return outcome;
}

static const gb_rpc_field tokenize_params[] = {
    {.name = "text", .type = GB_RPC_TEXT, .required = true, .doc = "special tokens written in it are parsed; none are added"},
    {0},
};

static const gb_rpc_field tokenize_result[] = {
    {.name = "tokens", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .doc = "[] for \"\""},
    {.name = "count", .type = GB_RPC_INT, .doc = "how many"},
    {0},
};

static const gb_rpc_field detokenize_params[] = {
    {.name = "tokens", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .required = true, .low = 0, .high = INT32_MAX, .doc = "ids"},
    {0},
};

static const gb_rpc_field detokenize_result[] = {
    {.name = "text", .type = GB_RPC_TEXT, .doc = "special tokens are kept; each maximal bad part becomes one U+FFFD"},
    {.name = "count", .type = GB_RPC_INT, .doc = "how many tokens"},
    {0},
};

static const gb_rpc_field apply_template_params[] = {
    {.name = "messages", .type = GB_RPC_MAP, .shape = GB_RPC_LIST, .required = true, .most = GB_RPC_MESSAGES_MAX,
     .fields = gb_rpc_message_fields, .doc = "a chat, oldest first"},
    {.name = "add_generation_prompt", .type = GB_RPC_BOOL, .doc = "end with the opening of the assistant's turn; default true"},
    {.name = "enable_thinking", .type = GB_RPC_BOOL, .doc = "for templates that know it; default true"},
    {0},
};

static const gb_rpc_field apply_template_result[] = {
    {.name = "text", .type = GB_RPC_TEXT, .doc = "the prompt"},
    {.name = "tokens", .type = GB_RPC_INT, .shape = GB_RPC_LIST, .optional = true,
     .doc = "the prompt as ids; absent without tokenizer"},
    {.name = "count", .type = GB_RPC_INT, .optional = true, .doc = "how many; absent without tokenizer"},
    {0},
};

const gb_rpc_method gb_rpc_text_methods[] = {
    {"tokenize", GB_RPC_NEEDS_HELLO, 1, run_tokenize, tokenize_params, tokenize_result, "Text to token ids."},
    {"detokenize", GB_RPC_NEEDS_HELLO, 1, run_detokenize, detokenize_params, detokenize_result, "Token ids to text."},
    {"apply_template", GB_RPC_NEEDS_HELLO, 1, run_apply_template, apply_template_params, apply_template_result,
     "What the model's chat template makes of messages."},
    {0},
};
