/* Waiting for the device, and giving up. Alone the runtime waits. In a world a stream may hold a collective that another rank never
   joins, so its streams are polled: until they are done, NCCL reports an error, somebody gave up or the time is over. */
#include "cuda/host/rank.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum { SPIN_US = 200, NAP_US = 50 };    /* a decode step ends within the first; longer waits leave the CPU to others */

/* --- time --- */

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void pause_after(uint64_t waited_us)
{
    const struct timespec nap = {.tv_nsec = NAP_US * 1000};
    if (waited_us < SPIN_US) sched_yield();
    else nanosleep(&nap, NULL);
}

/* --- giving up --- */

static void abort_comm(ncclComm_t *comm)
{
    if (*comm) ncclCommAbort(*comm);
    *comm = NULL;
}

/* While there is a window, kernels that are queued may still write through it: its communicator goes when they are done. None of its
   collectives is in a stream then, and barriers end when they see that nobody shall wait. */
void gb_cuda_give_up(gb_ops *ops, const char *why)
{
    gb_cuda_world *w = ((gb_cuda *)ops)->world;
    pthread_mutex_lock(&w->calls);
    if (!atomic_load(&w->down)) {
        snprintf(w->why, sizeof w->why, "%s", why);
        atomic_store(&w->down, true);
        if (w->stuck) __atomic_store_n(&w->stuck->kind, (uint32_t)GB_K_FAULT_BARRIER, __ATOMIC_RELEASE);    /* a barrier sees it */
        if (!w->lsa.handle) abort_comm(&w->all);
        abort_comm(&w->engine);
        abort_comm(&w->movers);
    }
    pthread_mutex_unlock(&w->calls);
}

int gb_cuda_alive(gb_cuda *cuda)
{
    gb_cuda_world *w = cuda->world;
    if (!w || !atomic_load(&w->down)) return GB_OK;
    return gb_k_fail(GB_EDOWN, "rank %u is down: %s", cuda->part.rank, w->why);
}

int gb_cuda_fail_down(gb_cuda *cuda, const char *format, ...)
{
    char why[sizeof cuda->world->why];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    gb_cuda_give_up(&cuda->base, why);
    return gb_cuda_alive(cuda);
}

void gb_cuda_drain(gb_cuda *cuda)
{
    uint64_t began = now_us(), waited = 0;
    for (; cudaStreamQuery(cuda->compute) == cudaErrorNotReady && waited < (uint64_t)cuda->world->timeout_ms * 1000; waited = now_us() - began)
        pause_after(waited);
    cudaGetLastError();
}

/* --- calls of NCCL --- */

int gb_cuda_enter(gb_cuda *cuda)
{
    pthread_mutex_lock(&cuda->world->calls);
    if (!atomic_load(&cuda->world->down)) return GB_OK;
    pthread_mutex_unlock(&cuda->world->calls);
    return gb_cuda_alive(cuda);
}

/* What NCCL says about a communicator; a call that it has not taken yet is ncclInProgress. */
static int ask(gb_cuda *cuda, const ncclComm_t *comm, ncclResult_t *state)
{
    GB_TRY(gb_cuda_enter(cuda));
    *state = ncclSuccess;
    ncclResult_t asked = *comm ? ncclCommGetAsyncError(*comm, state) : ncclSuccess;
    if (asked != ncclSuccess) *state = asked;
    pthread_mutex_unlock(&cuda->world->calls);
    return GB_OK;
}

static int fail_time(gb_cuda *cuda, const char *what)
{
    gb_cuda_world *w = cuda->world;
    return gb_cuda_fail_down(cuda, "rank %u of %u waited %u ms %s, and gave its communicators up; see whether the other ranks are there",
                             cuda->part.rank, w->ranks, w->timeout_ms, what);
}

int gb_cuda_leave(gb_cuda *cuda, const ncclComm_t *comm, ncclResult_t result, const char *call)
{
    gb_cuda_world *w = cuda->world;
    uint64_t began = now_us(), waited = 0;
    pthread_mutex_unlock(&w->calls);
    for (; result == ncclInProgress; waited = now_us() - began) {
        if (waited > (uint64_t)w->timeout_ms * 1000) return fail_time(cuda, "for NCCL to take a call");
        pause_after(waited);
        GB_TRY(ask(cuda, comm, &result));
    }
    if (result == ncclSuccess) return GB_OK;
    return gb_cuda_fail_down(cuda, "%s failed on rank %u: %s", call, cuda->part.rank, ncclGetErrorString(result));
}

/* --- streams --- */

static int check_comms(gb_cuda *cuda)
{
    const gb_cuda_world *w = cuda->world;
    const ncclComm_t *comms[] = {&w->all, &w->engine, &w->movers};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++) {
        ncclResult_t state;
        GB_TRY(ask(cuda, comms[i], &state));
        if (state != ncclSuccess && state != ncclInProgress)
            return gb_cuda_fail_down(cuda, "NCCL reports on rank %u: %s", cuda->part.rank, ncclGetErrorString(state));
    }
    return GB_OK;
}

static int check_barriers(gb_cuda *cuda)
{
    const gb_k_fault *stuck = cuda->world->stuck;
    if (!stuck || __atomic_load_n(&stuck->kind, __ATOMIC_ACQUIRE) == GB_K_FAULT_NONE) return GB_OK;
    return gb_cuda_fail_down(cuda, "rank %u waited %u ms at a barrier for rank %u; see whether it is there", cuda->part.rank, cuda->world->timeout_ms,
                             stuck->row);
}

/* The time begins anew with every wait: a round that is long, but moves, is not given up while its ops wait now and then. */
static int poll(gb_cuda *cuda, cudaStream_t stream, cudaEvent_t event)
{
    uint64_t began = now_us(), waited = 0;
    for (;; waited = now_us() - began) {
        cudaError_t state = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        GB_TRY(gb_cuda_alive(cuda));    /* what ended because it was given up is worth nothing */
        if (state != cudaSuccess && state != cudaErrorNotReady) {
            cudaGetLastError();
            return gb_cuda_fail_down(cuda, "the device of rank %u failed: %s", cuda->part.rank, cudaGetErrorString(state));
        }
        GB_TRY(check_comms(cuda));
        if (state == cudaSuccess) return check_barriers(cuda);
        if (waited > (uint64_t)cuda->world->timeout_ms * 1000) return fail_time(cuda, "for work that ends only when all ranks take part");
        pause_after(waited);
    }
}

int gb_cuda_wait(gb_cuda *cuda, cudaStream_t stream)
{
    if (cuda->world) return poll(cuda, stream, NULL);
    GB_CUDA(cudaStreamSynchronize(stream));
    return GB_OK;
}

int gb_cuda_wait_event(gb_cuda *cuda, cudaEvent_t event)
{
    if (cuda->world) return poll(cuda, NULL, event);
    GB_CUDA(cudaEventSynchronize(event));
    return GB_OK;
}
