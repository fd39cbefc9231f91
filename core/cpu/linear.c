/* Products of many rows with one matrix. Work is cut by panels of outputs and blocks of rows; a panel's weights stay in the
   cache while the rows of a block pass. */
#include "core/cpu/context.h"

typedef struct linear_job {
    gb_threads *threads;
    const gb_matmul_rung *rung;
    float *y;
    size_t y_stride, x_stride, element;
    const char *x;
    const gb_packed *w;
    uint32_t m, row_blocks;
    bool add;
} linear_job;

static void run_item(const linear_job *job, uint32_t item)
{
    uint32_t panel = item / job->row_blocks, first = item % job->row_blocks * GB_CPU_BLOCK_ROWS;
    uint32_t n = job->m - first < GB_CPU_BLOCK_ROWS ? job->m - first : GB_CPU_BLOCK_ROWS;
    gb_inputs x = {.data = job->x + first * job->x_stride * job->element, .stride = job->x_stride};
    float *y = job->y + first * job->y_stride;
    if (job->add) job->rung->add(y, job->y_stride, &x, job->w, n, panel, panel + 1);
    else job->rung->multiply(y, job->y_stride, &x, job->w, n, panel, panel + 1);
}

static void run_items(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    (void)thread;
    for (uint32_t i = begin; i < end; i++) run_item(self, i);
}

static void run(linear_job *job)
{
    job->row_blocks = (job->m + GB_CPU_BLOCK_ROWS - 1) / GB_CPU_BLOCK_ROWS;
    job->element = gb_matmul_takes_bf16(job->rung, job->w) ? sizeof(uint16_t) : sizeof(float);
    gb_threads_for_runs(job->threads, job->w->panels * job->row_blocks, GB_CPU_RUN_PANELS, run_items, job);
}

void gb_cpu_multiply(gb_cpu *cpu, const gb_matmul_rung *rung, float *y, size_t y_stride, const void *x, size_t x_stride,
                     const gb_packed *w, uint32_t m)
{
    linear_job job = {.threads = cpu->threads, .rung = rung, .y = y, .y_stride = y_stride, .x = x, .x_stride = x_stride,
                      .w = w, .m = m};
    run(&job);
}

void gb_cpu_add_product(gb_cpu *cpu, float *y, size_t y_stride, const void *x, size_t x_stride, const gb_packed *w, uint32_t m)
{
    linear_job job = {.threads = cpu->threads, .rung = cpu->rung, .y = y, .y_stride = y_stride, .x = x, .x_stride = x_stride,
                      .w = w, .m = m, .add = true};
    run(&job);
}
