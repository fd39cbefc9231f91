#include "core/cpu/matmul.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/cpu/bf16.h"
#include "core/cpu/matmul_rungs.h"

const gb_matmul_rung *const gb_matmul_rungs[] = {
    &gb_matmul_scalar,
#ifdef GB_CPU_X86
    &gb_matmul_avx2,
    &gb_matmul_avx512f,
    &gb_matmul_avx512_bf16,
#endif
};
const uint32_t gb_matmul_rung_count = sizeof gb_matmul_rungs / sizeof *gb_matmul_rungs;

#ifdef GB_CPU_X86
bool gb_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool gb_cpu_has_avx512f(void)
{
    return gb_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool gb_cpu_has_avx512_bf16(void)
{
    return gb_cpu_has_avx512f() && __builtin_cpu_supports("avx512bf16");
}
#endif

/* ---- packing ---- */

static uint32_t panels_of(uint32_t n)
{
    return (n + GB_PANEL - 1) / GB_PANEL;
}

size_t gb_packed_bytes(uint32_t n, uint32_t k, bool f32)
{
    size_t outputs = (size_t)panels_of(n) * GB_PANEL;
    return f32 ? outputs * k * sizeof(float) : outputs * (k + k % 2) * sizeof(uint16_t);
}

void gb_packed_init(gb_packed *w, uint32_t n, uint32_t k, bool f32, void *memory)
{
    *w = (gb_packed){.n = n, .k = k, .panels = panels_of(n), .f32 = f32, .data = memory};
}

static void pack_row(gb_packed *w, const float *row, uint32_t output)
{
    size_t panel = output / GB_PANEL, column = output % GB_PANEL;
    if (w->f32) {
        float *to = (float *)w->data + panel * GB_PANEL * w->k + column;
        for (uint32_t k = 0; k < w->k; k++) to[(size_t)k * GB_PANEL] = row[k];
        return;
    }
    uint16_t *to = (uint16_t *)w->data + panel * GB_PANEL * (w->k + w->k % 2) + 2 * column;
    for (uint32_t k = 0; k < w->k; k++) to[(size_t)(k / 2) * 2 * GB_PANEL + k % 2] = gb_bf16_round(row[k]);
}

void gb_packed_rows(gb_packed *w, const float *rows, uint32_t row0, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) pack_row(w, rows + (size_t)i * w->k, row0 + i);
}

void gb_packed_gated_rows(gb_packed *w, const float *rows, bool up, uint32_t row0, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t row = row0 + i;
        uint32_t output = row / GB_HALF_PANEL * GB_PANEL + (up ? GB_HALF_PANEL : 0) + row % GB_HALF_PANEL;
        pack_row(w, rows + (size_t)i * w->k, output);
    }
}

/* ---- choosing ---- */

enum {
    TRIAL_ROWS = 24, TRIAL_OUTPUTS = 128, TRIAL_INPUTS = 256,    /* fits L2: the trial compares arithmetic, memory is the same for all */
    TRIAL_ROUNDS = 7,
};

typedef struct trial {
    _Alignas(64) uint16_t weights[TRIAL_OUTPUTS * TRIAL_INPUTS];
    float x[TRIAL_ROWS * TRIAL_INPUTS];
    float y[TRIAL_ROWS * TRIAL_OUTPUTS];
} trial;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of a few runs, in CPU seconds. All inputs are zero: the arithmetic takes the same time. */
static double time_rung(const gb_matmul_rung *rung, trial *space)
{
    gb_packed w;
    gb_packed_init(&w, TRIAL_OUTPUTS, TRIAL_INPUTS, false, space->weights);
    gb_inputs x = {.data = space->x, .stride = TRIAL_INPUTS};
    double best = 1e9;
    for (int round = 0; round < TRIAL_ROUNDS; round++) {
        double start = thread_seconds();
        rung->multiply(space->y, TRIAL_OUTPUTS, &x, &w, TRIAL_ROWS, 0, w.panels);
        double seconds = thread_seconds() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

static const gb_matmul_rung *fastest(trial *space)
{
    const gb_matmul_rung *best = NULL;
    double best_seconds = 0;
    for (uint32_t i = 0; i < gb_matmul_rung_count; i++) {
        if (!gb_matmul_rungs[i]->supported()) continue;
        double seconds = time_rung(gb_matmul_rungs[i], space);
        if (best && seconds >= best_seconds) continue;
        best = gb_matmul_rungs[i];
        best_seconds = seconds;
    }
    return best;
}

const gb_matmul_rung *gb_matmul_with_f32_inputs(const gb_matmul_rung *rung)
{
    if (!rung->bf16_inputs) return rung;
    const gb_matmul_rung *widest = gb_matmul_rungs[0];
    for (uint32_t i = 1; i < gb_matmul_rung_count; i++)
        if (!gb_matmul_rungs[i]->bf16_inputs && gb_matmul_rungs[i]->supported()) widest = gb_matmul_rungs[i];
    return widest;
}

static void list_supported(char *out, size_t capacity)
{
    size_t used = 0;
    for (uint32_t i = 0; i < gb_matmul_rung_count && used < capacity; i++) {
        if (!gb_matmul_rungs[i]->supported()) continue;
        used += (size_t)snprintf(out + used, capacity - used, "%s%s", used ? ", " : "", gb_matmul_rungs[i]->name);
    }
}

int gb_matmul_choose(const gb_matmul_rung **out, const char *name, gb_error *err)
{
    char usable[128];
    *out = NULL;
    if (strcmp(name, "auto") == 0) {
        trial *space = aligned_alloc(64, sizeof *space);
        if (!space) return gb_fail(err, GB_ENOMEM, "no memory to try the kernels");
        memset(space, 0, sizeof *space);
        *out = fastest(space);
        free(space);
        return 0;
    }
    list_supported(usable, sizeof usable);
    for (uint32_t i = 0; i < gb_matmul_rung_count; i++) {
        if (strcmp(gb_matmul_rungs[i]->name, name) != 0) continue;
        if (!gb_matmul_rungs[i]->supported()) {
            return gb_fail(err, GB_EUNSUPPORTED, "this CPU cannot run the %s kernels; it runs auto, %s", name, usable);
        }
        *out = gb_matmul_rungs[i];
        return 0;
    }
    return gb_fail(err, GB_EINVAL, "no kernels are called \"%s\"; this CPU runs auto, %s", name, usable);
}
