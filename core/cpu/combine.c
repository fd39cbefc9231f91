/* x[row] += sum over k of weight[row][k] * expert_out of its k-th expert, in the order of k: the same sum whatever the
   batch is and wherever the experts live. */
#include "core/cpu/context.h"

enum { CHUNK_ROWS = 8 };

static void combine_rows(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    gb_cpu *cpu = self;
    uint32_t K = cpu->config.experts_per_token, hidden = cpu->config.hidden;
    (void)thread;
    for (uint32_t r = begin; r < end; r++)
        for (size_t a = (size_t)r * K; a < (size_t)(r + 1) * K; a++) {
            const float *out = cpu->expert_out + (size_t)cpu->grouped_of_route[a] * hidden;
            cpu->vector->add_scaled(gb_cpu_x(cpu, r), out, cpu->expert_weights[a], hidden);
        }
}

int gb_cpu_combine(gb_ops *ops, const gb_row_set *rows, uint32_t moe_layer)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    (void)moe_layer;
    gb_threads_for(cpu->threads, rows->n, CHUNK_ROWS, combine_rows, cpu);
    return GB_OK;
}
