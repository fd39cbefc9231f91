/* h = x / sqrt(mean(x^2) + epsilon) * weight, in float32 and as inputs of the next product. */
#include "core/cpu/context.h"

enum { CHUNK_ROWS = 8 };

typedef struct norm_job {
    gb_cpu *cpu;
    const float *weight;
} norm_job;

static void norm_rows(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    norm_job *job = self;
    gb_cpu *cpu = job->cpu;
    uint32_t hidden = cpu->config.hidden;
    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        float *h = cpu->h + (size_t)r * hidden;
        cpu->vector->rms_norm(h, gb_cpu_x(cpu, r), job->weight, hidden, cpu->config.norm_epsilon);
        if (cpu->bf16_inputs) gb_cpu_store_inputs(cpu, cpu->h_inputs, (size_t)r * hidden, h, hidden);
    }
}

int gb_cpu_norm(gb_ops *ops, const gb_row_set *rows, gb_norm norm, uint32_t layer)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    const gb_cpu_layer *l = &cpu->weights.layers[layer];
    norm_job job = {cpu, norm == GB_NORM_ATTENTION ? l->attention_norm : l->mlp_norm};
    gb_threads_for(cpu->threads, rows->n, CHUNK_ROWS, norm_rows, &job);
    return GB_OK;
}
