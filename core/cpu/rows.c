#include "core/cpu/context.h"

#include <math.h>
#include <string.h>

static void cut_tiles(gb_cpu *cpu, const gb_row_set *rows)
{
    cpu->n_tiles = 0;
    for (uint32_t i = 0; i < rows->n_spans; i++)
        for (uint32_t offset = 0; offset < rows->spans[i].count; offset += cpu->tile_rows) {
            uint32_t left = rows->spans[i].count - offset;
            cpu->tiles[cpu->n_tiles++] = (gb_cpu_tile){i, offset, left < cpu->tile_rows ? left : cpu->tile_rows};
        }
}

typedef struct angles_job {
    gb_cpu *cpu;
    const gb_row_set *rows;
} angles_job;

/* The angle is rounded to float32 before its cosine, as in the reference implementation. */
static void fill_angles(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    angles_job *job = self;
    gb_cpu *cpu = job->cpu;
    uint32_t half = cpu->config.head_dim / 2;
    (void)thread;
    for (uint32_t t = begin; t < end; t++) {
        const gb_cpu_tile *tile = &cpu->tiles[t];
        const gb_span *span = &job->rows->spans[tile->span];
        for (uint32_t r = tile->offset; r < tile->offset + tile->n; r++)
            for (uint32_t i = 0; i < half; i++) {
                float angle = (float)(span->start + r) * (float)cpu->inv_freq[i];
                cpu->cos[(size_t)(span->row + r) * half + i] = (float)(cos(angle) * cpu->attention_factor);
                cpu->sin[(size_t)(span->row + r) * half + i] = (float)(sin(angle) * cpu->attention_factor);
            }
    }
}

void gb_cpu_lay_rows(gb_cpu *cpu, const gb_row_set *rows)
{
    cut_tiles(cpu, rows);
    angles_job job = {cpu, rows};
    gb_threads_for(cpu->threads, cpu->n_tiles, 1, fill_angles, &job);
}

void gb_cpu_store_inputs(const gb_cpu *cpu, void *inputs, size_t at, const float *values, uint32_t n)
{
    if (cpu->bf16_inputs) cpu->rung->convert((uint16_t *)inputs + at, values, n);
    else memcpy((float *)inputs + at, values, n * sizeof *values);
}
