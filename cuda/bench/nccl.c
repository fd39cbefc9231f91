/* NCCL with one rank, and the backend as a world of one rank: the calls that dispatch and combine are made of, in a stream and in a graph, must bring to this rank what it sends to
   itself. Their times are what a call costs when nothing travels. */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/bench/model.h"

#define GB_BENCH_NCCL(call) \
    do { \
        ncclResult_t gb_nccl_result = (call); \
        if (gb_nccl_result != ncclSuccess) return gb_k_fail(GB_EDOWN, "%s failed: %s", #call, ncclGetErrorString(gb_nccl_result)); \
    } while (0)

enum { ELEMENTS = 1 << 20, TINY_ELEMENTS = 64 };

typedef struct club {
    ncclComm_t comm;
    size_t elements;
    gb_bench_array in, out;
} club;

static int all_gather(void *self, uint32_t set, cudaStream_t stream)
{
    const club *c = self;
    GB_BENCH_NCCL(ncclAllGather(gb_bench_at(&c->in, set), gb_bench_at(&c->out, set), c->elements, ncclFloat32, c->comm, stream));
    return GB_OK;
}

static int reduce_scatter(void *self, uint32_t set, cudaStream_t stream)
{
    const club *c = self;
    GB_BENCH_NCCL(ncclReduceScatter(gb_bench_at(&c->in, set), gb_bench_at(&c->out, set), c->elements, ncclFloat32, ncclSum, c->comm, stream));
    return GB_OK;
}

static int all_to_all(void *self, uint32_t set, cudaStream_t stream)
{
    const club *c = self;
    GB_BENCH_NCCL(ncclAlltoAll(gb_bench_at(&c->in, set), gb_bench_at(&c->out, set), c->elements, ncclFloat32, c->comm, stream));
    return GB_OK;
}

static int send_and_receive(void *self, uint32_t set, cudaStream_t stream)
{
    const club *c = self;
    GB_BENCH_NCCL(ncclGroupStart());
    GB_BENCH_NCCL(ncclSend(gb_bench_at(&c->in, set), c->elements, ncclFloat32, 0, c->comm, stream));
    GB_BENCH_NCCL(ncclRecv(gb_bench_at(&c->out, set), c->elements, ncclFloat32, 0, c->comm, stream));
    GB_BENCH_NCCL(ncclGroupEnd());
    return GB_OK;
}

/* Whether out is in; out is cleared. */
static int check_out(gb_bench *b, const club *c, const char *name, const char *where)
{
    const size_t bytes = c->elements * sizeof(float);
    float *in = malloc(bytes), *out = malloc(bytes);
    int status = in && out ? GB_OK : gb_k_fail(GB_ENOMEM, "out of memory for %zu bytes", bytes);
    if (status == GB_OK && (cudaStreamSynchronize(b->stream) != cudaSuccess || cudaMemcpy(in, gb_bench_at(&c->in, 0), bytes, cudaMemcpyDeviceToHost) != cudaSuccess ||
                            cudaMemcpy(out, gb_bench_at(&c->out, 0), bytes, cudaMemcpyDeviceToHost) != cudaSuccess ||
                            cudaMemset(gb_bench_at(&c->out, 0), 0, bytes) != cudaSuccess))
        status = gb_k_fail(GB_EDOWN, "%s %s: the device does not answer", name, where);
    if (status == GB_OK && memcmp(in, out, bytes) != 0) gb_bench_wrong(b, "nccl: %s %s did not bring what was sent", name, where);
    free(in);
    free(out);
    return status;
}

static int run_calls(gb_bench *b, club *c)
{
    static const struct { const char *name; gb_bench_work *work; } calls[] = {
        {"all-gather", all_gather}, {"reduce-scatter", reduce_scatter}, {"all-to-all", all_to_all}, {"send and receive", send_and_receive},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        gb_bench_row row = {.step = "nccl", .item = calls[i].name, .bytes = 2.0 * (double)c->elements * sizeof(float)};
        snprintf(row.size, sizeof row.size, "%zu bytes to itself", c->elements * sizeof(float));
        GB_TRY(calls[i].work(c, 0, b->stream));    /* peers are connected before any capture */
        GB_TRY(check_out(b, c, calls[i].name, "in a stream"));
        GB_TRY(gb_bench_replay(b, &row.time, calls[i].work, c, 1));
        GB_TRY(check_out(b, c, calls[i].name, "in a graph"));
        gb_bench_report(b, &row);
    }
    return GB_OK;
}

static int open_club(gb_bench *b, club *c)
{
    ncclUniqueId id;
    GB_BENCH_NCCL(ncclGetUniqueId(&id));
    GB_BENCH_NCCL(ncclCommInitRank(&c->comm, 1, id, 0));
    c->elements = b->emulated ? TINY_ELEMENTS : ELEMENTS;
    GB_TRY(gb_bench_random_f32(b, &c->in, 1, c->elements, 1));
    return gb_bench_take(b, &c->out, 1, c->elements, sizeof(float));
}

/* --- a window --- */

enum { WINDOW_WORDS = 256 };

/* What lies in the window, read through the address that NCCL's device functions give. */
static int check_window(gb_bench *b, const club *c, ncclWindow_t window, const uint32_t *own)
{
    gb_bench_array peers;
    void *peer = NULL;
    uint32_t written[WINDOW_WORDS], read[WINDOW_WORDS] = {0};
    GB_TRY(gb_bench_take(b, &peers, 1, 1, sizeof peer));
    const gb_k_peers_args a = {.peers = gb_bench_at(&peers, 0), .window = window, .ranks = 1};
    for (uint32_t i = 0; i < WINDOW_WORDS; i++) written[i] = i * 2654435761u;
    GB_CUDA(cudaMemcpyAsync((void *)own, written, sizeof written, cudaMemcpyHostToDevice, b->stream));
    GB_TRY(gb_k_peers(&a, b->stream));
    GB_CUDA(cudaMemcpyAsync(&peer, a.peers, sizeof peer, cudaMemcpyDeviceToHost, b->stream));
    GB_CUDA(cudaStreamSynchronize(b->stream));
    GB_CUDA(cudaMemcpy(read, peer, sizeof read, cudaMemcpyDeviceToHost));
    if (gb_k_reachable(c->comm) != 1) gb_bench_wrong(b, "nccl: one rank reaches %u", gb_k_reachable(c->comm));
    if (memcmp(read, written, sizeof read) != 0) gb_bench_wrong(b, "nccl: the window does not lie where NCCL says");
    printf("a window lies where NCCL's device functions say\n");
    return GB_OK;
}

static int run_window(gb_bench *b, const club *c)
{
    ncclWindow_t window = NULL;
    void *own = NULL;
    GB_BENCH_NCCL(ncclMemAlloc(&own, WINDOW_WORDS * sizeof(uint32_t)));
    ncclResult_t result = ncclCommWindowRegister(c->comm, own, WINDOW_WORDS * sizeof(uint32_t), &window, NCCL_WIN_COLL_SYMMETRIC);
    int status = result == ncclSuccess && window ? check_window(b, c, window, own) : gb_k_fail(GB_EDOWN, "NCCL makes no window (%d)", (int)result);
    if (window) ncclCommWindowDeregister(c->comm, window);
    ncclMemFree(own);
    return status;
}

/* --- the backend as a world of one rank --- */

enum { WORLD_PROMPT = 20, WORLD_STEPS = 8, WORLD_POSITIONS = WORLD_PROMPT + WORLD_STEPS };

/* The tokens of a small model whose rows travel by `exchange`, or stay when that is NULL. */
static int run_world(gb_bench *b, const char *exchange, int32_t tokens[WORLD_POSITIONS])
{
    const gb_bench_model_limits limits = {.layers = 2, .sequences = 1, .positions = WORLD_POSITIONS, .max_tokens = WORLD_PROMPT,
                                          .layout = exchange ? "threads" : "one", .exchange = exchange};
    gb_bench_model m;
    double unused;
    GB_TRY(gb_bench_open_model(b, &m, &limits));
    gb_bench_prompt(b, &m, 0, WORLD_PROMPT, 5);
    int status = GB_OK;
    for (int i = 0; i < WORLD_STEPS && status == GB_OK; i++) status = gb_bench_step(&m, 0, 1, &unused);
    memcpy(tokens, m.tokens, WORLD_POSITIONS * sizeof *tokens);
    gb_bench_close_model(&m);
    return status;
}

static int run_worlds(gb_bench *b)
{
    static const char *const ways[] = {"agrs", "sendrecv", "lsa"};
    int32_t wanted[WORLD_POSITIONS], got[WORLD_POSITIONS];
    gb_bench small = *b;
    small.shape = gb_bench_tiny_shape;
    GB_TRY(run_world(&small, NULL, wanted));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int status = run_world(&small, ways[i], got);
        if (status == GB_EINVAL || status == GB_EUNSUPPORTED) {
            printf("a world of one rank by %s: not here (%s)\n", ways[i], gb_k_message());
            continue;
        }
        GB_TRY(status);
        if (memcmp(got, wanted, sizeof got) != 0) gb_bench_wrong(b, "nccl: a world of one rank by %s gives other tokens than no world", ways[i]);
        printf("a world of one rank by %s gives the tokens of none\n", ways[i]);
    }
    return GB_OK;
}

int gb_bench_nccl_step(gb_bench *b)
{
    club c = {0};
    int status = open_club(b, &c);
    if (status == GB_OK) status = run_calls(b, &c);
    if (status == GB_OK) status = run_window(b, &c);
    cudaStreamSynchronize(b->stream);
    if (c.comm) ncclCommDestroy(c.comm);
    return status == GB_OK ? run_worlds(b) : status;
}
