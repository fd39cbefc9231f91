/* Ranks that have a device each, as one op table (ops.h): what core/forward asks for goes to all of them, and what they answer becomes one
   answer. Each rank is a thread or a process of its own (follower.h, member.h).

   Ops that bring nothing back are not waited for. They leave after each half of a layer, or, when every sequence has one row, with the next
   question: a decode step is one message to each rank. A failure comes with the answer to the next question.

   Nothing waits for ever. A rank that is silent for longer than a collective may take, that ends, or that says GB_EDOWN takes the gang down:
   the others are told to give up, the call and all later ones return GB_EDOWN, and the log says which rank it was and how it ended. */
#ifndef GB_CUDA_GANG_H
#define GB_CUDA_GANG_H

#include "cuda/host/follower.h"

enum {
    GB_GANG_GRACE_MS = 2000,       /* beyond options.timeout_ms, for a rank to say that it gave up */
    GB_GANG_OPEN_TIMES = 20,       /* of the timeout, but at least the next: reading weights takes its time */
    GB_GANG_OPEN_MS = 60000,
    GB_GANG_BLAME_MS = 200,        /* for another rank's end to be seen, when one only says that the others do not answer */
    GB_GANG_FLUSH_BYTES = 1 << 16, /* of ops that wait to leave */
};

/* calls outlive the gang; weights may go when this returns. As gb_backend.ops_new: GB_EDOWN and the sentence of the rank that failed. Processes
   end when the thread that called this does, should they outlive the rest of it. */
int gb_gang_new(gb_ops **out, const gb_follower_calls *calls, const gb_model_config *config, const gb_weights *weights,
                const gb_backend_options *options, bool processes, gb_error *err);

#endif
