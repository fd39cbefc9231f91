/* The flags of cancelled works: each holds the number of the round it was raised for, plus one. */
#include "cuda/host/context.h"

#include <stdatomic.h>

struct gb_cuda_flags {
    _Atomic uint64_t round;    /* seq + 1; 0 = never */
};

int gb_cuda_flags_new(gb_cuda *cuda)
{
    const gb_ops_limits *limits = &cuda->base.info.limits;
    cuda->cancelled = GB_ARENA_NEW(&cuda->arena, struct gb_cuda_flags, (size_t)limits->engines * limits->max_works);
    return cuda->cancelled ? GB_OK : gb_k_fail(GB_ENOMEM, "out of memory for the flags of cancelled works");
}

static struct gb_cuda_flags *flag(gb_cuda *cuda, uint32_t engine, uint32_t work)
{
    return &cuda->cancelled[(size_t)engine * cuda->base.info.limits.max_works + work];
}

void gb_cuda_cancel(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    atomic_store_explicit(&flag((gb_cuda *)ops, engine, work)->round, round_seq + 1, memory_order_release);
}

bool gb_cuda_cancelled(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    return atomic_load_explicit(&flag((gb_cuda *)ops, engine, work)->round, memory_order_acquire) == round_seq + 1;
}
