/* One opened model with everything that serves it: config, tokenizer, executor, serving core, policy host, templates.
   The instance owns no thread and no clock; a driver (bindings/uv, a test, gimbal generate) runs rounds and passes the time. */
#ifndef GB_C_INSTANCE_H
#define GB_C_INSTANCE_H

#include "bindings/c/options.h"
#include "bindings/lua/lua_host.h"
#include "bindings/lua/lua_template.h"
#include "core/forward/executor.h"
#include "core/model/config.h"
#include "core/serve/server.h"

typedef struct gb_instance {
    const gb_options *options;          /* kept by reference */
    char model_name[256];
    gb_model_config config;
    gb_generation_config generation;
    gb_tokenizer *tokenizer;            /* NULL: token ids only */
    gb_executor *executor;
    gb_server *server;
    gb_lua_host *policies;
    gb_lua_template *chat_template;     /* NULL: no messages */
    gb_arena arena;
    gb_round round;
    gb_result result;
    gb_copy_list copies;                /* of gb_instance_step */
    double load_seconds;
} gb_instance;

/* Opens the model of options->model. Errors as the loaders report them; GB_EINVAL when dp, tp and ep disagree (all three are
   named). Logs what it loads at GB_LOG_INFO. */
int  gb_instance_open(gb_instance **out, const gb_options *options, gb_error *err);
void gb_instance_close(gb_instance *instance);

/* What the options allow scripts. */
gb_lua_budgets gb_policy_budgets(const gb_options *options);

/* Sampling as the model wants it when the request is silent: generation_config, else temperature 1; max_tokens = rest of
   the context. */
void gb_instance_sampling(const gb_instance *instance, gb_sampling *sampling);

/* Runs one round on the calling thread: poll_round, executor, round_done; then copies experts that are on the move. False when
   there was nothing to do. For drivers without threads (generate, tests). clock() gives the time after the round. */
bool gb_instance_step(gb_instance *instance, gb_time (*clock)(void));

#endif
