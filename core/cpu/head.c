/* logits[i] = W_head (rms_norm(x[rows[i]])). */
#include "core/cpu/context.h"

int gb_cpu_head(gb_ops *ops, const uint32_t *rows, uint32_t n)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    uint32_t hidden = cpu->config.hidden;
    for (uint32_t i = 0; i < n; i++) {
        float *h = cpu->head_x + (size_t)i * hidden;
        cpu->vector->rms_norm(h, gb_cpu_x(cpu, rows[i]), cpu->weights.final_norm, hidden, cpu->config.norm_epsilon);
        if (cpu->bf16_inputs) gb_cpu_store_inputs(cpu, cpu->head_inputs, (size_t)i * hidden, h, hidden);
    }
    gb_cpu_multiply(cpu, cpu->logits, cpu->config.vocab, cpu->head_inputs, hidden, &cpu->weights.head, n);
    return GB_OK;
}
