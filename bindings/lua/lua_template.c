#include "bindings/lua/lua_template.h"

#include <jansson.h>
#include <lauxlib.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/lua/embedded.h"
#include "bindings/lua/lua_file.h"
#include "bindings/lua/lua_plain.h"

enum {
    TEMPLATE_MEMORY = 256 * 1024 * 1024,    /* cap, not use: a conversation is copied a few times */
    STATE_BYTES = 8 * 1024 * 1024,          /* garbage beyond which a finished call is collected */
};

struct gb_lua_template {
    gb_lua_plain plain;    /* the function is the bottom of its stack */
    char name[256];
};

/* ---- which one ---- */

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

/* The shipped template that says the same as a model's own text, or NULL. A text that adds a system message, or knows tools or
   thoughts that we do not render, is none of ours: a wrong template would quietly spoil every answer. */
static const char *shipped_for(const char *text)
{
    if (!has(text, "<|im_start|>") || !has(text, "<|im_end|>")) return NULL;
    if (has(text, "enable_thinking is false") && has(text, "</think>") && has(text, "<tool_response>")) return "qwen3";
    if (!has(text, "system") && !has(text, "tool") && !has(text, "think")) return "chatml";
    return NULL;
}

/* chat_template is a text, or a list of named texts of which "default" counts. */
static const char *default_text(const json_t *value)
{
    if (json_is_string(value)) return json_string_value(value);
    size_t i;
    json_t *entry;
    json_array_foreach(value, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) return json_string_value(json_object_get(entry, "template"));
    }
    return NULL;
}

static bool read_whole(char **text, const char *dir, const char *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    *text = calloc(1, GB_LUA_PLAIN_SOURCE_MAX + 1);
    if (*text) fread(*text, 1, GB_LUA_PLAIN_SOURCE_MAX, f);
    fclose(f);
    return *text != NULL;
}

/* Newer checkpoints keep the text in chat_template.jinja, older ones in tokenizer_config.json. */
static int choose(const char **name, const char *dir, gb_error *err)
{
    char *text = NULL, path[PATH_MAX];
    if (read_whole(&text, dir, "chat_template.jinja")) {
        *name = shipped_for(text);
        free(text);
    } else {
        json_error_t why;
        snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
        json_t *config = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
        if (!config && json_error_code(&why) != json_error_cannot_open_file)
            return gb_fail(err, GB_EFORMAT, "%s:%d: %s", path, why.line, why.text);
        const char *found = config ? default_text(json_object_get(config, "chat_template")) : NULL;
        *name = found ? shipped_for(found) : NULL;
        json_decref(config);
    }
    if (*name) return GB_OK;
    return gb_fail(err, GB_ENOTFOUND,
                   "no shipped chat template fits the model in %s; name one with --chat-template chatml, qwen3 or a .lua file", dir);
}

/* ---- making ---- */

static int keep_function(gb_lua_template *t, const char *chunk, const char *source, size_t bytes, gb_error *err)
{
    int status = gb_lua_plain_run(&t->plain, chunk, source, bytes, err);
    if (status) return status;
    if (lua_isfunction(t->plain.L, -1)) return GB_OK;
    return gb_fail(err, GB_EINVAL, "%s returned a %s; a template returns function(messages, options)", chunk, luaL_typename(t->plain.L, -1));
}

static bool is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 4 && strcmp(name + n - 4, ".lua") == 0);
}

static int load_file(gb_lua_template *t, const char *path, gb_error *err)
{
    gb_lua_text text;
    int status = gb_lua_file_read(&text, path, "a chat template", GB_LUA_PLAIN_SOURCE_MAX, err);
    if (!status) status = keep_function(t, path, text.data, text.bytes, err);
    gb_lua_text_free(&text);
    return status;
}

