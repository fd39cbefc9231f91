/* x[row] = E[token]. The embedding is packed like every matrix (it may be the head's too), so a row is picked out of its
   panel. Compaction moves rows of x down after works were dropped. */
#include "core/cpu/context.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/cpu/bf16.h"

static void unpack_row(float *out, const gb_packed *w, uint32_t row)
{
    size_t panel = row / GB_PANEL, column = row % GB_PANEL;
    if (w->f32) {
        const float *from = (const float *)w->data + panel * GB_PANEL * w->k + column;
        for (uint32_t k = 0; k < w->k; k++) out[k] = from[(size_t)k * GB_PANEL];
        return;
    }
    const uint16_t *from = (const uint16_t *)w->data + panel * GB_PANEL * (w->k + w->k % 2) + 2 * column;
    for (uint32_t k = 0; k < w->k; k++) out[k] = gb_bf16_widen(from[(size_t)(k / 2) * 2 * GB_PANEL + k % 2]);
}

typedef struct embed_job {
    gb_cpu *cpu;
    const gb_row_set *rows;
} embed_job;

static void embed_tiles(void *self, uint32_t begin, uint32_t end, uint32_t thread)
{
    embed_job *job = self;
    gb_cpu *cpu = job->cpu;
    (void)thread;
    for (uint32_t t = begin; t < end; t++) {
        const gb_cpu_tile *tile = &cpu->tiles[t];
        const gb_span *span = &job->rows->spans[tile->span];
        for (uint32_t r = tile->offset; r < tile->offset + tile->n; r++) {
            GB_ASSERT(span->tokens[r] >= 0 && (uint32_t)span->tokens[r] < cpu->config.vocab);
            unpack_row(gb_cpu_x(cpu, span->row + r), &cpu->weights.embedding, (uint32_t)span->tokens[r]);
        }
    }
}

int gb_cpu_embed(gb_ops *ops, const gb_row_set *rows)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    embed_job job = {cpu, rows};
    gb_cpu_lay_rows(cpu, rows);
    gb_threads_for(cpu->threads, cpu->n_tiles, 1, embed_tiles, &job);
    return GB_OK;
}

int gb_cpu_compact(gb_ops *ops, const gb_row_set *rows, const uint32_t *from)
{
    gb_cpu *cpu = (gb_cpu *)ops;
    for (uint32_t i = 0; i < rows->n_spans; i++) {
        const gb_span *span = &rows->spans[i];
        memmove(gb_cpu_x(cpu, span->row), gb_cpu_x(cpu, from[i]), (size_t)span->count * cpu->config.hidden * sizeof *cpu->x);
    }
    gb_cpu_lay_rows(cpu, rows);
    return GB_OK;
}
