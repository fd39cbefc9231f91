#include "core/flow/matrix.h"

#include <string.h>

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/base/status.h"

int gb_matrix_init(gb_matrix *m, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts)
{
    *m = (gb_matrix){.layers = layers, .sources = sources, .experts = experts};
    m->counts = GB_ARENA_NEW(arena, uint64_t, gb_matrix_cells(m));
    return m->counts ? GB_OK : GB_ENOMEM;
}

size_t gb_matrix_cells(const gb_matrix *m) { return (size_t)m->layers * m->sources * m->experts; }

void gb_matrix_clear(gb_matrix *m) { memset(m->counts, 0, gb_matrix_cells(m) * sizeof *m->counts); }

void gb_matrix_add(gb_matrix *to, const gb_matrix *from)
{
    GB_ASSERT(to->layers == from->layers && to->sources == from->sources && to->experts == from->experts);
    for (size_t i = 0, n = gb_matrix_cells(to); i < n; i++) to->counts[i] += from->counts[i];
}

void gb_matrix_sum_sources(const gb_matrix *m, uint64_t *b)
{
    memset(b, 0, (size_t)m->layers * m->experts * sizeof *b);
    for (uint32_t l = 0; l < m->layers; l++)
        for (uint32_t s = 0; s < m->sources; s++) {
            const uint64_t *row = gb_matrix_row(m, l, s);
            for (uint32_t e = 0; e < m->experts; e++) b[(size_t)l * m->experts + e] += row[e];
        }
}

void gb_counts_must_agree(uint32_t layer, uint32_t source, const uint64_t *sent, const uint64_t *arrived, uint32_t experts)
{
    for (uint32_t e = 0; e < experts; e++) {
        if (sent[e] == arrived[e]) continue;
        gb_log(GB_LOG_ERROR, "layer %u: engine %u sent %llu tokens to expert %u, but %llu arrived", layer, source, (unsigned long long)sent[e], e,
               (unsigned long long)arrived[e]);
        GB_ASSERT(!"what was sent has arrived");
    }
}
