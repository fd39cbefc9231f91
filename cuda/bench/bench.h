/* The benchmark of the CUDA room: ceilings of the device, times of each kernel as fractions of them, the ablation of counting, ranks and
   layers. One program on two machines: gimbal_cuda_bench on a GPU; gimbal_cuemu_bench runs the same steps on the emulator with tiny
   sizes, to check the steps, and its times mean nothing. What a step computes is checked there and here; a wrong result is counted in
   `wrong` and ends the program with status 1, a missed bound does not.

   It lives in the CUDA room, not in the tests: it launches through kernels.h and the op table like the backend, and the kernels that it
   compares ours with (rivals.h) belong to no product. */
#ifndef GB_CUDA_BENCH_H
#define GB_CUDA_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "core/base/rng.h"
#include "cuda/host/check.h"

/* The shape of Qwen3-30B-A3B, or a tiny one. */
typedef struct gb_bench_shape {
    uint32_t hidden, width, experts, K, heads, kv_heads, head_dim, vocab;
} gb_bench_shape;
extern const gb_bench_shape gb_bench_tiny_shape;

/* What the device gave when asked for nothing but that; 0 = not measured. */
typedef struct gb_bench_ceilings {
    double copy, read;         /* bytes a second: copy counts those read and those written */
    double flops;              /* a second, of cuBLAS in bfloat16 on random data */
    double launch_us;          /* of an empty kernel in a graph */
} gb_bench_ceilings;

typedef struct gb_bench {
    bool emulated;
    uint64_t seed;
    gb_bench_shape shape;
    gb_bench_ceilings ceilings;
    uint32_t processors, repetitions;
    size_t l2_bytes;
    cudaStream_t stream;
    FILE *rows;                /* one result a line: report.c */
    unsigned wrong;
} gb_bench;

/* --- steps: GB_OK, or a status whose sentence is gb_k_message() --- */
int gb_bench_ceilings_step(gb_bench *b);
int gb_bench_kernels_step(gb_bench *b);
int gb_bench_counting_step(gb_bench *b);
int gb_bench_time_between(gb_bench *b, uint32_t n);    /* the part of kernels that lies between ranks */
int gb_bench_layers_step(gb_bench *b);
int gb_bench_ranks_step(gb_bench *b);
int gb_bench_nccl_step(gb_bench *b);

/* --- memory.c: on the device, until gb_bench_give_back --- */

/* Copies of one array, for launches that must not find their input in L2. */
typedef struct gb_bench_array {
    char *memory;
    size_t stride, bytes;      /* of one copy: with padding, and without */
    uint32_t sets;
} gb_bench_array;

static inline void *gb_bench_at(const gb_bench_array *a, uint32_t set) { return a->memory + a->stride * (set % a->sets); }

/* How many copies of an input of so many bytes are more than four times L2; at most GB_BENCH_SETS_MAX. */
enum { GB_BENCH_SETS_MAX = 256 };
uint32_t gb_bench_sets(const gb_bench *b, double bytes);

int  gb_bench_take(gb_bench *b, gb_bench_array *out, uint32_t sets, size_t count, size_t size);          /* zeros */
int  gb_bench_put(gb_bench *b, gb_bench_array *out, uint32_t sets, const void *from, size_t count, size_t size);    /* the same in each */
int  gb_bench_random_bf16(gb_bench *b, gb_bench_array *out, uint32_t sets, size_t count, float scale);
int  gb_bench_random_f32(gb_bench *b, gb_bench_array *out, uint32_t sets, size_t count, float scale);
void gb_bench_give_back(void);

/* --- timer.c --- */

typedef struct gb_bench_time {
    double us, spread;         /* of one launch: mean of two medians, and how far apart they are as a fraction */
} gb_bench_time;

/* Work of one set, launched on the stream; several kernels are one work. */
typedef int gb_bench_work(void *self, uint32_t set, cudaStream_t stream);

/* Captures the work of all sets as one graph and replays it, twice b->repetitions times. */
int gb_bench_replay(gb_bench *b, gb_bench_time *out, gb_bench_work *work, void *self, uint32_t sets);
/* The same without a graph, for calls that cannot be captured. */
int gb_bench_repeat(gb_bench *b, gb_bench_time *out, gb_bench_work *work, void *self, uint32_t sets);

/* --- report.c --- */

typedef struct gb_bench_row {
    const char *step, *item;
    char size[48];
    gb_bench_time time;
    double bytes, flops;       /* of one launch; 0 = say nothing about fractions */
    bool reads;                /* bytes are (nearly) all read: compared with the read ceiling, else with the copy */
    double ratio;              /* to what a bound compares with; 0 = none */
} gb_bench_row;

void gb_bench_report(gb_bench *b, const gb_bench_row *row);
void gb_bench_report_ceiling(gb_bench *b, const char *item, const char *size, double value, const char *unit, double spread);
void gb_bench_read_ceilings(gb_bench *b, FILE *rows);
void gb_bench_list_bounds(FILE *to);
/* Says what was wrong and counts it. */
void gb_bench_wrong(gb_bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
