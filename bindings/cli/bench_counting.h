/* What counting experts costs: CPU time of the counting code over CPU time of the MoE layers it counts in. A difference of two runs
   would drown in noise, so the layers run under one clock, and what they count is counted once more, alone, under another:
   A[source][expert] and the tokens of each rank in every layer, then the window and the pressure of every round, and the estimate
   of every window. One object at a time: it stands between the executor and its backend. */
#ifndef GB_CLI_BENCH_COUNTING_H
#define GB_CLI_BENCH_COUNTING_H

#include "core/forward/ops.h"
#include "core/moe/estimate.h"
#include "core/moe/pressure.h"
#include "core/moe/window.h"

typedef struct gb_bench_counting {
    gb_ops_table table;              /* the backend's, with a clock around the MoE layer */
    const gb_ops_table *inner;
    int32_t *experts;                /* [max_tokens][K] routed in the layer at hand */
    gb_matrix again;                 /* counted once more */
    uint64_t *rank_tokens;
    gb_windows windows;
    gb_pressure pressure;
    gb_estimate estimate;
    double layers, counting;         /* seconds of CPU time so far */
} gb_bench_counting;

/* ops belongs to an executor that has not run yet; both outlive c, or c's arena. GB_ENOMEM. */
int gb_bench_counting_watch(gb_bench_counting *c, gb_arena *arena, gb_ops *ops);

/* A round is back: what a server counts in it. */
void gb_bench_counting_round(gb_bench_counting *c, const gb_result *result);

#endif
