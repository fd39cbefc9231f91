/* The inside of a rank (world.h): what a context has when it is not alone. The thread that runs rounds owns all of it; another copies
   experts over the communicator of movers; anybody may give up. Communicators do not block: a call returns at once, and whoever waits
   polls, with a deadline. */
#ifndef GB_CUDA_RANK_H
#define GB_CUDA_RANK_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/host/context.h"
#include "cuda/host/world.h"

enum {
    GB_CUDA_MOVERS_CTAS = 2,       /* blocks that copying experts may take from the rounds beside it */
    GB_CUDA_TENSOR_UNIT = 4,       /* a rank's share of rows is a multiple: what rows have in tables stays aligned */
};

/* How tokens reach the experts of other ranks (exchange.c). */
typedef enum gb_cuda_way { GB_CUDA_AGRS, GB_CUDA_SENDRECV, GB_CUDA_LSA, GB_CUDA_AUTO } gb_cuda_way;

/* All-gather and reduce-scatter: every rank sees all rows, and adds up what comes back. */
typedef struct gb_cuda_agrs {
    uint16_t *h;                   /* [ranks][share][hidden] */
    int32_t *slot_of_route, *own_slot_of_route, *grouped_of_route;    /* [ranks][share][K] */
    uint32_t *place_in_slot;       /* the same */
    uint32_t *work;                /* [part.slots + 1] */
    uint16_t *spread;              /* [ranks][share][K][hidden] */
} gb_cuda_agrs;

/* Send and receive. Headers [ranks][gb_cuda_header_words], on the device and pinned. */
typedef struct gb_cuda_sendrecv {
    uint32_t *leaving, *arriving, *pinned_leaving, *pinned_arriving;
    uint16_t *sent;                /* [share][K][hidden] in the order of slots */
    uint16_t *arrived;             /* [max_arrivals][hidden] in the order of arrival */
} gb_cuda_sendrecv;

/* A window: rows [ranks][stride][hidden] first, then where the rest begins, in bytes. */
typedef struct gb_cuda_window {
    size_t headers;                /* [ranks][gb_cuda_header_words] */
    size_t back;                   /* [share][K][hidden] what comes back, in the order of slots */
    size_t flags;                  /* [ranks] of the barrier */
    size_t bytes;
} gb_cuda_window;

typedef struct gb_cuda_lsa {
    gb_cuda_window window;
    char *own;                     /* this rank's memory, of NCCL */
    ncclWindow_t handle;
    char **parts;                  /* [4][ranks] on the device: rows, headers, back, flags of every rank */
    uint32_t *epoch, *abandoned;   /* of the barrier, a word each */
} gb_cuda_lsa;

/* Rows that others sent, as land.cu tells them. */
typedef struct gb_cuda_landing {
    uint32_t *begin, *from;        /* [part.slots][ranks] */
    uint32_t *start;               /* [ranks + 1] */
} gb_cuda_landing;

typedef struct gb_cuda_world {
    uint32_t ranks, timeout_ms;
    gb_cuda_way way;
    pthread_mutex_t calls;         /* held by whoever calls NCCL */
    ncclComm_t all, engine, movers;    /* NULL: not made, or gone */
    atomic_bool down;              /* given up; why says the rest */
    char why[256];
    uint32_t *left;                /* [ranks] what dispatch thinks that ranks receive: they count for themselves */
    uint32_t *offsets;             /* [part.slots + 1] of the rows that came for our experts */
    uint16_t *back;                /* [share][K][hidden] what came back */
    gb_cuda_landing landing;
    gb_cuda_agrs agrs;
    gb_cuda_sendrecv sendrecv;
    gb_cuda_lsa lsa;
    gb_k_fault *stuck;             /* pinned; a barrier that was waited at in vain, or GB_K_FAULT_BARRIER when nobody shall wait any more */
    float *parts;                  /* [tensor_ranks][rows][hidden] partial sums of the output projection */
    uint32_t n_heads, *heads;      /* [head_rows] which rows of the caller's are ours: row i of our logits is the caller's heads[i] */
    uint32_t *head_rows;           /* [head_rows] */
    gb_pick *picks;                /* [head_rows] */
} gb_cuda_world;

extern const gb_ops_table gb_cuda_rank_table;    /* rank.c */

