#include "cuda/host/layout.h"

#include <stdbool.h>
#include <string.h>

static bool is(const char *text, const char *name) { return strcmp(text ? text : "", name) == 0; }

/* Nobody needs to be told when auto stays on one device. */
static bool can_spread(const gb_model_config *config, const gb_ops_limits *limits, uint32_t devices)
{
    return limits->ranks > 1 && devices >= limits->ranks && config->kv_heads % (limits->ranks / limits->engines) == 0;
}

static int fail_devices(uint32_t ranks, uint32_t devices, gb_error *err)
{
    const char *variable = is(GB_CUDA_NAME, "cuemu") ? "CUEMU_DEVICES" : "CUDA_VISIBLE_DEVICES";
    return gb_fail(err, GB_EUNSUPPORTED, "backend " GB_CUDA_NAME ": %u ranks with a GPU each need %u of them, but %u can be seen: see %s, lower "
                   "--expert-parallel-size, or put all ranks on one GPU with --distributed-executor-backend one", ranks, ranks, devices, variable);
}

static int check_one(const gb_backend_options *options, gb_error *err)
{
    if (!options->exchange || is(options->exchange, "auto")) return GB_OK;
    return gb_fail(err, GB_EINVAL, "--all2all-backend %s is how tokens travel between GPUs, but all ranks are on one: give "
                   "--distributed-executor-backend threads or processes, or leave it at auto", options->exchange);
}

int gb_cuda_choose_layout(gb_cuda_layout *out, const gb_model_config *config, const gb_backend_options *options, uint32_t devices, gb_error *err)
{
    const gb_ops_limits *limits = &options->limits;
    const char *name = options->layout ? options->layout : "one";
    if (is(name, "auto")) *out = can_spread(config, limits, devices) ? GB_CUDA_THREADS : GB_CUDA_ONE;
    else if (is(name, "threads")) *out = GB_CUDA_THREADS;
    else if (is(name, "processes")) *out = GB_CUDA_PROCESSES;
    else if (is(name, "one")) *out = GB_CUDA_ONE;
    else return gb_fail(err, GB_EINVAL, "ranks cannot be laid out as \"%s\": choose auto, one, threads or processes", name);
    if (*out == GB_CUDA_ONE) return check_one(options, err);
    if (devices < limits->ranks) return fail_devices(limits->ranks, devices, err);
    if (*out == GB_CUDA_PROCESSES && !options->directory)
        return gb_fail(err, GB_EINVAL, "ranks in processes of their own read the model's directory, and none was given");
    return GB_OK;
}
