/* sendrecv: each rank tells the others how many rows come (headers, by all-to-all), then sends exactly those (ncclSend, ncclRecv). The host must
   know the numbers, so it waits for the headers in every layer, and a step is no graph: for prefill, and to compare with. */
#include "cuda/host/rank.h"

int gb_cuda_sendrecv_take(gb_cuda *cuda)
{
    gb_cuda_sendrecv *s = &cuda->world->sendrecv;
    const gb_model_config *c = &cuda->config;
    size_t ranks = cuda->world->ranks, words = ranks * gb_cuda_header_words(cuda), rows = (size_t)cuda->max_share * c->experts_per_token;
    GB_TRY(gb_cuda_take(cuda, &s->leaving, words, sizeof *s->leaving));
    GB_TRY(gb_cuda_take(cuda, &s->arriving, words, sizeof *s->arriving));
    GB_CUDA(cudaMemset(s->arriving, 0, words * sizeof *s->arriving));    /* what a collective that is given up leaves: nobody comes */
    GB_TRY(gb_cuda_take_pinned(cuda, &s->pinned_leaving, words, sizeof *s->pinned_leaving));
    GB_TRY(gb_cuda_take_pinned(cuda, &s->pinned_arriving, words, sizeof *s->pinned_arriving));
    GB_TRY(gb_cuda_take(cuda, &s->sent, rows * c->hidden, sizeof *s->sent));
    GB_TRY(gb_cuda_take(cuda, &s->arrived, (size_t)cuda->max_arrivals * c->hidden, sizeof *s->arrived));
    GB_CUDA(cudaMemset(s->arrived, 0, (size_t)cuda->max_arrivals * c->hidden * sizeof *s->arrived));
    return GB_OK;
}

/* --- numbers --- */

static int exchange_headers(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    gb_cuda_sendrecv *s = &w->sendrecv;
    size_t words = gb_cuda_header_words(cuda), bytes = w->ranks * words * sizeof *s->leaving;
    gb_k_headers_args a = {.headers = s->leaving, .offsets = cuda->offsets, .version = cuda->live.version, .ranks = w->ranks,
                           .slots = cuda->base.info.slots};
    GB_TRY(gb_k_headers(&a, cuda->compute));
    GB_NCCL(cuda, w->all, ncclAlltoAll(s->leaving, s->arriving, words, ncclUint32, w->all, cuda->compute));
    GB_CUDA(cudaMemcpyAsync(s->pinned_leaving, s->leaving, bytes, cudaMemcpyDeviceToHost, cuda->compute));
    GB_CUDA(cudaMemcpyAsync(s->pinned_arriving, s->arriving, bytes, cudaMemcpyDeviceToHost, cuda->compute));
    return gb_cuda_wait(cuda, cuda->compute);
}

static size_t rows_in(const gb_cuda *cuda, const uint32_t *headers, uint32_t rank)
{
    const uint32_t *header = headers + (size_t)rank * gb_cuda_header_words(cuda);
    size_t rows = 0;
    for (uint32_t slot = 0; slot < cuda->part.slots; slot++) rows += header[slot];
    return rows;
}

static int check_room(const gb_cuda *cuda)
{
    size_t rows = 0;
    for (uint32_t rank = 0; rank < cuda->world->ranks; rank++) rows += rows_in(cuda, cuda->world->sendrecv.pinned_arriving, rank);
    if (rows <= cuda->max_arrivals) return GB_OK;
    return gb_k_fail(GB_EINTERNAL, "%zu rows would come to rank %u, which has room for %u", rows, cuda->part.rank, cuda->max_arrivals);
}

/* --- rows --- */

/* With every rank, in one group: the rows that `leaving` counts from where its headers say that they begin, those that `arriving` counts one
   behind the other. On the way back they change sides. */
static int swap_rows(gb_cuda *cuda, uint16_t *grouped, uint16_t *ordered, bool there)
{
    gb_cuda_world *w = cuda->world;
    const gb_cuda_sendrecv *s = &w->sendrecv;
    const size_t hidden = cuda->config.hidden, words = gb_cuda_header_words(cuda);
    ncclResult_t result = ncclSuccess;
    size_t start = 0;
    GB_TRY(gb_cuda_enter(cuda));
    ncclGroupStart();
    for (uint32_t rank = 0; rank < w->ranks; rank++) {
        size_t leaving = rows_in(cuda, s->pinned_leaving, rank) * hidden, arriving = rows_in(cuda, s->pinned_arriving, rank) * hidden;
        uint16_t *ours = grouped + s->pinned_leaving[rank * words + cuda->part.slots + GB_K_HEADER_BEGIN] * hidden, *theirs = ordered + start;
        ncclResult_t calls[2] = {ncclSuccess, ncclSuccess};
        if (there && leaving) calls[0] = ncclSend(ours, leaving, ncclBfloat16, (int)rank, w->all, cuda->compute);
        if (there && arriving) calls[1] = ncclRecv(theirs, arriving, ncclBfloat16, (int)rank, w->all, cuda->compute);
        if (!there && arriving) calls[0] = ncclSend(theirs, arriving, ncclBfloat16, (int)rank, w->all, cuda->compute);
        if (!there && leaving) calls[1] = ncclRecv(ours, leaving, ncclBfloat16, (int)rank, w->all, cuda->compute);
        for (int i = 0; i < 2; i++)
            if (calls[i] != ncclSuccess && calls[i] != ncclInProgress) result = calls[i];
        start += arriving;
    }
    ncclResult_t end = ncclGroupEnd();
    return gb_cuda_leave(cuda, &w->all, result == ncclSuccess ? end : result, "a group of ncclSend and ncclRecv");
}

int gb_cuda_sendrecv_send(gb_cuda *cuda)
{
    const gb_cuda_sendrecv *s = &cuda->world->sendrecv;
    GB_TRY(gb_cuda_launch_permute(cuda, s->sent));
    GB_TRY(exchange_headers(cuda));
    GB_TRY(check_room(cuda));
    GB_TRY(gb_cuda_land(cuda, s->arriving, 0));
    GB_TRY(swap_rows(cuda, s->sent, s->arrived, true));
    return gb_cuda_regroup(cuda, s->arrived);
}

/* What came has been read: the way back takes its place. */
int gb_cuda_sendrecv_bring(gb_cuda *cuda, gb_k_combine_args *combine)
{
    gb_cuda_world *w = cuda->world;
    GB_TRY(gb_cuda_bring_back(cuda, w->sendrecv.arrived, NULL, NULL));
    GB_TRY(swap_rows(cuda, w->back, w->sendrecv.arrived, false));
    combine->out = w->back;
    return GB_OK;
}
