/* Counts of routed tokens: A[layer][source][expert]; B[layer][expert] is its sum over sources. Layers count MoE layers. */
#ifndef GB_FLOW_MATRIX_H
#define GB_FLOW_MATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"

typedef struct gb_matrix {
    uint32_t layers, sources, experts;
    uint64_t *counts;    /* [layers][sources][experts] */
} gb_matrix;

int    gb_matrix_init(gb_matrix *m, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts);    /* GB_ENOMEM */
size_t gb_matrix_cells(const gb_matrix *m);
void   gb_matrix_clear(gb_matrix *m);
void   gb_matrix_add(gb_matrix *to, const gb_matrix *from);    /* same shape */
void   gb_matrix_sum_sources(const gb_matrix *m, uint64_t *b);    /* b[layers][experts] */

/* What one source sent to the experts of a layer is what arrived there from it; else the program ends with the first difference in words. */
void gb_counts_must_agree(uint32_t layer, uint32_t source, const uint64_t *sent, const uint64_t *arrived, uint32_t experts);

static inline uint64_t *gb_matrix_row(const gb_matrix *m, uint32_t layer, uint32_t source)
{
    return m->counts + ((size_t)layer * m->sources + source) * m->experts;
}

#endif
