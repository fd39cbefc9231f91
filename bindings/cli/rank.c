/* One rank of a model on several GPUs, in a process of its own: started by a backend that spreads its ranks over processes, and told what
   to do through a socket. Nothing touches a GPU before. */
#include "bindings/c/backend.h"
#include "bindings/cli/command.h"

static int run(const gb_args *args)
{
    const gb_backend *backend = NULL;
    gb_error err = {0};
    int status = args->n_words ? gb_backend_load(&backend, args->words[0], NULL, &err) : gb_fail(&err, GB_EINVAL, "a rank needs the name of its backend");
    if (!status && !backend->serve_rank) status = gb_fail(&err, GB_EUNSUPPORTED, "backend %s has no ranks in processes of their own", args->words[0]);
    if (!status) status = backend->serve_rank(GB_BACKEND_RANK_SOCKET, &err);
    return status ? gb_command_failed(status, &err) : GB_EXIT_OK;
}

const gb_command gb_command_rank = {
    .name = "rank", .arguments = "BACKEND", .summary = "one rank of a model on several GPUs; gimbal starts it itself", .hidden = true, .max_words = 1,
    .run = run,
};
