/* The structs are made from core/flow/columns.h; core/flow/view.h describes them to whom cannot see C.
   The live tables behind the columns. The serving core owns them at fixed addresses for its whole life and keeps them
   current; built-in policies read them in C and the Lua host reads the same memory through checked views. */
#ifndef GB_FLOW_TABLE_H
#define GB_FLOW_TABLE_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/flow/columns.h"

#define GB_COLUMN_COUNT(name, unit, meaning) uint32_t name;
#define GB_COLUMN_POINTER(name, unit, meaning) double *name;
#define GB_COLUMN_SCALAR(name, unit, meaning) double name;

typedef struct gb_engine_table {
    GB_ENGINE_COUNTS(GB_COLUMN_COUNT)
    GB_ENGINE_COLUMNS(GB_COLUMN_POINTER)    /* [n] each */
} gb_engine_table;

typedef struct gb_request_row {
    GB_REQUEST_COLUMNS(GB_COLUMN_SCALAR)
} gb_request_row;

typedef struct gb_queue_table {
    GB_QUEUE_COUNTS(GB_COLUMN_COUNT)
    uint32_t capacity;    /* policies do not see it */
    GB_QUEUE_COLUMNS(GB_COLUMN_POINTER)    /* [capacity] each */
} gb_queue_table;

/* What on_window and placement hooks read; its owner fills it. */
typedef struct gb_window_table {
    GB_WINDOW_SCALARS(GB_COLUMN_SCALAR)
    GB_WINDOW_COLUMNS(GB_COLUMN_POINTER)           /* [n] */
    GB_WINDOW_EXPERT_COLUMNS(GB_COLUMN_POINTER)    /* [expert_rows] */
    GB_WINDOW_LINK_COLUMNS(GB_COLUMN_POINTER)      /* [link_rows] */
} gb_window_table;

/* What score_expert reads and fills. */
typedef struct gb_rank_table {
    GB_RANK_COUNTS(GB_COLUMN_COUNT)
    GB_RANK_SCALARS(GB_COLUMN_SCALAR)
    GB_RANK_COLUMNS(GB_COLUMN_POINTER)    /* [n] each; traffic is NULL where the caller has none */
} gb_rank_table;

/* What placement_cost fills: one layer. */
typedef struct gb_cost_table {
    GB_COST_SCALARS(GB_COLUMN_SCALAR)
    GB_COST_COLUMNS(GB_COLUMN_POINTER)           /* [n] */
    GB_COST_EXPERT_COLUMNS(GB_COLUMN_POINTER)    /* [experts] */
    GB_COST_SLOT_COLUMNS(GB_COLUMN_POINTER)      /* [slots] */
} gb_cost_table;

typedef struct gb_tables {
    gb_engine_table engines;
    gb_request_row request;
    gb_queue_table queue;
} gb_tables;

int gb_tables_init(gb_tables *tables, gb_arena *arena, uint32_t engines, uint32_t queue_capacity);    /* GB_ENOMEM */

#endif
