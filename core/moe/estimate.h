/* What the next window will look like, from the windows so far: an exponential mean of A, with the difference between sources
   shrunk by how much of it has lasted. Raw counts overfit: where sources do not truly differ, their noise looks like skew, and
   a solver moves a thousand experts for nothing.

       D = p_s - p                 a source's distribution over experts minus the pooled one
       k = <D_new, D_mean> / <D_mean, D_mean>, kept within 0..1, smoothed from window to window; 0 until two windows exist
       traffic = volume_s * (p + k D_mean)

   k per layer is exported as its persistence (0: noise, 1: all of it lasts), and the total variation between sources as
   what a placement can hope for: without capacity limits two equal sources can be served (1 - TV) / 2 remote at best.
   One thread; memory from an arena, taken once. */
#ifndef GB_MOE_ESTIMATE_H
#define GB_MOE_ESTIMATE_H

#include <stdbool.h>

#include "core/base/status.h"
#include "core/flow/matrix.h"

typedef struct gb_estimate {
    uint32_t layers, sources, experts;
    double keep;             /* weight of the past in the mean, 0..1 */
    bool shrink;             /* false: traffic is the plain mean */
    uint64_t windows;        /* seen so far */
    double *mean;            /* [layers][sources][experts] */
    double *traffic;         /* [layers][sources][experts] the estimate */
    double *persistence;     /* [layers] k */
    double *variation;       /* [layers] total variation between sources of the latest window, mean over pairs of sources */
    double *fresh, *past;    /* [sources][experts] D of the new window and of the mean */
} gb_estimate;

/* keep 0.5 and shrink are the defaults; GB_ENOMEM. */
int gb_estimate_init(gb_estimate *estimate, gb_arena *arena, uint32_t layers, uint32_t sources, uint32_t experts);

void gb_estimate_clear(gb_estimate *estimate);    /* as if no window had been seen */

/* Takes a window of the same shape into account. */
void gb_estimate_add(gb_estimate *estimate, const gb_matrix *window);

/* Means over layers. */
double gb_estimate_persistence(const gb_estimate *estimate);
double gb_estimate_variation(const gb_estimate *estimate);

#endif
