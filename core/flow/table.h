/* The live tables behind the columns. The serving core owns them at fixed addresses for its whole life and keeps them
   current; built-in policies read them in C and the Lua host reads the same memory through checked views. */
#ifndef GB_FLOW_TABLE_H
#define GB_FLOW_TABLE_H

#include <stdint.h>

#include "core/base/arena.h"
#include "core/flow/columns.h"

#define GB_COLUMN_POINTER(name, unit, meaning) double *name;
#define GB_COLUMN_SCALAR(name, unit, meaning) double name;

typedef struct gb_engine_table {
    uint32_t n;       /* engines */
    uint32_t next;    /* the engine that ordered (rotating) dispatch would take now */
    GB_ENGINE_COLUMNS(GB_COLUMN_POINTER)    /* [n] each */
} gb_engine_table;

typedef struct gb_request_row {
    GB_REQUEST_COLUMNS(GB_COLUMN_SCALAR)
} gb_request_row;

typedef struct gb_queue_table {
    uint32_t n;          /* waiting requests of the engine being ordered */
    uint32_t capacity;
    uint32_t engine;
    GB_QUEUE_COLUMNS(GB_COLUMN_POINTER)    /* [capacity] each */
} gb_queue_table;

/* What on_window reads; its owner fills it from a closed window. */
typedef struct gb_window_table {
    GB_WINDOW_SCALARS(GB_COLUMN_SCALAR)
    GB_WINDOW_COLUMNS(GB_COLUMN_POINTER)    /* [n] */
} gb_window_table;

typedef struct gb_tables {
    gb_engine_table engines;
    gb_request_row request;
    gb_queue_table queue;
} gb_tables;

int gb_tables_init(gb_tables *tables, gb_arena *arena, uint32_t engines, uint32_t queue_capacity);    /* GB_ENOMEM */

#endif