/* world.c: the seat, the communicators and their end. Joining ends when every rank has joined with the same options. */
int  gb_cuda_check_seat(const gb_model_config *config, const gb_backend_options *options, const gb_cuda_seat *seat, gb_error *err);
gb_cuda_part gb_cuda_part_of(const gb_cuda *cuda, const gb_cuda_seat *seat);
int  gb_cuda_join_world(gb_cuda *cuda, const gb_backend_options *options, const gb_cuda_seat *seat);
void gb_cuda_leave_world(gb_cuda *cuda);
/* Nothing of ours waits for other ranks any more: all is done, or given up. */
void gb_cuda_settle(gb_cuda *cuda);

/* wait.c. A call of NCCL stands between enter and leave, with nothing else: leave waits until NCCL has taken it, and gives up when it has
   not. GB_EDOWN when the world is given up. */
int gb_cuda_alive(gb_cuda *cuda);
void gb_cuda_drain(gb_cuda *cuda);    /* given up: until what was queued is over, which nothing holds up any more */
int gb_cuda_enter(gb_cuda *cuda);
int gb_cuda_leave(gb_cuda *cuda, const ncclComm_t *comm, ncclResult_t result, const char *call);
int gb_cuda_fail_down(gb_cuda *cuda, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define GB_NCCL(cuda, comm, call) \
    do { \
        GB_TRY(gb_cuda_enter(cuda)); \
        GB_TRY(gb_cuda_leave((cuda), &(comm), (call), #call)); \
    } while (0)

/* exchange.c: rows on their way to experts, behind dispatch; and back, before combine, whose inputs it names. */
int gb_cuda_take_exchange(gb_cuda *cuda);
int gb_cuda_send_rows(gb_cuda *cuda);
int gb_cuda_bring_rows(gb_cuda *cuda, gb_k_combine_args *combine);
/* Rows that the experts here may get for each row of a rank's share, from one rank and from all. */
uint32_t gb_cuda_routes_per_rank(const gb_cuda *cuda);
uint32_t gb_cuda_arrivals_per_row(const gb_cuda *cuda);
bool gb_cuda_way_of(const char *name, gb_cuda_way *way);
uint32_t gb_cuda_way_ranks(gb_cuda_way way);    /* how many it can be at most */
void gb_cuda_choose_way(gb_cuda *cuda);         /* for auto; the communicator of all is there */
const char *gb_cuda_way_name(gb_cuda_way way);
/* A landing: the headers of all ranks are read, rows come into the order of slots, and what the experts made of them goes back, to
   returned in the order of arrival or into every source's back. */
uint32_t gb_cuda_header_words(const gb_cuda *cuda);
int gb_cuda_land(gb_cuda *cuda, const uint32_t *headers, uint32_t stride);    /* nothing behind lsa's abandoned barrier */
int gb_cuda_regroup(gb_cuda *cuda, const uint16_t *arrived);
int gb_cuda_bring_back(gb_cuda *cuda, uint16_t *returned, uint16_t *const *back, const uint32_t *headers);

/* agrs.c, sendrecv.c, lsa.c: the ways */
int gb_cuda_agrs_take(gb_cuda *cuda);
int gb_cuda_agrs_send(gb_cuda *cuda);
int gb_cuda_agrs_bring(gb_cuda *cuda, gb_k_combine_args *combine);
int gb_cuda_sendrecv_take(gb_cuda *cuda);
int gb_cuda_sendrecv_send(gb_cuda *cuda);
int gb_cuda_sendrecv_bring(gb_cuda *cuda, gb_k_combine_args *combine);
int gb_cuda_lsa_take(gb_cuda *cuda);
int gb_cuda_lsa_send(gb_cuda *cuda);
int gb_cuda_lsa_bring(gb_cuda *cuda, gb_k_combine_args *combine);
void gb_cuda_lsa_give_back(gb_cuda *cuda);

/* rank.c */
int gb_cuda_take_rank(gb_cuda *cuda);

/* tensor.c: an engine on several ranks. x += the output projection over all heads; the shares of x to all of them. */
int gb_cuda_take_tensor(gb_cuda *cuda);
int gb_cuda_project_together(gb_cuda *cuda, const gb_cuda_layer *layer);
int gb_cuda_gather_x(gb_cuda *cuda);

/* ops.c */
int gb_cuda_launch_permute(gb_cuda *cuda, uint16_t *grouped);

#endif
