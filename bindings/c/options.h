/* Every option of gimbal in one table: flag, environment name, config key, type, default, help. CLI > GIMBAL_* environment >
   config file > default; each value remembers where it came from. */
#ifndef GB_C_OPTIONS_H
#define GB_C_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/status.h"

typedef enum gb_option_type { GB_OPTION_STRING, GB_OPTION_INT, GB_OPTION_FLOAT, GB_OPTION_BOOL } gb_option_type;

/* X(key, type, default text ("" = unset), low, high, metavar, help). The flag is --key with '_' as '-'; the environment name is
   GIMBAL_KEY. Sizes take K/M/G suffixes. */
#define GB_OPTIONS(X) \
    X(model, STRING, "", 0, 0, "DIR", "Hugging Face model directory") \
    X(served_model_name, STRING, "", 0, 0, "NAME", "name reported to clients (default: the directory's name)") \
    X(backend, STRING, "cpu", 0, 0, "NAME", "cpu") \
    X(dtype, STRING, "auto", 0, 0, "TYPE", "auto (the checkpoint's), bfloat16 or float32") \
    X(data_parallel_size, INT, "1", 1, 512, "N", "engines: attention replicas with their own queue and KV cache") \
    X(expert_parallel_size, INT, "0", 0, 512, "N", "ranks holding experts (default: data-parallel x tensor-parallel)") \
    X(tensor_parallel_size, INT, "0", 0, 512, "N", "ranks of one engine (default: from the other two, else 1)") \
    X(max_model_len, INT, "0", 0, 1048576, "N", "longest sequence in tokens (default: the model's)") \
    X(max_num_seqs, INT, "64", 1, 4096, "N", "running requests per engine") \
    X(max_num_batched_tokens, INT, "512", 16, 65536, "N", "tokens computed per engine and round") \
    X(kv_cache_memory, INT, "512M", 1, 1099511627776, "BYTES", "KV cache of all engines together") \
    X(max_queue, INT, "4096", 1, 65536, "N", "live requests in the whole server") \
    X(threads, INT, "0", 0, 1024, "N", "compute threads (default: the CPUs this process may use)") \
    X(cpu_kernels, STRING, "auto", 0, 0, "NAME", "auto (measured at start), scalar, avx2, avx512f or avx512_bf16") \
    X(seed, INT, "0", 0, 9223372036854775807, "N", "seed for requests without their own") \
    X(policy_select, STRING, "gimbal", 0, 0, "NAME", "policy for select_engine: a built-in name or a .lua file") \
    X(policy_order, STRING, "gimbal", 0, 0, "NAME", "policy for order_queue: a built-in name or a .lua file") \
    X(policy_dir, STRING, "", 0, 0, "DIR", "load every *.lua policy of this directory at start") \
    X(chat_template, STRING, "auto", 0, 0, "NAME", "chat template: auto, chatml, qwen3 or a .lua file") \
    X(aging_ms, INT, "5000", 0, 86400000, "MS", "waiting longer than this promotes a request") \
    X(stale_after_ms, INT, "1000", 1, 86400000, "MS", "a trace older than this makes selection fall back to ordered dispatch") \
    X(window_rounds, INT, "64", 1, 1000000, "N", "rounds in a profiling window of expert counts") \
    X(socket, STRING, "", 0, 0, "PATH", "Unix socket for msgpack-RPC, created with mode 0600") \
    X(rpc_host, STRING, "127.0.0.1", 0, 0, "ADDR", "address for msgpack-RPC over TCP") \
    X(rpc_port, INT, "-1", -1, 65535, "PORT", "TCP port for msgpack-RPC; 0 picks a free one, -1 turns TCP off") \
    X(api_key_file, STRING, "", 0, 0, "FILE", "clients over TCP must present this key") \
    X(admin_token_file, STRING, "", 0, 0, "FILE", "admin methods over TCP need this token; without it they are Unix-socket only") \
    X(shutdown_timeout_s, INT, "30", 0, 86400, "S", "how long SIGTERM waits for open requests") \
    X(log_level, STRING, "info", 0, 0, "LEVEL", "debug, info, warn or error") \
    X(log_format, STRING, "text", 0, 0, "FORMAT", "text or json")

#define GB_OPTION_C_STRING const char *
#define GB_OPTION_C_INT int64_t
#define GB_OPTION_C_FLOAT double
#define GB_OPTION_C_BOOL bool

/* The values. Strings are owned by the struct (gb_options_deinit). */
typedef struct gb_options {
#define X(key, type, text, low, high, metavar, help) GB_OPTION_C_##type key;
    GB_OPTIONS(X)
#undef X
    const char *sources[64];    /* per option in table order: "default", "config FILE", "environment", "command line" */
    const char *config;         /* the file that was read, or NULL */
    void *memory;
} gb_options;

typedef struct gb_option_row {
    const char *key;
    gb_option_type type;
    const char *text;
    double low, high;
    const char *metavar, *help;
} gb_option_row;

extern const gb_option_row gb_option_rows[];
extern const uint32_t gb_option_count;

int  gb_options_init(gb_options *options);    /* all defaults */
void gb_options_deinit(gb_options *options);

/* Sets one option from text: GB_EINVAL with key, value, range; GB_ENOTFOUND with the nearest name. */
int gb_options_set(gb_options *options, const char *key, const char *value, const char *source, gb_error *err);
int gb_options_read_environment(gb_options *options, gb_error *err);    /* GIMBAL_* */

/* Text of one value ("" when unset), for --print-config and config_get. */
void gb_options_format(const gb_options *options, uint32_t row, char *out, size_t capacity);
void gb_options_print(const gb_options *options, FILE *out);         /* key = value  -- source */
void gb_options_help(FILE *out);

#endif
