/* Where one msgpack message ends, found without building anything: a pre-scanner between the socket and msgpack-c, which
   would reserve whatever a header announces. Only whole messages within every limit get past it.

   Invariant: what is announced but has not arrived (one byte for each value at least, every byte of a string) fits into
   the rest of a message of GB_RPC_MESSAGE_MAX bytes, so a lie is found at its header and costs nothing. */
#ifndef GB_RPC_FRAME_H
#define GB_RPC_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "bindings/rpc/service.h"

typedef struct gb_frame {
    size_t at;                               /* bytes of the message understood so far; its size once it is whole */
    uint32_t values;                         /* values seen or announced */
    uint32_t depth;
    uint64_t open;                           /* sum of left: values announced that have not begun */
    uint32_t left[GB_RPC_DEPTH_MAX + 1];     /* the same by level */
} gb_frame;

typedef enum gb_frame_state { GB_FRAME_PART, GB_FRAME_WHOLE, GB_FRAME_BAD } gb_frame_state;

void gb_frame_init(gb_frame *frame);    /* at the first byte of a message */

/* bytes[0..n) is all that has arrived since that first byte; it may hold more than one message. WHOLE: the message is
   bytes[0..frame->at). PART: call again with more. BAD: err says why; nothing after it can be understood. */
gb_frame_state gb_frame_scan(gb_frame *frame, const void *bytes, size_t n, gb_error *err);

#endif
