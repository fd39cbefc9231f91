/* The reference: one layer as a mixed-integer program for an outside solver, in CPLEX LP format. x<r>_<e> is 1 when expert e
   is on rank r; each expert once, `capacity` per rank. The max form is exact (one variable above every rank's load); squares
   are seen through tangents, so what the solver proves is a bound of J, and J of its answer is computed from the true square.
   The program's objective leaves out the constant of the max form. Pure functions; text goes through a callback. */
#ifndef GB_MOE_EXACT_H
#define GB_MOE_EXACT_H

#include "core/moe/score.h"

enum { GB_EXACT_TANGENTS = 81 };

/* Takes text; not 0: stop. */
typedef int gb_exact_sink(void *self, const char *text, size_t bytes);

/* 0, or what the sink answered. */
int gb_exact_write(const gb_layer *layer, const gb_place_weights *weights, uint32_t capacity, gb_exact_sink *sink, void *self);

/* Reads a solution as CBC prints it ("  12 x0_5  1  0.25" per variable that is not 0, after a line with the status).
   GB_ENOTFOUND when no assignment was found, GB_EFORMAT when it is not a placement. optimal: the solver says so. */
int gb_exact_read(const char *text, const gb_layer *layer, uint32_t capacity, int32_t *rank_of, bool *optimal, gb_error *err);

#endif
