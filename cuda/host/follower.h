/* The life of one rank: it opens its op table (world.h) and carries out what a gang (gang.h) asks for, on a thread or in a process of its
   own. Three threads, one for each pair of sockets (wire.h): the one that was started runs rounds, one copies experts, one hears when to
   give up. The rank ends when the gang asks for it, or closes its ends of the sockets: a process whose gang is gone ends at once.

   Ops of a round are not answered one by one: the first failure is kept, what follows is left out, and the next question (sample, finish,
   read) is answered with it. After a message that took long, the rank says that it is at work. */
#ifndef GB_CUDA_FOLLOWER_H
#define GB_CUDA_FOLLOWER_H

#include "cuda/host/wire.h"
#include "cuda/host/world.h"

/* How tables of ranks are made and used: world.h's functions, or a test's. */
typedef struct gb_follower_calls {
    int  (*ids)(gb_cuda_ids *ids, const gb_ops_limits *limits, gb_error *err);
    int  (*open)(gb_ops **out, const gb_model_config *config, const gb_weights *weights, const gb_backend_options *options,
                 const gb_cuda_seat *seat, gb_error *err);
    int  (*send)(gb_ops *ops, const gb_copy *copy, uint32_t to_rank);
    int  (*receive)(gb_ops *ops, const gb_copy *copy, uint32_t from_rank);
    void (*give_up)(gb_ops *ops, const char *why);
} gb_follower_calls;

enum {
    GB_FOLLOWER_ORPHAN = 70,           /* a process ends with it when its gang is gone */
    GB_FOLLOWER_SIGNS = 8,             /* of life within a timeout */
    GB_FOLLOWER_LOG_BYTES = 1024,      /* of one line */
    GB_FOLLOWER_WHY_BYTES = 512,       /* of the sentence with which to give up */
};

/* What a rank begins with. Pointers are read until the rank has answered that it is open, or failed; without weights it opens
   options.directory. */
typedef struct gb_follower_start {
    const gb_follower_calls *calls;
    int sockets[GB_WIRE_PAIRS];    /* the rank's ends, which it closes */
    const gb_model_config *config;
    const gb_weights *weights;
    gb_backend_options options;
    gb_cuda_seat seat;
} gb_follower_start;

/* Runs a rank to its end on this thread. */
void gb_follower_run(const gb_follower_start *start);

/* The same in a process of its own: socket and the two after it are the rank's ends, and all else comes by message. Returns the status to
   exit with. */
int gb_follower_serve(const gb_follower_calls *calls, int socket, gb_error *err);

/* What the message GB_WIRE_OPEN holds. */
void gb_follower_put_start(gb_wire_buffer *out, const gb_follower_start *start);

/* What a log line is in a datagram. */
typedef struct gb_follower_line {
    int32_t level;
    char text[GB_FOLLOWER_LOG_BYTES];
} gb_follower_line;

#endif
