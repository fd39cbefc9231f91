/* NCCL on virtual ranks: what gimbal calls of it. A call is checked, and kept until its group ends; a communicator that does not block
   takes it when the host asks how it stands (ncclCommGetAsyncError), and no sooner. */
#include "cuda/cuemu/nccl.h"

#include <algorithm>

namespace cuemu {

/* Requests of one communicator and stream between ncclGroupStart and ncclGroupEnd: one operation of the stream. */
struct Group {
    cudaStream_t stream;
    std::vector<Request> requests;
};

static thread_local std::vector<Group> open_groups;

static ncclResult_t queue_group(const Group &group)
{
    std::vector<Request> requests = group.requests;
    push(stream_of(group.stream), {Op::collective, call_names[int(requests[0].call)], requests[0].where, nullptr, nullptr, 0,
                                   [requests] { return start_group(requests); }, {}, {}});
    return ncclSuccess;
}

/* The groups of this thread become calls of their communicators. */
static ncclResult_t close_groups(Locked &locked)
{
    std::vector<Group> groups = std::move(open_groups);
    open_groups.clear();
    ncclResult_t result = ncclSuccess;
    for (const Group &group : groups) {
        const Request &first = group.requests[0];
        result = settle(locked, first.comm, {call_names[int(first.call)], first.where, [group] { return queue_group(group); }});
    }
    return result;
}

static ncclResult_t refuse(const Request &r, const char *why)
{
    fault(r.where, "NCCL: %s: %s", call_names[int(r.call)], why);
    return ncclInvalidArgument;
}

static ncclResult_t check(const Request &r)
{
    if (!r.comm)
        return ncclInvalidArgument;
    if (!r.comm->pending.empty())
        return refuse(r, "the call before is still ncclInProgress: ask ncclCommGetAsyncError until it is not");
    if (r.comm->async_error != ncclSuccess)
        return r.comm->async_error;
    if (r.peer < 0 || r.peer >= r.comm->world->n)
        return refuse(r, "the peer is no rank");
    if ((r.call == Call::all_reduce || r.call == Call::reduce_scatter) && !can_reduce(r.type, r.op))
        return refuse(r, "this reduction is not emulated");
    if (device_of_stream(r.stream) != r.comm->device)
        return refuse(r, "the stream belongs to another device than the communicator");
    return ncclSuccess;
}

static ncclResult_t issue(Locked &locked, const Request &r)
{
    int status;
    if (call_fails(call_names[int(r.call)], &status))
        return ncclResult_t(status);
    ncclResult_t result = check(r);
    if (result != ncclSuccess)
        return result;
    auto same = [&](const Group &g) { return g.stream == r.stream && g.requests[0].comm == r.comm; };
    auto found = std::find_if(open_groups.begin(), open_groups.end(), same);
    if (found != open_groups.end())
        found->requests.push_back(r);
    else
        open_groups.push_back({r.stream, {r}});
    return group_depth == 0 ? close_groups(locked) : ncclSuccess;
}

static bool may_call(const char *function, ncclResult_t *result)
{
    int status;
    *result = ncclSuccess;
    if (call_fails(function, &status))
        *result = ncclResult_t(status);
    return *result == ncclSuccess;
}

#define ENTER() \
    Locked locked; \
    ncclResult_t refused; \
    if (!may_call(__func__, &refused)) \
        return refused

#define ENTER_WITH(handle) \
    ENTER(); \
    std::shared_ptr<Comm> comm = comm_of(handle, CUEMU_CALLER); \
    if (!comm) \
        return ncclInvalidArgument

}    // namespace cuemu

using namespace cuemu;

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* As in reality, this needs no GPU. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER();
    name_world(id);
    return ncclSuccess;
}

/* Returns when all ranks have called, or for a communicator that does not block, at once. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ENTER();
    static const ncclConfig_t valid = NCCL_CONFIG_INITIALIZER;
    if (config && (config->size != valid.size || config->magic != valid.magic))
        return ncclInvalidArgument;
    return join(locked, comm, n, id, rank, !config || config->blocking != 0, CUEMU_CALLER);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
    ENTER();
    return join(locked, comm, n, id, rank, true, CUEMU_CALLER);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ENTER();
    return join_all(comms, n, devices);
}

ncclResult_t ncclCommFinalize(ncclComm_t handle)
{
    ENTER_WITH(handle);
    return settle(locked, comm, {__func__, CUEMU_CALLER, [] { return ncclSuccess; }});
}

ncclResult_t ncclCommDestroy(ncclComm_t handle)
{
    ENTER_WITH(handle);
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle)
{
    ENTER_WITH(handle);
    give_up(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error)
{
    Locked locked;
    std::shared_ptr<Comm> comm = comm_of(handle, CUEMU_CALLER);
    int status;
    if (!comm)
        return ncclInvalidArgument;
    if (call_fails(__func__, &status))
        fail_later(ncclResult_t(status), *comm);
    *error = advance(*comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int *count)
{
    ENTER_WITH(handle);
    *count = comm->world->n;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int *rank)
{
    ENTER_WITH(handle);
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int *device)
{
    ENTER_WITH(handle);
    *device = comm->device;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const names[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument",
                                        "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? names[result] : "an unknown result";
}

const char *ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclMemAlloc(void **pointer, size_t bytes)
{
    ENTER();
    *pointer = allocate_lendable(bytes, current_device());
    return *pointer ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *pointer)
{
    ENTER();
    if (device_of(pointer) >= 0 && is_lent(pointer, device_of(pointer))) {
        fault(CUEMU_CALLER, "BAD FREE: the memory is still a window of its rank");
        return ncclInvalidUsage;
    }
    locked.lock.unlock();
    return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void *start, size_t bytes, ncclWindow_t *window, int)
{
    ENTER_WITH(handle);
    return open_window(locked, comm, start, bytes, window, CUEMU_CALLER);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window)
{
    ENTER_WITH(handle);
    return close_window(window, CUEMU_CALLER);
}

ncclResult_t ncclGroupStart(void)
{
    Locked locked;
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    Locked locked;
    ncclResult_t refused;
    if (group_depth == 0)
        return ncclInvalidUsage;
    if (group_depth > 1) {
        group_depth--;
        return ncclSuccess;
    }
    if (may_call(__func__, &refused))
        close_groups(locked);
    open_groups.clear();
    group_depth = 0;
    ncclResult_t result = settle_group(locked);
    return refused != ncclSuccess ? refused : result;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue(locked, {comm_of(comm, CUEMU_CALLER), Call::send, from, nullptr, count, type, ncclSum, peer, stream, CUEMU_CALLER});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue(locked, {comm_of(comm, CUEMU_CALLER), Call::receive, nullptr, to, count, type, ncclSum, peer, stream, CUEMU_CALLER});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue(locked, {comm_of(comm, CUEMU_CALLER), Call::all_gather, from, to, count, type, ncclSum, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    Locked locked;
    return issue(locked, {comm_of(comm, CUEMU_CALLER), Call::reduce_scatter, from, to, count, type, op, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue(locked, {comm_of(comm, CUEMU_CALLER), Call::all_reduce, from, to, count, type, op, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue(locked, {comm_of(comm, CUEMU_CALLER), Call::all_to_all, from, to, count, type, ncclSum, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue(locked, {comm_of(comm, CUEMU_CALLER), Call::broadcast, from, to, count, type, ncclSum, root, stream, CUEMU_CALLER});
}

}    // extern "C"
