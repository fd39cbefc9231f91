/* Made-up tables for checks of policies: the same from run to run. */
#ifndef GB_CLI_POLICY_TABLES_H
#define GB_CLI_POLICY_TABLES_H

#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/flow/table.h"
#include "core/moe/rearrange.h"

typedef enum gb_policy_shape { GB_SHAPE_IDLE, GB_SHAPE_BUSY, GB_SHAPE_SKEWED, GB_SHAPE_STALE, GB_SHAPES } gb_policy_shape;

const char *gb_policy_shape_name(gb_policy_shape shape);    /* "idle", "busy", "skewed", "stale traces" */

/* Fill tables that were made, with as many rows as they have. The first fills the request, too. */
void gb_policy_fill_engines(gb_tables *tables, gb_rng *rng, gb_policy_shape shape);
void gb_policy_fill_queue(gb_queue_table *queue, gb_rng *rng);

/* Experts to place: a window whose experts are unevenly loaded, and where they are now. */
typedef struct gb_policy_scene {
    gb_rearrangement rearrangement;    /* posed; its window is what on_window sees, too */
    gb_solver solver;
    gb_solve_options options;
    gb_links links;
    double *traffic;
    int32_t *home;
} gb_policy_scene;

typedef struct gb_policy_sizes {
    uint32_t layers, sources, experts, ranks;
} gb_policy_sizes;

int gb_policy_make_scene(gb_policy_scene *scene, gb_arena *arena, gb_rng *rng, const gb_policy_sizes *sizes, gb_error *err);    /* GB_ENOMEM */

#endif
