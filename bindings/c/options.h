/* Every option of gimbal in one table: flag, environment name, config key, type, default, help. Command line > GIMBAL_*
   environment > config file > default; each value remembers where it came from. The file is a library of its own below
   Lua, so that config files in Lua can set options without linking upwards. */
#ifndef GB_C_OPTIONS_H
#define GB_C_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/arena.h"
#include "core/base/status.h"

typedef enum gb_option_type { GB_OPTION_STRING, GB_OPTION_INT, GB_OPTION_FLOAT, GB_OPTION_BOOL } gb_option_type;

/* X(group, key, type, default text ("" = unset), low, high, metavar, help). The flag is --key with '_' as '-'; the environment
   name is GIMBAL_KEY. Integers take K, M and G suffixes (powers of 1024). A metavar of the form a|b|c lists all choices. */
#define GB_OPTIONS(X) \
    X("model", model, STRING, "", 0, 0, "DIR", "Hugging Face model directory") \
    X("model", served_model_name, STRING, "", 0, 0, "NAME", "name reported to clients (default: the directory's name)") \
    X("model", dtype, STRING, "auto", 0, 0, "auto|bfloat16|float32", "type of the weights in memory; auto is the checkpoint's") \
    X("model", chat_template, STRING, "auto", 0, 0, "NAME", "chat template: auto, chatml, qwen3 or a .lua file") \
    X("model", max_model_len, INT, "0", 0, 1048576, "N", "longest sequence in tokens (default: the model's)") \
    X("parallel", data_parallel_size, INT, "1", 1, 512, "N", "engines: attention replicas with their own queue and KV cache; also -dp") \
    X("parallel", expert_parallel_size, INT, "0", 0, 512, "N", "ranks holding experts (default: data-parallel x tensor-parallel); also -ep") \
    X("parallel", tensor_parallel_size, INT, "0", 0, 512, "N", "ranks of one engine (default: from the other two, else 1); also -tp") \
    X("parallel", distributed_executor_backend, STRING, "auto", 0, 0, "auto|one|threads|processes", \
      "cuda: where ranks are: all on one GPU, or with a GPU each on threads or in processes; auto is threads where there are enough GPUs") \
    X("parallel", all2all_backend, STRING, "auto", 0, 0, "auto|agrs|sendrecv|lsa", \
      "cuda: how tokens travel between GPUs: all-gather and reduce-scatter, send and receive, or stores into each other's memory") \
    X("parallel", collective_timeout_ms, INT, "30000", 1, 3600000, "MS", \
      "cuda: GPUs that wait longer for each other give up, and their engines are down") \
    X("compute", backend, STRING, "auto", 0, 0, "auto|cpu|cuda|cuemu", \
      "what runs the model; auto is cuda where it can run, else cpu; cuemu runs the CUDA code on the CPU, slowly, to check it") \
    X("compute", enforce_eager, BOOL, "false", 0, 0, "", "cuda: launch the kernels of a decode step one by one instead of as one graph") \
    X("compute", cuda_experts, STRING, "auto", 0, 0, "auto|wgmma|mma|cublas", \
      "cuda: the products of experts: wgmma on Hopper, else mma; cublas is a call for each expert, slow and not batch-invariant, to compare with") \
    X("compute", threads, INT, "0", 0, 1024, "N", "compute threads (default: the CPUs this process may use)") \
    X("compute", cpu_kernels, STRING, "auto", 0, 0, "auto|scalar|avx2|avx512f|avx512_bf16", \
      "instruction set of the kernels; auto takes the fastest, measured at start") \
    X("compute", kv_cache_memory, INT, "512M", 1, 1099511627776, "BYTES", "KV cache of all engines together, at most a quarter of memory") \
    X("compute", rank_memory, STRING, "shared", 0, 0, "shared|private", \
      "memory of the expert ranks: one for all, where moving an expert changes a pointer, or each its own, where bytes move") \
    X("compute", enable_prefix_caching, BOOL, "true", 0, 0, "", "requests that begin alike share their full KV blocks") \
    X("scheduling", max_num_seqs, INT, "64", 1, 4096, "N", "running requests per engine") \
    X("scheduling", max_num_batched_tokens, INT, "512", 16, 65536, "N", "tokens computed per engine and round") \
    X("scheduling", max_queue, INT, "4096", 1, 65536, "N", "live requests in the whole server") \
    X("scheduling", aging_ms, INT, "5000", 0, 86400000, "MS", "waiting longer than this promotes a request") \
    X("scheduling", stale_after_ms, INT, "1000", 1, 86400000, "MS", \
      "a trace older than this makes selection fall back to ordered dispatch") \
    X("scheduling", window_rounds, INT, "64", 1, 1000000, "N", "rounds in a profiling window of expert counts") \
    X("scheduling", window_ms, INT, "0", 0, 86400000, "MS", "a window ends earlier when it has lasted so long (default: rounds only)") \
    X("scheduling", rearrange_every, INT, "4", 0, 1000000, "N", "windows between two rearrangements of experts over ranks; 0: never") \
    X("scheduling", placement_weights, STRING, "paper", 0, 0, "paper|balanced|latency", \
      "what a placement of experts is worth: communication, imbalance and moves") \
    X("scheduling", rearrange_min_gain, FLOAT, "0.01", 0, 1, "X", "experts stay unless their placement gets better by at least this share") \
    X("scheduling", rearrange_max_moves, INT, "192", 0, 4294967294.0, "N", "most experts moved by one rearrangement") \
    X("scheduling", rearrange_max_bytes, INT, "4G", 0, 1125899906842624.0, "BYTES", "most bytes moved by one rearrangement") \
    X("scheduling", spare_slots, INT, "0", 0, 512, "N", "slots of each rank and layer for copies of experts, placed by who uses them") \
    X("scheduling", migration_bytes, INT, "1M", 1, 1073741824, "BYTES", "most bytes of moving experts that are copied beside one round") \
    X("scheduling", force_migration_every, INT, "0", 0, 1000000, "N", \
      "rounds between moves of random experts in every layer, to try migration out (default: never)") \
    X("scheduling", seed, INT, "0", 0, 9223372036854775807, "N", "seed for requests without their own") \
    X("policies", policy, STRING, "", 0, 0, "NAME", \
      "one policy for all that it can decide, before the defaults of the next options: a shipped name or a .lua file") \
    X("policies", policy_select, STRING, "gimbal", 0, 0, "NAME", "policy for select_engine: a shipped name or a .lua file") \
    X("policies", policy_order, STRING, "gimbal", 0, 0, "NAME", "policy for order_queue: a shipped name or a .lua file") \
    X("policies", policy_place, STRING, "builtin", 0, 0, "NAME", \
      "policy for score_expert and placement_cost: builtin (search with a proved bound), a shipped name or a .lua file") \
    X("policies", policy_select_ms, INT, "2", 1, 10000, "MS", "CPU time after which a script is stopped: one select_engine") \
    X("policies", policy_order_ms, INT, "5", 1, 10000, "MS", "the same: one order_queue") \
    X("policies", policy_place_ms, INT, "250", 1, 60000, "MS", "the same: a whole rearrangement of experts") \
    X("policies", policy_load_ms, INT, "100", 1, 60000, "MS", "the same: running the file itself") \
    X("policies", policy_carry_ms, INT, "20", 1, 10000, "MS", "the same: export or import of state at a swap") \
    X("policies", policy_memory, INT, "32M", 4194304, 1073741824, "BYTES", "memory that a script may hold") \
    X("policies", policy_place_memory, INT, "64M", 4194304, 1073741824, "BYTES", "memory that a script which places experts may hold") \
    X("policies", policy_dir, STRING, "", 0, 0, "DIR", "load every *.lua policy of this directory at start") \
    X("policies", policy_watch, BOOL, "false", 0, 0, "", \
      "for development: load a file of policy_dir anew when it changes; it decides at once where a policy of its name does") \
    X("policies", policy_check, BOOL, "true", 0, 0, "", \
      "a policy is checked in a process of its own before policy_load takes it; what fails there is not loaded") \
    X("policies", policy_store, STRING, "", 0, 0, "DIR", \
      "keep loaded policies and changes of what decides in this directory, and restore what decided last at start") \
    X("policies", journal, STRING, "", 0, 0, "FILE", "record what select_engine and order_queue see, for gimbal policy diff") \
    X("policies", journal_size, INT, "64M", 65536, 1099511627776, "BYTES", \
      "most bytes of the journal: half of them in FILE, what came before in FILE.1") \
    X("network", socket, STRING, "", 0, 0, "PATH", \
      "Unix socket for msgpack-RPC, mode 0600 (default without rpc_port: $XDG_RUNTIME_DIR/gimbal.sock or ~/.gimbal.sock)") \
    X("network", rpc_host, STRING, "127.0.0.1", 0, 0, "ADDR", "address for msgpack-RPC over TCP") \
    X("network", rpc_port, INT, "-1", -1, 65535, "PORT", "TCP port for msgpack-RPC; 0 picks a free one, -1 turns TCP off") \
    X("network", api_key_file, STRING, "", 0, 0, "FILE", "clients over TCP must present the key in this file") \
    X("network", admin_token_file, STRING, "", 0, 0, "FILE", \
      "admin methods over TCP need the token in this file; without it they are Unix-socket only") \
    X("network", shutdown_timeout_s, INT, "30", 0, 86400, "S", "how long SIGTERM waits for open requests") \
    X("logging", log_level, STRING, "info", 0, 0, "debug|info|warn|error", "least level that is logged to standard error") \
    X("logging", log_format, STRING, "text", 0, 0, "text|json", "one line of text or one JSON object for each log entry")

