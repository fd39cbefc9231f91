/* Float vectors and attention, one implementation per instruction set, chosen with the matrix products (matmul.h). Reductions
   keep 16 partial sums in a fixed order, so a result does not depend on threads, batch or tile; pure functions. */
#ifndef GB_CPU_VECTOR_H
#define GB_CPU_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GB_ATTEND_QUERIES = 64,    /* queries of one call at most */
    GB_ATTEND_CHUNK = 256,     /* positions softmax takes at a time; chunks start at its multiples */
};

/* Queries of one kv head over the KV blocks of one sequence. Query i sees positions position[i] - window + 1 .. position[i]
   (window 0: from 0), all of them written. Queries come scaled by 1 / sqrt(head_dim). */
typedef struct gb_attend {
    uint32_t n;                      /* queries, 1 .. GB_ATTEND_QUERIES, positions not falling */
    const float *const *query;       /* [n] pointers to [head_dim] */
    const uint32_t *position;        /* [n] */
    uint32_t window;
    uint32_t head_dim, padded_dim;   /* the layout of kv.h */
    bool f32;
    const char *head;                /* the head in block 0 of the engine */
    size_t block_bytes, keys_bytes;
    const int32_t *blocks;           /* of the sequence */
} gb_attend;

typedef struct gb_vector {
    const char *name;

    /* y = x / sqrt(mean(x^2) + epsilon) * weight; y may be x */
    void (*rms_norm)(float *y, const float *x, const float *weight, uint32_t n, float epsilon);

    /* Rotary positions on one head, halves against halves, and a scale: v is [2 * half], cos and sin [half]. */
    void (*rotate)(float *v, const float *cos, const float *sin, uint32_t half, float scale);

    void (*add)(float *y, const float *x, uint32_t n);                       /* y += x */
    void (*add_scaled)(float *y, const float *x, float scale, uint32_t n);    /* y += scale * x */

    /* out[n][padded_dim] = softmax(query . keys) values; scratch of gb_attend_scratch_bytes, 64-byte aligned. */
    void (*attend)(float *out, const gb_attend *job, void *scratch);
} gb_vector;

size_t gb_attend_scratch_bytes(void);

/* The implementation that goes with the matrix products of that name; never one that this CPU cannot run. */
const gb_vector *gb_vector_for(const char *matmul_name);

#endif
