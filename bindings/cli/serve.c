#include "bindings/cli/command.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/c/instance.h"
#include "bindings/c/version.h"
#include "bindings/cli/log_lines.h"
#include "bindings/cli/map_guard.h"
#include "bindings/uv/driver.h"
#include "bindings/uv/socket_path.h"

enum { KEY_BYTES = 1024, PATH_BYTES = 512, ADDRESS_BYTES = 1024 };

/* A secret from a file: its first line. */
typedef struct secret {
    char text[KEY_BYTES];
} secret;

static int read_secret(secret *s, const char *path, gb_error *err)
{
    s->text[0] = '\0';
    if (!*path) return GB_OK;
    FILE *file = fopen(path, "re");
    if (!file) return gb_fail(err, GB_EINVAL, "key file %s cannot be opened: %s; write the key into it, or leave the option out", path, strerror(errno));
    size_t n = fread(s->text, 1, sizeof s->text, file);
    fclose(file);
    size_t line = 0;
    while (line < n && s->text[line] != '\n' && s->text[line] != '\r') line++;
    if (line == 0 || line == sizeof s->text) return gb_fail(err, GB_EINVAL, "key file %s: its first line must have 1 to %d bytes", path, KEY_BYTES - 1);
    s->text[line] = '\0';
    return GB_OK;
}

static void log_options(const gb_options *options)
{
    char text[1024];
    for (uint32_t i = 0; i < gb_option_count; i++) {
        if (strcmp(options->sources[i], "default") == 0) continue;
        gb_options_format(options, i, text, sizeof text);
        gb_log(GB_LOG_INFO, "option %s = %s (%s)", gb_option_rows[i].key, text, options->sources[i]);
    }
}

static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

static int listen_tcp(gb_driver *driver, const gb_options *options, char *address, gb_error *err)
{
    uint16_t bound = 0;
    int status = gb_driver_listen_tcp(driver, options->rpc_host, (uint16_t)options->rpc_port, &bound, err);
    if (status) return status;
    size_t n = strlen(address);
    snprintf(address + n, ADDRESS_BYTES - n, "%stcp:%s:%u", n ? " " : "", options->rpc_host, bound);
    gb_log(GB_LOG_INFO, "listening on tcp:%s:%u (%s, %s)", options->rpc_host, bound, *options->api_key_file ? "with key" : "without key",
           *options->admin_token_file ? "admin with token" : "no admin");
    if (!*options->api_key_file && !is_loopback(options->rpc_host))
        gb_log(GB_LOG_WARN, "%s is no loopback address and no --api-key-file is given: whoever reaches it may generate", options->rpc_host);
    return GB_OK;
}

/* The Unix socket is the default; whoever asks for TCP alone gets TCP alone. */
static int listen_all(gb_driver *driver, const gb_options *options, char *address, gb_error *err)
{
    char path[PATH_BYTES];
    bool tcp = options->rpc_port >= 0;
    snprintf(path, sizeof path, "%s", options->socket);
    if (!*path && !tcp && gb_socket_path_default(path, sizeof path))
        return gb_fail(err, GB_EINVAL, "no address to listen on: give --socket PATH or --rpc-port PORT");
    int status = *path ? gb_driver_listen_unix(driver, path, err) : GB_OK;
    if (status) return status;
    if (*path) {
        snprintf(address, ADDRESS_BYTES, "unix:%s", path);
        gb_log(GB_LOG_INFO, "listening on unix:%s (mode 0600, admin)", path);
    }
    return tcp ? listen_tcp(driver, options, address, err) : GB_OK;
}

static int cannot_listen(int status, const gb_error *err)
{
    gb_command_failed(status, err);
    return status == GB_EINVAL || status == GB_ETOOBIG ? GB_EXIT_USAGE : GB_EXIT_UNAVAILABLE;
}

static int serve(gb_instance *instance, const secret *key, const secret *token)
{
    const gb_options *options = instance->options;
    gb_driver_options driver_options = {
        .shutdown_timeout = gb_seconds((uint64_t)options->shutdown_timeout_s), .stats_every = gb_seconds(10),
        .executable = "/proc/self/exe", .checks_loads = options->policy_check,
        .watched_dir = options->policy_watch ? options->policy_dir : NULL,
        .api_key = key->text[0] ? key->text : NULL, .admin_token = token->text[0] ? token->text : NULL,
    };
    gb_driver *driver = NULL;
    gb_error err = {0};
    char address[ADDRESS_BYTES] = "";
    int status = gb_driver_new(&driver, instance, &driver_options, &err);
    if (!status) status = gb_driver_catch_signals(driver, &err);
    if (status) {
        gb_driver_free(driver);
        return gb_command_failed(status, &err);
    }
    int code = GB_EXIT_OK;
    status = listen_all(driver, options, address, &err);
    if (status) {
        code = cannot_listen(status, &err);
    } else {
        gb_log(GB_LOG_INFO, "ready: %s in %.1f s", address, instance->load_seconds);
        if (gb_driver_run(driver)) code = GB_EXIT_ENGINE;
        gb_log(GB_LOG_INFO, "stopped");
    }
    gb_driver_free(driver);
    return code;
}

/* Processes that check policies are told the budgets of this server, wherever it has them from. Before there are threads. */
static void pass_on_budgets(const gb_options *options)
{
    for (uint32_t i = 0; i < gb_option_count; i++) {
        char name[64] = "GIMBAL_", text[64];
        size_t n = strlen(name);
        if (strcmp(gb_option_rows[i].group, "policies") != 0 || gb_option_rows[i].type != GB_OPTION_INT) continue;
        for (const char *c = gb_option_rows[i].key; *c && n + 1 < sizeof name; c++) name[n++] = (char)toupper((unsigned char)*c);
        gb_options_format(options, i, text, sizeof text);
        setenv(name, text, 1);
    }
}

static int run(const gb_args *args)
{
    gb_options *options = args->options;
    gb_instance *instance = NULL;
    gb_error err = {0};
    secret key, token;
    signal(SIGPIPE, SIG_IGN);    /* a reader of the log that goes away */
    gb_log_lines_start(options->log_level, options->log_format);
    gb_log(GB_LOG_INFO, "gimbal %s%s%s%s", gb_version(), *gb_git_revision() ? " (" : "", gb_git_revision(), *gb_git_revision() ? ")" : "");
    int status = GB_OK;
    if (args->n_words) status = gb_options_set(options, "model", args->words[0], "command line", &err);
    log_options(options);
    pass_on_budgets(options);
    if (!status) status = read_secret(&key, options->api_key_file, &err);
    if (!status) status = read_secret(&token, options->admin_token_file, &err);
    if (!status && options->policy_watch && !*options->policy_dir)
        status = gb_fail(&err, GB_EINVAL, "policy_watch needs a directory to watch: give --policy-dir DIR");
    gb_map_guard_start();
    if (!status) status = gb_instance_open(&instance, options, &err);
    gb_map_guard_stop();
    int code = status ? gb_command_failed(status, &err) : serve(instance, &key, &token);
    gb_instance_close(instance);
    return code;
}

const gb_command gb_command_serve = {
    .name = "serve", .arguments = "MODEL_DIR", .summary = "serve a model over msgpack-RPC until a signal ends it",
    .takes_options = true, .max_words = 1, .run = run,
};
