/* One rank of a round that several devices share. It is an op table like any other (ops.h), and all ranks are asked for the same ops with
   the same rows, each by a thread or a process of its own: then each computes its engine's attention and its own experts, and they meet
   in NCCL's collectives. Differences from a table that is alone:

       rows        are those of all engines everywhere; a rank takes its engine's out and knows from the others how long collectives are
       head        takes the rows of all engines; a rank computes those of its engine if it is the engine's first rank
       sample      the same for picks: those of others stay as they are
       dispatch    counts what its engine sent and what it received itself: rank_tokens[rank], and counts of its source
       read        writes the rows that this rank answers for and leaves the others: all ranks together fill out
       copy_expert, checksum    know the places of this rank only

   An engine that owns several ranks splits attention's heads over them (tensor parallelism) and its rows when it comes to experts.

   Nothing waits for ever: a collective that does not end within the timeout, or that NCCL reports as failed, is given up with its
   communicator, and that op and all later ones return GB_EDOWN with a sentence. */
#ifndef GB_CUDA_WORLD_H
#define GB_CUDA_WORLD_H

#include <nccl.h>

#include "core/forward/backend.h"

/* Who sits where. Ids are made by one (gb_cuda_world_ids) and told to all. */
typedef struct gb_cuda_ids {
    ncclUniqueId world, movers;    /* of all ranks: rounds, and copies of experts beside them */
    ncclUniqueId engine;           /* of the ranks of one engine: not the same for all */
} gb_cuda_ids;

typedef struct gb_cuda_seat {
    uint32_t rank;                 /* of options->limits.ranks; its engine is rank / (ranks / engines) */
    int device;
    gb_cuda_ids ids;
} gb_cuda_seat;

/* ids[ranks], which say the same world and differ by engine. GB_EUNSUPPORTED without NCCL. */
int gb_cuda_world_ids(gb_cuda_ids *ids, const gb_ops_limits *limits, gb_error *err);

/* Returns when all ranks called it, or failed; each on the thread that will run its rounds. As gb_backend.ops_new. */
int gb_cuda_rank_new(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                     const gb_cuda_seat *seat, gb_error *err);

/* Both ranks of a copy call theirs at the same time, on a thread beside the one that runs rounds; copy->to and copy->from are places of all
   ranks (placement.h). Copies of one pair of ranks meet in the order of the calls. */
int gb_cuda_send_expert(gb_ops *ops, const gb_copy *copy, uint32_t to_rank);
int gb_cuda_receive_expert(gb_ops *ops, const gb_copy *copy, uint32_t from_rank);

/* Any thread: the communicators are given up, and whatever waits in them ends with GB_EDOWN. */
void gb_cuda_give_up(gb_ops *ops, const char *why);

#endif
