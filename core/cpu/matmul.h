/* Matrix products over packed weights, one implementation per instruction set ("rung"), chosen once at start.

   A packed matrix holds W [N outputs][K inputs] as panels of consecutive outputs, so that one layout serves decode (one row)
   and prefill (many rows): bfloat16 panels with pairs of k interleaved, or float32 panels. K and N are padded with zeros.
   An output element is one sum in the same order whatever the number of rows (batch invariance): y[m][n] has the same bits
   alone and in a batch, on one rung. */
#ifndef GB_CPU_MATMUL_H
#define GB_CPU_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

typedef struct gb_packed {
    uint32_t n, k;           /* as the checkpoint has them */
    uint32_t panels;         /* ceil(n / rung panel width) */
    bool f32;                /* float32 panels, else bfloat16 */
    void *data;              /* 64-byte aligned */
} gb_packed;

typedef struct gb_matmul_rung {
    const char *name;        /* "scalar", "avx2", "avx512f", "avx512_bf16" */
    uint32_t panel;          /* outputs in a panel */
    bool bf16_inputs;        /* activations are taken as bfloat16 (else float32) when weights are bfloat16 */
    bool (*supported)(void);

    /* y[m][n0 .. n1) of panels p0 .. p1 = x[M][K] W^T. x rows are x_stride elements apart (float32, or bfloat16 when
       bf16_inputs and weights are bfloat16), y rows y_stride floats apart. Padding outputs are not written. */
    void (*multiply)(float *y, size_t y_stride, const void *x, size_t x_stride, const gb_packed *w, uint32_t m, uint32_t p0, uint32_t p1);
} gb_matmul_rung;

extern const gb_matmul_rung gb_matmul_scalar, gb_matmul_avx2, gb_matmul_avx512f, gb_matmul_avx512_bf16;

/* By name, or "auto": the fastest of those that run here, measured for a few milliseconds. GB_EINVAL for an unknown name,
   GB_EUNSUPPORTED for one this CPU cannot run; the sentence lists those that it can. */
int gb_matmul_choose(const gb_matmul_rung **out, const char *name, gb_error *err);

/* Bytes of a packed matrix, and packing of rows row0 .. row0 + rows (float32 source [rows][K]) into it. Rows may be packed
   in any order and by several threads, a panel by one. */
size_t gb_packed_bytes(const gb_matmul_rung *rung, uint32_t n, uint32_t k, bool f32);
void   gb_packed_init(gb_packed *w, const gb_matmul_rung *rung, uint32_t n, uint32_t k, bool f32, void *memory);
void   gb_packed_rows(gb_packed *w, const gb_matmul_rung *rung, const float *rows, uint32_t row0, uint32_t n_rows);

#endif
