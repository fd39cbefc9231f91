#include "bindings/cli/command.h"

#include <stdlib.h>

#include "bindings/rpc/service.h"

typedef struct api_flags {
    bool markdown;
} api_flags;

static const gb_flag flags[] = {
    GB_FLAG(api_flags, markdown, BOOL, "false", 0, 0, "", "as docs/rpc.md instead of JSON"),
};

static int run(const gb_args *args)
{
    const api_flags *f = args->values;
    const gb_error none = {0};
    char *text = f->markdown ? gb_rpc_api_markdown() : gb_rpc_api_json();
    if (!text) return gb_command_failed(GB_ENOMEM, &none);
    fputs(text, stdout);
    if (!f->markdown) fputc('\n', stdout);
    free(text);
    return GB_EXIT_OK;
}

const gb_command gb_command_api_info = {
    .name = "api-info", .arguments = "", .summary = "describe every method, event and error of msgpack-RPC, without a server",
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(api_flags), .run = run,
};
