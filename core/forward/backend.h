/* A backend: what can be asked before a model is open, and how to get an op table (ops.h) for one. The CPU's is linked in
   (core/cpu/cpu.h); others are plugins, libgimbal_NAME.so, whose only exported symbol is

       const gb_backend *gimbal_backend_open(uint32_t abi);

   It returns NULL when it cannot speak this ABI. A plugin carries its own copy of the rooms below it, so plain data crosses
   and no state does: log lines go through options->log. A gb_backend lives as long as the process. */
#ifndef GB_FORWARD_BACKEND_H
#define GB_FORWARD_BACKEND_H

#include "core/base/log.h"
#include "core/forward/ops.h"
#include "core/model/config.h"
#include "core/model/weights.h"

enum { GB_BACKEND_ABI = 5 };    /* raised with every change to this file, ops.h and what they carry */

enum {
    GB_BACKEND_TIMEOUT_MS = 30000,
    GB_BACKEND_RANK_SOCKET = 3,    /* where a rank's process finds what serve_rank takes */
};

#define GB_BACKEND_SYMBOL "gimbal_backend_open"

/* The device that would run a model. */
typedef struct gb_backend_device {
    char name[128];
    uint64_t memory;        /* bytes of its own; 0: it uses the machine's */
} gb_backend_device;

typedef struct gb_backend_options {
    gb_ops_limits limits;
    bool f32;               /* weights and KV cache in float32, else bfloat16 */
    uint32_t threads;       /* cpu: 0 = the CPUs this process may use */
    const char *kernels;    /* cpu: "auto" or a rung by name */
    bool eager;             /* cuda: every kernel of a decode step on its own, no graphs */
    const char *experts;    /* cuda: how experts' products run: "auto", "wgmma", "mma" or "cublas"; NULL = auto */
    const char *layout;     /* cuda: where ranks are: "one" device, "threads" or "processes" with a device each, "auto"; NULL = one */
    const char *exchange;   /* cuda: how tokens reach other ranks: "agrs", "sendrecv", "lsa", "auto"; NULL = auto */
    uint32_t timeout_ms;    /* cuda: of one collective; 0 = GB_BACKEND_TIMEOUT_MS */
    const char *directory;  /* the model's; only the layout processes opens it again */
    gb_log_sink *log;       /* any thread; NULL = silent */
    void *log_self;
} gb_backend_options;

/* Sizes of the structs that cross: a plugin of another build is refused although it speaks the same ABI. */
typedef struct gb_backend_sizes {
    uint32_t config, options, info, table, round, placement;
} gb_backend_sizes;

#define GB_BACKEND_SIZES \
    {sizeof(gb_model_config), sizeof(gb_backend_options), sizeof(gb_ops_info), sizeof(gb_ops_table), sizeof(gb_round), sizeof(gb_placement)}

typedef struct gb_backend {
    uint32_t abi;
    gb_backend_sizes sizes;
    const char *name;

    /* GB_EUNSUPPORTED with the reason when nothing here can run this backend. Optional: NULL always can. */
    int (*probe)(gb_backend_device *device, gb_error *err);
    /* Bytes of one KV block over all layers: what limits.blocks_per_engine multiplies. */
    size_t (*block_bytes)(const gb_model_config *config, bool f32);
    /* How many devices, each with memory of its own, would share the KV cache under these options; of limits ranks and engines are there.
       Optional: NULL = 1. */
    uint32_t (*devices)(const gb_model_config *config, const gb_backend_options *options);
    /* weights have passed gb_weights_check; they are read and not kept. GB_EINVAL for limits that do not fit the model,
       GB_EUNSUPPORTED for a model this backend cannot run, GB_ENOMEM. */
    int (*ops_new)(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                   gb_error *err);
    /* The life of one rank in a process of its own: carries out what the process behind the socket asks for until it closes it, and
       returns the status to exit with. Optional. */
    int (*serve_rank)(int socket, gb_error *err);
} gb_backend;

typedef const gb_backend *gb_backend_open_fn(uint32_t abi);

/* What every backend demands of limits: GB_EINVAL with the option to change. */
int gb_backend_check_limits(const gb_ops_limits *limits, const gb_model_config *config, gb_error *err);

#endif
