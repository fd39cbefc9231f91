/* Bytes of experts on their way from one place in memory to another. Whoever plans a migration hands out a list of pieces and
   waits for it to come back; a driver has an executor copy them, between rounds or beside one: nobody reads the places that
   are written, nobody writes those that are read. One list is out at a time. */
#ifndef GB_FLOW_COPY_H
#define GB_FLOW_COPY_H

#include <stdint.h>

enum { GB_COPIES_MAX = 64 };    /* pieces in a list */

typedef struct gb_copy {
    uint32_t layer;
    int32_t from, to;            /* places (placement.h) */
    uint64_t offset, bytes;      /* of one expert's weights */
} gb_copy;

typedef struct gb_copy_list {
    uint32_t n;
    gb_copy copies[GB_COPIES_MAX];
} gb_copy_list;

#endif
