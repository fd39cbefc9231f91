/* Chat templates: trusted Lua functions (lua/templates/NAME.lua), shipped in the binary or given as a file. Each returns
   function(messages, options) -> text. No Jinja, none from a request. */
#ifndef GB_LUA_TEMPLATE_H
#define GB_LUA_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"

typedef struct gb_message {
    const char *role, *content;
    size_t role_bytes, content_bytes;
} gb_message;

typedef struct gb_lua_template gb_lua_template;

/* name: chatml, qwen3, a .lua path, or auto, which reads DIR/tokenizer_config.json and picks the shipped template that its
   chat_template text asks for; GB_ENOTFOUND when auto finds none (then the model has no messages). */
int  gb_lua_template_new(gb_lua_template **out, const char *name, const char *model_dir, gb_error *err);
void gb_lua_template_free(gb_lua_template *t);
const char *gb_lua_template_name(const gb_lua_template *t);

/* Renders messages into *text (malloc'd, terminated; the caller frees it). GB_EINVAL with the template's own sentence for a
   role it does not know and the like. */
int gb_lua_template_apply(gb_lua_template *t, char **text, size_t *bytes, const gb_message *messages, size_t n,
                          bool add_generation_prompt, bool enable_thinking, gb_error *err);

#endif
