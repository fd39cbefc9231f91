/* The tables of table.h, described: what each field is called, where it is, what it means and who writes it. Made from the lists of
   columns.h; LuaJIT's declarations, the views of policies, the documentation, the stub for editors and api_info are made from this. */
#ifndef GB_FLOW_VIEW_H
#define GB_FLOW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gb_field_type {
    GB_FIELD_COUNT,     /* a uint32_t */
    GB_FIELD_NUMBER,    /* a double */
    GB_FIELD_COLUMN,    /* a pointer to doubles */
} gb_field_type;

typedef struct gb_field {
    const char *name, *unit, *meaning;
    gb_field_type type;
    size_t offset;         /* in its struct */
    const char *rows;      /* of a column: the field that counts them */
    const char *index;     /* of a column: how a row is found, "i" */
    bool written;          /* by a hook; all else is read-only */
    bool hidden;           /* policies do not see it */
} gb_field;

/* Fields in the order of the struct. */
typedef struct gb_view {
    const char *name;      /* as a policy's parameter is called: "engines" */
    const char *type;      /* the struct: "gb_engine_table" */
    const char *about;     /* one line */
    size_t bytes;          /* of the struct */
    const gb_field *fields;
    uint32_t n_fields;
} gb_view;

enum { GB_VIEWS = 6 };

extern const gb_view gb_views[GB_VIEWS];    /* engines, request, queue, window, ranks, out */

#endif
