/* Matrix products over packed weights, one implementation per instruction set ("rung"), chosen once at start.

   A packed matrix holds W [n outputs][k inputs] as panels of 64 consecutive outputs, so that one layout serves decode (one
   row streams a panel from memory) and prefill (many rows reuse it): [panel][k/2][64][2] bfloat16 with neighbouring inputs
   side by side, or [panel][k][64] float32. Panels are padded with zeros. Threads share a product out by panels.

   An output element is one float32 sum over k in ascending order, whatever the number of rows (batch invariance): y[m][n] has
   the same bits alone and in a batch, on one rung. Functions here are pure: no state, no allocation, any thread. */
#ifndef GB_CPU_MATMUL_H
#define GB_CPU_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

enum {
    GB_PANEL = 64,         /* outputs in a panel */
    GB_HALF_PANEL = 32,    /* gate outputs, then up outputs, in a panel of a gated matrix */
};

typedef struct gb_packed {
    uint32_t n, k;         /* as the checkpoint has them; a gated matrix has n = 2 * intermediate */
    uint32_t panels;
    bool f32;              /* float32 panels, else bfloat16 */
    void *data;            /* borrowed, 64-byte aligned */
} gb_packed;

/* Rows of inputs: float32, or bfloat16 when the rung takes bfloat16 inputs and the weights are bfloat16 (gb_matmul_takes_bf16).
   Product row i reads input row index[i], or row i without an index. */
typedef struct gb_inputs {
    const void *data;
    size_t stride;            /* elements from one row to the next */
    const uint32_t *index;    /* [m], or NULL */
} gb_inputs;

typedef struct gb_matmul_rung {
    const char *name;       /* "scalar", "avx2", "avx512f", "avx512_bf16" */
    bool bf16_inputs;       /* activations are taken as bfloat16 when the weights are */
    bool (*supported)(void);

    /* y[i][o] = x[i] . W[o] for rows i < m and the outputs o of panels p0 .. p1; y rows are y_stride floats apart. */
    void (*multiply)(float *y, size_t y_stride, const gb_inputs *x, const gb_packed *w, uint32_t m, uint32_t p0, uint32_t p1);

    /* h[i][f] = silu(x[i] . G[f]) * (x[i] . U[f]) for a gated matrix; h has the type of inputs. Panel p gives columns
       32 p .. 32 p + 31, below w->n / 2. */
    void (*gate_up)(void *h, size_t h_stride, const gb_inputs *x, const gb_packed *w, uint32_t m, uint32_t p0, uint32_t p1);

    /* y[i][o] += x[i] . W[o], the product rounded to float32 first. */
    void (*add)(float *y, size_t y_stride, const gb_inputs *x, const gb_packed *w, uint32_t m, uint32_t p0, uint32_t p1);

    /* Float32 activations as inputs of bfloat16 weights: rounded to nearest even when bf16_inputs, else copied. */
    void (*convert)(void *inputs, const float *x, size_t n);
} gb_matmul_rung;

/* Every rung of this build, the scalar one (the specification) first. */
extern const gb_matmul_rung *const gb_matmul_rungs[];
extern const uint32_t gb_matmul_rung_count;

/* By name, or "auto": the fastest of those that run here, measured for a few milliseconds. GB_EINVAL for an unknown name,
   GB_EUNSUPPORTED for one this CPU cannot run; the sentence lists those that it can. */
int gb_matmul_choose(const gb_matmul_rung **out, const char *name, gb_error *err);

/* A rung for the same packed weights and float32 inputs: this one, or where it rounds its inputs to bfloat16, the widest
   other that runs here. For products that must not lose bits and are bound by memory anyway. */
const gb_matmul_rung *gb_matmul_with_f32_inputs(const gb_matmul_rung *rung);

static inline bool gb_matmul_takes_bf16(const gb_matmul_rung *rung, const gb_packed *w)
{
    return rung->bf16_inputs && !w->f32;
}

/* Bytes of a packed matrix, and its description over memory that is 64-byte aligned and zero. */
size_t gb_packed_bytes(uint32_t n, uint32_t k, bool f32);
void   gb_packed_init(gb_packed *w, uint32_t n, uint32_t k, bool f32, void *memory);

/* Packs rows row0 .. row0 + n_rows of W (float32 [n_rows][k]). Rows may come in any order, from several threads. */
void gb_packed_rows(gb_packed *w, const float *rows, uint32_t row0, uint32_t n_rows);

/* Packs rows row0 .. of the gate (up = false) or up half of a gated matrix: 32 gate and 32 up outputs share a panel. */
void gb_packed_gated_rows(gb_packed *w, const float *rows, bool up, uint32_t row0, uint32_t n_rows);

#endif
