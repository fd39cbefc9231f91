/* expert_out[grouped row] = W_down (silu(W_gate h) * (W_up h)) with the weights of the row's slot. Threads share (piece,
   panel) pairs, panels and not experts, so the work is even however skewed the routing is. */
#include "core/cpu/context.h"

#include <string.h>

typedef struct experts_job {
    gb_cpu *cpu;
    const gb_cpu_mlp *slots;
    uint32_t panels;    /* of one expert's matrix */
} experts_job;

static void gate_up_items(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    experts_job *job = self;
    gb_cpu *cpu = job->cpu;
    uint32_t width = cpu->config.expert_intermediate;
    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        const gb_cpu_piece *piece = &cpu->pieces[i / job->panels];
        gb_inputs x = {.data = cpu->h_inputs, .stride = cpu->config.hidden, .index = cpu->row_of_grouped + piece->first};
        char *gated = (char *)cpu->gated + (size_t)piece->first * width * gb_cpu_input_bytes(cpu);
        uint32_t panel = i % job->panels;
        cpu->rung->gate_up(gated, width, &x, &job->slots[piece->slot].gate_up, piece->n, panel, panel + 1);
    }
}

static void down_items(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    experts_job *job = self;
    gb_cpu *cpu = job->cpu;
    uint32_t width = cpu->config.expert_intermediate, hidden = cpu->config.hidden;
    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        const gb_cpu_piece *piece = &cpu->pieces[i / job->panels];
        gb_inputs x = {.data = (char *)cpu->gated + (size_t)piece->first * width * gb_cpu_input_bytes(cpu), .stride = width};
        float *out = cpu->expert_out + (size_t)piece->first * hidden;
        uint32_t panel = i % job->panels;
        cpu->rung->multiply(out, hidden, &x, &job->slots[piece->slot].down, piece->n, panel, panel + 1);
    }
}

int gb_cpu_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    experts_job job = {.cpu = cpu, .slots = cpu->weights.moe[moe_layer].slots};
    (void)rows;
    job.panels = job.slots[0].gate_up.panels;
    gb_threads_for_runs(cpu->threads, cpu->n_pieces * job.panels, GB_CPU_RUN_PANELS, gate_up_items, &job);
    job.panels = job.slots[0].down.panels;
    gb_threads_for_runs(cpu->threads, cpu->n_pieces * job.panels, GB_CPU_RUN_PANELS, down_items, &job);
    return GB_OK;
}

int gb_cpu_copy_expert(gb_ops *ops, uint32_t moe_layer, uint32_t to_slot, uint32_t from_slot)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    gb_cpu_mlp *to = &cpu->weights.moe[moe_layer].slots[to_slot], *from = &cpu->weights.moe[moe_layer].slots[from_slot];
    memcpy(to->gate_up.data, from->gate_up.data, gb_packed_bytes(from->gate_up.n, from->gate_up.k, from->gate_up.f32));
    memcpy(to->down.data, from->down.data, gb_packed_bytes(from->down.n, from->down.k, from->down.f32));
    return GB_OK;
}
