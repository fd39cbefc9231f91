/* expert_out[grouped row] = W_down (silu(W_gate h) * (W_up h)) with the weights of the row's expert, wherever they are. Threads
   share (piece, panel) pairs, panels and not experts, so the work is even however skewed the routing is. */
#include "core/cpu/context.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/base/rng.h"

typedef struct experts_job {
    gb_cpu *cpu;
    const gb_cpu_mlp *places;
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
        cpu->rung->gate_up(gated, width, &x, &job->places[piece->place].gate_up, piece->n, panel, panel + 1);
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
        cpu->rung->multiply(out, hidden, &x, &job->places[piece->place].down, piece->n, panel, panel + 1);
    }
}

int gb_cpu_experts(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    experts_job job = {.cpu = cpu, .places = cpu->weights.moe[moe_layer].places};
    (void)rows;
    job.panels = job.places[0].gate_up.panels;
    gb_threads_for_runs(cpu->threads, cpu->n_pieces * job.panels, GB_CPU_RUN_PANELS, gate_up_items, &job);
    job.panels = job.places[0].down.panels;
    gb_threads_for_runs(cpu->threads, cpu->n_pieces * job.panels, GB_CPU_RUN_PANELS, down_items, &job);
    return GB_OK;
}

/* --- experts on the move --- */

/* The matrices of a place lie one behind the other (pack.c), so that its weights are one run of info.expert_bytes. */
static char *weights_of(const gb_cpu *cpu, uint32_t moe_layer, uint32_t place) { return cpu->weights.moe[moe_layer].places[place].gate_up.data; }

int gb_cpu_copy_expert(gb_ops *ops, const gb_copy *copy)
{
    const gb_cpu *cpu = (const gb_cpu *)ops;
    char *to = weights_of(cpu, copy->layer, (uint32_t)copy->to), *from = weights_of(cpu, copy->layer, (uint32_t)copy->from);
    memcpy(to + copy->offset, from + copy->offset, copy->bytes);
    return GB_OK;
}

uint64_t gb_cpu_checksum(gb_ops *ops, uint32_t moe_layer, uint32_t place)
{
    const char *bytes = weights_of((const gb_cpu *)ops, moe_layer, place);
    uint64_t sum = 0, word;
    GB_ASSERT(ops->info.expert_bytes % sizeof word == 0);
    for (size_t i = 0; i < ops->info.expert_bytes; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        sum = gb_mix64(sum ^ word) + 1;
    }
    return sum;
}
