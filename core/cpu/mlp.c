/* A dense layer: x += W_down (silu(W_gate h) * (W_up h)). */
#include "core/cpu/context.h"

typedef struct mlp_job {
    gb_cpu *cpu;
    const gb_packed *gate_up;
    uint32_t m, row_blocks;
} mlp_job;

static void gate_up_items(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    mlp_job *job = self;
    gb_cpu *cpu = job->cpu;
    uint32_t width = cpu->config.dense_intermediate, hidden = cpu->config.hidden;
    size_t element = gb_cpu_input_bytes(cpu);
    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t panel = i / job->row_blocks, first = i % job->row_blocks * GB_CPU_BLOCK_ROWS;
        uint32_t n = job->m - first < GB_CPU_BLOCK_ROWS ? job->m - first : GB_CPU_BLOCK_ROWS;
        gb_inputs x = {.data = (char *)cpu->h_inputs + (size_t)first * hidden * element, .stride = hidden};
        cpu->rung->gate_up((char *)cpu->gated + (size_t)first * width * element, width, &x, job->gate_up, n, panel, panel + 1);
    }
}

int gb_cpu_dense_mlp(gb_ops *ops, const gb_row_set *rows, uint32_t layer)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    const gb_cpu_mlp *mlp = &cpu->weights.layers[layer].mlp;
    mlp_job job = {cpu, &mlp->gate_up, rows->n, (rows->n + GB_CPU_BLOCK_ROWS - 1) / GB_CPU_BLOCK_ROWS};
    gb_threads_for_runs(cpu->threads, mlp->gate_up.panels * job.row_blocks, GB_CPU_RUN_PANELS, gate_up_items, &job);
    gb_cpu_add_product(cpu, cpu->x, cpu->config.hidden, cpu->gated, cpu->config.dense_intermediate, &mlp->down, rows->n);
    return GB_OK;
}
