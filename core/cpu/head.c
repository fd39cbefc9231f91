/* logits[i] = W_head (rms_norm(x[rows[i]])), with float32 inputs on every rung: few rows, so memory is the bound. */
#include "core/cpu/context.h"

int gb_cpu_head(gb_ops *ops, const uint32_t *rows, uint32_t n)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    uint32_t hidden = cpu->config.hidden;
    for (uint32_t i = 0; i < n; i++) {
        const float *x = gb_cpu_x(cpu, rows[i]);
        cpu->vector->rms_norm(cpu->head_x + (size_t)i * hidden, x, cpu->weights.final_norm, hidden, cpu->config.norm_epsilon);
    }
    gb_cpu_multiply(cpu, cpu->head_rung, cpu->logits, cpu->config.vocab, cpu->head_x, hidden, &cpu->weights.head, n);
    return GB_OK;
}
