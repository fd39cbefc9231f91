/* A baseline after MoETuner (arXiv 2502.06643), whose formulas are not public beyond its abstract: balance the ranks of each
   layer, and let tokens stay on their rank from one MoE layer to the next. Windows hold no transitions between layers, so
   they are estimated from the sources: T[i][j] = sum_s A[l][s][i] A[l+1][s][j] / N[l][s]. Layer by layer, swap search with
   the traffic that leaves the rank as cost and the max form as load stands for the integer program. It knows no current
   placement: offline, like the original. */
#ifndef GB_MOE_MOETUNER_H
#define GB_MOE_MOETUNER_H

#include "core/moe/solve.h"

/* home[layers][experts] from traffic [layers][sources][experts]; the solver gives shape and workspace. share is scratch
   [sources][ranks]. */
void gb_moetuner_place(gb_solver *solver, int32_t *home, const double *traffic, uint32_t sources, double *share);

#endif
