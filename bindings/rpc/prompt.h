/* A prompt as tokens, from whichever form a client sent: text, token ids or messages. */
#ifndef GB_RPC_PROMPT_H
#define GB_RPC_PROMPT_H

#include "bindings/rpc/method.h"

enum { GB_RPC_MESSAGES_MAX = 4096 };    /* of one chat */

typedef struct gb_rpc_tokens {
    const int32_t *ids;    /* the service's scratch: until the next call */
    uint32_t n;
} gb_rpc_tokens;

/* Each returns GB_RPC_REPLIED with *out filled, or GB_RPC_FAILED with call->error. `most` tokens are allowed; more is
   TOO_LARGE. */
gb_rpc_outcome gb_rpc_tokens_of_text(gb_rpc_call *call, gb_rpc_tokens *out, const char *path, const char *text, size_t bytes,
                                     uint32_t most);
gb_rpc_outcome gb_rpc_tokens_of_ids(gb_rpc_call *call, gb_rpc_tokens *out, const char *path, const msgpack_object *ids,
                                    uint32_t most);

/* The text of `messages` through the model's chat template; *text is malloc'd. */
gb_rpc_outcome gb_rpc_text_of_messages(gb_rpc_call *call, char **text, size_t *bytes, bool add_generation_prompt);

extern const gb_rpc_field gb_rpc_message_fields[];    /* role, content */

#endif
