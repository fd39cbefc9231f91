#include "bindings/cli/command.h"

#include <jansson.h>
#include <uv.h>

#include "bindings/c/version.h"

typedef struct version_flags {
    bool json;
} version_flags;

static const gb_flag flags[] = {
    GB_FLAG(version_flags, json, BOOL, "false", 0, 0, "", "as one JSON object, with compiler and libraries"),
};

static int run(const gb_args *args)
{
    const version_flags *f = args->values;
    const char *git = gb_git_revision();
    if (f->json)
        printf("{\"name\": \"gimbal\", \"version\": \"%s\", \"git\": \"%s\", \"compiler\": \"%s\", "
               "\"libraries\": {\"libuv\": \"%s\", \"jansson\": \"%s\"}}\n",
               gb_version(), git, __VERSION__, uv_version_string(), jansson_version_str());
    else
        printf("gimbal %s%s%s%s\n", gb_version(), *git ? " (" : "", git, *git ? ")" : "");
    return GB_EXIT_OK;
}

const gb_command gb_command_version = {
    .name = "version", .arguments = "", .summary = "say what this build is",
    .flags = flags, .n_flags = sizeof flags / sizeof *flags, .values_bytes = sizeof(version_flags), .run = run,
};
