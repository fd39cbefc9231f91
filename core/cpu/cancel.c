/* The flags of cancelled works: each holds the number of the round it was raised for, plus one. */
#include "core/cpu/context.h"

#include <stdatomic.h>

struct gb_cpu_flags {
    _Atomic uint64_t round;    /* seq + 1; 0 = never */
};

int gb_cpu_flags_new(gb_cpu *cpu)
{
    const gb_ops_limits *limits = &cpu->base.info.limits;
    cpu->cancelled = GB_ARENA_NEW(&cpu->arena, struct gb_cpu_flags, (size_t)limits->engines * limits->max_works);
    return cpu->cancelled ? GB_OK : GB_ENOMEM;
}

static struct gb_cpu_flags *flag(gb_cpu *cpu, uint32_t engine, uint32_t work)
{
    return &cpu->cancelled[(size_t)engine * cpu->base.info.limits.max_works + work];
}

void gb_cpu_cancel(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    atomic_store_explicit(&flag((gb_cpu *)ops, engine, work)->round, round_seq + 1, memory_order_release);
}

bool gb_cpu_cancelled(gb_ops *ops, uint64_t round_seq, uint32_t engine, uint32_t work)
{
    return atomic_load_explicit(&flag((gb_cpu *)ops, engine, work)->round, memory_order_acquire) == round_seq + 1;
}