static int load_shipped(gb_lua_template *t, const char *name, gb_error *err)
{
    char file[PATH_MAX];
    snprintf(file, sizeof file, "lua/templates/%s.lua", name);
    const gb_embedded_file *shipped = gb_embedded_find(file);
    if (!shipped) return gb_fail(err, GB_ENOTFOUND, "there is no chat template \"%s\"; use auto, chatml, qwen3 or a .lua file", name);
    return keep_function(t, file, shipped->data, shipped->bytes, err);
}

int gb_lua_template_new(gb_lua_template **out, const char *name, const char *model_dir, gb_error *err)
{
    int status = strcmp(name, "auto") == 0 ? choose(&name, model_dir, err) : GB_OK;
    if (status) return status;
    gb_lua_template *t = calloc(1, sizeof *t);
    if (!t) return gb_fail(err, GB_ENOMEM, "out of memory for a chat template");
    snprintf(t->name, sizeof t->name, "%s", name);
    status = gb_lua_plain_init(&t->plain, GB_LUA_PURE, TEMPLATE_MEMORY, err);
    if (!status) status = is_path(name) ? load_file(t, name, err) : load_shipped(t, name, err);
    if (status) {
        gb_lua_template_free(t);
        return status;
    }
    *out = t;
    return GB_OK;
}

void gb_lua_template_free(gb_lua_template *t)
{
    if (!t) return;
    gb_lua_plain_deinit(&t->plain);
    free(t);
}

const char *gb_lua_template_name(const gb_lua_template *t) { return t->name; }

/* ---- rendering ---- */

typedef struct conversation {
    const gb_message *messages;
    size_t n;
    bool add_generation_prompt, enable_thinking;
} conversation;

static void push_field(lua_State *L, const char *name, const char *text, size_t bytes)
{
    lua_pushlstring(L, text, bytes);
    lua_setfield(L, -2, name);
}

/* (template, conversation) -> text; inside a protected call, for every push may run out of memory. */
static int render(lua_State *L)
{
    const conversation *c = lua_touserdata(L, 2);
    lua_settop(L, 1);
    lua_createtable(L, c->n < INT_MAX ? (int)c->n : 0, 0);
    for (size_t i = 0; i < c->n; i++) {
        lua_createtable(L, 0, 2);
        push_field(L, "role", c->messages[i].role, c->messages[i].role_bytes);
        push_field(L, "content", c->messages[i].content, c->messages[i].content_bytes);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_createtable(L, 0, 2);
    lua_pushboolean(L, c->add_generation_prompt);
    lua_setfield(L, -2, "add_generation_prompt");
    lua_pushboolean(L, c->enable_thinking);
    lua_setfield(L, -2, "enable_thinking");
    lua_call(L, 2, 1);
    return 1;
}

static int copy_result(const gb_lua_template *t, char **text, size_t *bytes, gb_error *err)
{
    lua_State *L = t->plain.L;
    if (lua_type(L, -1) != LUA_TSTRING)
        return gb_fail(err, GB_EINVAL, "chat template %s returned a %s; it must return the text", t->name, luaL_typename(L, -1));
    const char *result = lua_tolstring(L, -1, bytes);
    *text = malloc(*bytes + 1);
    if (!*text) return gb_fail(err, GB_ENOMEM, "out of memory for a rendered conversation");
    memcpy(*text, result, *bytes + 1);
    return GB_OK;
}

int gb_lua_template_apply(gb_lua_template *t, char **text, size_t *bytes, const gb_message *messages, size_t n,
                          bool add_generation_prompt, bool enable_thinking, gb_error *err)
{
    lua_State *L = t->plain.L;
    conversation c = {messages, n, add_generation_prompt, enable_thinking};
    lua_pushcfunction(L, render);
    lua_pushvalue(L, 1);
    lua_pushlightuserdata(L, &c);
    int status = gb_lua_plain_call(&t->plain, 2, err);
    if (!status) status = copy_result(t, text, bytes, err);
    lua_settop(L, 1);
    if (t->plain.arena.live_bytes > STATE_BYTES) lua_gc(L, LUA_GCCOLLECT, 0);
    return status;
}