#define X(group, key, type, text, low, high, metavar, help) +1
enum { GB_OPTION_COUNT = 0 GB_OPTIONS(X) };
#undef X

#define GB_OPTION_C_STRING const char *
#define GB_OPTION_C_INT int64_t
#define GB_OPTION_C_FLOAT double
#define GB_OPTION_C_BOOL bool

/* The values. Strings are never NULL ("" = unset) and live in the arena until gb_options_deinit. */
typedef struct gb_options {
#define X(group, key, type, text, low, high, metavar, help) GB_OPTION_C_##type key;
    GB_OPTIONS(X)
#undef X
    const char *sources[GB_OPTION_COUNT];    /* per option in table order: "default", "config FILE", "environment", "command line" */
    const char *config;         /* the file that was read, or NULL */
    gb_arena arena;
} gb_options;

typedef struct gb_option_row {
    const char *group, *key;
    gb_option_type type;
    const char *text;           /* the default */
    double low, high;
    const char *metavar, *help;
} gb_option_row;

extern const gb_option_row gb_option_rows[];
extern const uint32_t gb_option_count;

int  gb_options_init(gb_options *options);    /* all defaults; GB_ENOMEM */
void gb_options_deinit(gb_options *options);

/* Sets one option from text (key with '_' or '-'): GB_EINVAL naming key, value, source and range; GB_ENOTFOUND with the
   nearest name. value and source are copied. */
int gb_options_set(gb_options *options, const char *key, const char *value, const char *source, gb_error *err);
int gb_options_read_environment(gb_options *options, gb_error *err);    /* GIMBAL_KEY of every row */

const gb_option_row *gb_options_find(const char *key);    /* NULL when unknown; '-' is '_' */

/* Checks text against a row and stores it: a const char * (the text itself), int64_t, double or bool. For flags that are no
   options, too. GB_EINVAL with what was expected ("an integer from 1 to 4096"). */
int gb_option_parse(const gb_option_row *row, const char *text, void *value, gb_error *err);

/* Text of one value ("" when unset), for --print-config and config_get. */
void gb_options_format(const gb_options *options, uint32_t row, char *out, size_t capacity);

/* All values and where they came from, as a config file in Lua. */
void gb_options_print(const gb_options *options, FILE *out);
void gb_options_help(FILE *out);                                          /* the rows, by group */
void gb_option_help_line(FILE *out, const char *flag, const char *metavar, const char *help, const char *text);

#endif
