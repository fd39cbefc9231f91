/* NCCL on virtual ranks of one process. A collective happens when every rank's call stands at the head of its stream; sends and
   receives pair up in order. What would hang on hardware is reported with the places of the calls: ranks that disagree about the next
   collective, sizes that differ, a group that waits for itself. Sums run in the order of the ranks. */
#include "cuda/cuemu/internal.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <nccl.h>

namespace cuemu {

enum class Call { all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, send, receive };

static const char *const call_names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclAlltoAll", "ncclBroadcast",
                                         "ncclSend", "ncclRecv"};

struct Comm;

/* One call as it was made. */
struct Request {
    Comm *comm;
    Call call;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;    /* or root */
    cudaStream_t stream;
    const void *where;
};

/* A request that stands at the head of its stream. */
struct Posted {
    Request request;
    bool done;
};

/* The n-th collective of a communicator. */
struct Round {
    std::vector<std::shared_ptr<Posted>> posted;    /* by rank */
    bool disputed = false;
};

struct World {
    int n = 0;
    std::vector<Comm *> comms;
    std::map<uint64_t, Round> rounds;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posted>>> sends, receives;    /* by (from, to) */
    bool aborted = false;
    const void *joined_by = nullptr;    /* a rank that joined outside a group waits for the others in its thread */
};

struct Comm {
    std::shared_ptr<World> world;
    int rank, device;
    uint64_t next_round = 0;
    ncclResult_t async_error = ncclSuccess;
};

/* Requests of one communicator and stream between ncclGroupStart and ncclGroupEnd: one operation of the stream. */
struct Group {
    cudaStream_t stream;
    std::vector<Request> requests;
};

static thread_local int group_depth;
static thread_local std::vector<Group> open_groups;

static size_t bytes_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8: case ncclUint8: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    default: return 4;
    }
}

static size_t bytes_of(const Request &r) { return r.count * bytes_of(r.type); }

/* --- arithmetic of reductions ------------------------------------------------------------------------------------------------- */

static double load(const char *at, ncclDataType_t type)
{
    uint32_t bits;
    float f;
    switch (type) {
    case ncclBfloat16:
        bits = uint32_t(*reinterpret_cast<const uint16_t *>(at)) << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    case ncclFloat32: return *reinterpret_cast<const float *>(at);
    case ncclFloat64: return *reinterpret_cast<const double *>(at);
    case ncclInt32: return *reinterpret_cast<const int32_t *>(at);
    case ncclUint32: return *reinterpret_cast<const uint32_t *>(at);
    default: return NAN;
    }
}

static void store(char *at, ncclDataType_t type, double value)
{
    float f = float(value);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (type) {
    case ncclBfloat16: *reinterpret_cast<uint16_t *>(at) = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16); break;
    case ncclFloat32: *reinterpret_cast<float *>(at) = f; break;
    case ncclFloat64: *reinterpret_cast<double *>(at) = value; break;
    case ncclInt32: *reinterpret_cast<int32_t *>(at) = int32_t(value); break;
    default: *reinterpret_cast<uint32_t *>(at) = uint32_t(value); break;
    }
}

static bool can_reduce(ncclDataType_t type, ncclRedOp_t op)
{
    bool types = type == ncclBfloat16 || type == ncclFloat32 || type == ncclFloat64 || type == ncclInt32 || type == ncclUint32;
    return types && (op == ncclSum || op == ncclMax || op == ncclMin);
}

/* Element i of the reduction over all ranks' inputs; floats are summed as floats, rank after rank. */
static double reduced(const Round &round, size_t i, ncclDataType_t type, ncclRedOp_t op)
{
    size_t at = i * bytes_of(type);
    double value = load(static_cast<const char *>(round.posted[0]->request.from) + at, type);
    for (size_t rank = 1; rank < round.posted.size(); rank++) {
        double other = load(static_cast<const char *>(round.posted[rank]->request.from) + at, type);
        value = op == ncclSum ? value + other : op == ncclMax ? std::max(value, other) : std::min(value, other);
        if (type == ncclFloat32 || type == ncclBfloat16)
            value = float(value);
    }
    return value;
}

static void reduce(const Round &round, size_t first, size_t count, const Request &into)
{
    size_t size = bytes_of(into.type);
    std::vector<char> out(count * size);
    for (size_t i = 0; i < count; i++)
        store(&out[i * size], into.type, reduced(round, first + i, into.type, into.op));
    for (const auto &posted : round.posted)
        touch(posted->request.from, (first + count) * size, false, posted->request.where);
    copy_bytes(into.to, out.data(), out.size(), into.where);
}

/* --- collectives -------------------------------------------------------------------------------------------------------------- */

static void gather(const Round &round, const Request &into)
{
    for (size_t rank = 0; rank < round.posted.size(); rank++)
        copy_bytes(static_cast<char *>(into.to) + rank * bytes_of(into), round.posted[rank]->request.from, bytes_of(into), into.where);
}

static void exchange(const Round &round, const Request &into)
{
    for (size_t rank = 0; rank < round.posted.size(); rank++)
        copy_bytes(static_cast<char *>(into.to) + rank * bytes_of(into),
                   static_cast<const char *>(round.posted[rank]->request.from) + size_t(into.comm->rank) * bytes_of(into), bytes_of(into),
                   into.where);
}

static void run_collective(Round &round)
{
    std::vector<cudaStream_t> streams;
    for (const auto &posted : round.posted)
        streams.push_back(posted->request.stream);
    meet_streams(streams);
    Call call = round.posted[0]->request.call;
    size_t ranks = round.posted.size();
    for (auto &posted : round.posted) {
        Request &r = posted->request;
        size_t bytes = bytes_of(r) * (call == Call::reduce_scatter || call == Call::all_to_all ? ranks : 1);
        if (!touch(r.from, bytes, false, r.where))
            return;
    }
    if (call == Call::all_reduce) {    /* the only one whose in-place form overwrites what other ranks still read */
        std::vector<char> sum(bytes_of(round.posted[0]->request));
        Request whole = round.posted[0]->request;
        whole.to = sum.data();
        reduce(round, 0, whole.count, whole);
        for (auto &posted : round.posted)
            copy_bytes(posted->request.to, sum.data(), sum.size(), posted->request.where);
        return;
    }
    for (auto &posted : round.posted) {
        const Request &r = posted->request;
        if (call == Call::all_gather)
            gather(round, r);
        else if (call == Call::all_to_all)
            exchange(round, r);
        else if (call == Call::reduce_scatter)
            reduce(round, size_t(r.comm->rank) * r.count, r.count, r);
        else
            copy_bytes(r.to, round.posted[size_t(r.peer)]->request.from, bytes_of(r), r.where);
    }
}

static bool agree(const Request &a, const Request &b)
{
    return a.call == b.call && a.count == b.count && a.type == b.type && (a.call != Call::broadcast || a.peer == b.peer);
}

/* Who calls something else would hang or corrupt memory on hardware: the round never happens. */
static void check_agreement(Round &round, const Posted &mine)
{
    for (const auto &other : round.posted)
        if (other && !round.disputed && !agree(other->request, mine.request)) {
            const Request &a = other->request, &b = mine.request;
            fault(b.where, "NCCL MISMATCH: rank %d calls %s of %zu elements (type %d), rank %d %s of %zu (type %d) at %s", b.comm->rank,
                  call_names[int(b.call)], b.count, int(b.type), a.comm->rank, call_names[int(a.call)], a.count, int(a.type),
                  place_of(a.where).c_str());
            round.disputed = true;
        }
}

static void post_collective(const std::shared_ptr<Posted> &posted, uint64_t number)
{
    Comm *comm = posted->request.comm;
    World &world = *comm->world;
    Round &round = world.rounds[number];
    round.posted.resize(size_t(world.n));
    check_agreement(round, *posted);
    round.posted[size_t(comm->rank)] = posted;
    if (round.disputed || std::any_of(round.posted.begin(), round.posted.end(), [](const auto &p) { return !p; }))
        return;
    run_collective(round);
    for (auto &each : round.posted)
        each->done = true;
    world.rounds.erase(number);
}

/* --- sends and receives --------------------------------------------------------------------------------------------------------- */

static void pair_up(World &world, std::pair<int, int> way)
{
    auto &sends = world.sends[way], &receives = world.receives[way];
    while (!sends.empty() && !receives.empty()) {
        const Request &send = sends.front()->request, &receive = receives.front()->request;
        if (bytes_of(send) != bytes_of(receive))
            fault(receive.where, "NCCL MISMATCH: rank %d sends %zu bytes (at %s), rank %d receives %zu", way.first, bytes_of(send),
                  place_of(send.where).c_str(), way.second, bytes_of(receive));
        meet_streams({receive.stream, send.stream});
        copy_bytes(receive.to, send.from, std::min(bytes_of(send), bytes_of(receive)), receive.where);
        sends.front()->done = receives.front()->done = true;
        sends.pop_front();
        receives.pop_front();
    }
}

static void post_pair(const std::shared_ptr<Posted> &posted)
{
    const Request &r = posted->request;
    World &world = *r.comm->world;
    bool sends = r.call == Call::send;
    std::pair<int, int> way = sends ? std::make_pair(r.comm->rank, r.peer) : std::make_pair(r.peer, r.comm->rank);
    (sends ? world.sends : world.receives)[way].push_back(posted);
    pair_up(world, way);
}

/* --- a group on its stream -------------------------------------------------------------------------------------------------------- */

static bool is_pair(Call call) { return call == Call::send || call == Call::receive; }

/* Called when the group reaches the head of its stream, each time it is launched (a graph launches it again). */
static Started start_group(const std::vector<Request> &requests)
{
    auto posted = std::make_shared<std::vector<std::shared_ptr<Posted>>>();
    for (const Request &r : requests)
        posted->push_back(std::make_shared<Posted>(Posted{r, false}));
    for (const auto &each : *posted)
        if (is_pair(each->request.call))
            post_pair(each);
        else
            post_collective(each, each->request.comm->next_round++);
    auto over = [](const auto &each) { return each->done || each->request.comm->world->aborted; };
    return {[posted, over] { return std::all_of(posted->begin(), posted->end(), over); }};
}

static void close_groups()
{
    std::vector<Group> groups = std::move(open_groups);
    open_groups.clear();
    for (const Group &group : groups) {
        std::vector<Request> requests = group.requests;
        push(stream_of(group.stream), {Op::collective, call_names[int(requests[0].call)], requests[0].where, nullptr, nullptr, 0,
                                       [requests] { return start_group(requests); }, {}, {}});
    }
}

static ncclResult_t refuse(const Request &r, const char *why)
{
    fault(r.where, "NCCL: %s: %s", call_names[int(r.call)], why);
    return ncclInvalidArgument;
}

static ncclResult_t issue(const Request &r)
{
    int status;
    if (call_fails(call_names[int(r.call)], &status))
        return ncclResult_t(status);
    if (!r.comm)
        return refuse(r, "no communicator");
    if (r.comm->world->aborted)
        return ncclInvalidUsage;
    if (r.comm->async_error != ncclSuccess)
        return r.comm->async_error;
    if (r.peer < 0 || r.peer >= r.comm->world->n)
        return refuse(r, "the peer is no rank");
    if ((r.call == Call::all_reduce || r.call == Call::reduce_scatter) && !can_reduce(r.type, r.op))
        return refuse(r, "this reduction is not emulated");
    if (device_of_stream(r.stream) != r.comm->device)
        return refuse(r, "the stream belongs to another device than the communicator");
    auto same = [&](const Group &g) { return g.stream == r.stream && g.requests[0].comm == r.comm; };
    auto found = std::find_if(open_groups.begin(), open_groups.end(), same);
    if (found != open_groups.end())
        found->requests.push_back(r);
    else
        open_groups.push_back({r.stream, {r}});
    if (group_depth == 0)
        close_groups();
    return ncclSuccess;
}

/* --- communicators ------------------------------------------------------------------------------------------------------------ */

static std::map<std::string, std::shared_ptr<World>> worlds;    /* by unique id, until all ranks joined */
static unsigned last_id;

static Comm *new_comm(const std::shared_ptr<World> &world, int rank, int device)
{
    auto *comm = new Comm;
    comm->world = world;
    comm->rank = rank;
    comm->device = device;
    world->comms.push_back(comm);
    return comm;
}

static thread_local char this_thread;    /* its address names the thread */

/* In reality the call returns when all ranks are there: one thread must join several inside a group. */
static ncclResult_t join(ncclComm_t *out, int n, const ncclUniqueId &id, int rank, const void *where)
{
    std::string key(id.internal, sizeof id.internal);
    if (n < 1 || rank < 0 || rank >= n)
        return ncclInvalidArgument;
    std::shared_ptr<World> &world = worlds[key];
    if (!world)
        world = std::make_shared<World>();
    if (group_depth == 0 && n > 1) {
        if (world->joined_by == &this_thread)
            fault(where, "NCCL DEADLOCK: a second rank of one communicator joins in the same thread outside a group");
        world->joined_by = &this_thread;
    }
    if (world->n && world->n != n)
        fault(where, "NCCL MISMATCH: rank %d says that there are %d ranks, others said %d", rank, n, world->n);
    world->n = n;
    *out = reinterpret_cast<ncclComm_t>(new_comm(world, rank, current_device()));
    if (int(world->comms.size()) == n)
        worlds.erase(key);
    return ncclSuccess;
}

/* What a communicator that is given up was waiting for. */
static void describe_waiting(const World &world)
{
    for (const auto &entry : world.rounds)
        for (const auto &posted : entry.second.posted)
            if (posted)
                fprintf(stderr, "cuemu: aborted: rank %d waited in %s called at %s\n", posted->request.comm->rank,
                        call_names[int(posted->request.call)], place_of(posted->request.where).c_str());
    for (const auto *side : {&world.sends, &world.receives})
        for (const auto &way : *side)
            for (const auto &posted : way.second)
                fprintf(stderr, "cuemu: aborted: rank %d waited in %s with rank %d called at %s\n", posted->request.comm->rank,
                        call_names[int(posted->request.call)], posted->request.peer, place_of(posted->request.where).c_str());
}

static void forget(Comm *comm)
{
    auto &comms = comm->world->comms;
    comms.erase(std::remove(comms.begin(), comms.end(), comm), comms.end());
    delete comm;
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

}    // namespace cuemu

using namespace cuemu;

static Comm *comm_of(ncclComm_t comm) { return reinterpret_cast<Comm *>(comm); }

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
    memset(id->internal, 0, sizeof id->internal);
    snprintf(id->internal, sizeof id->internal, "cuemu %u", ++last_id);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
    ENTER();
    return join(comm, n, id, rank, CUEMU_CALLER);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *)
{
    ENTER();
    return join(comm, n, id, rank, CUEMU_CALLER);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ENTER();
    auto world = std::make_shared<World>();
    world->n = n;
    for (int i = 0; i < n; i++)
        comms[i] = reinterpret_cast<ncclComm_t>(new_comm(world, i, devices ? devices[i] : i));
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    Locked locked;
    forget(comm_of(comm));
    return ncclSuccess;
}

/* Whatever waits on the communicator, on any rank of this process, ends. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    Locked locked;
    std::shared_ptr<World> world = comm_of(comm)->world;
    if (!world->aborted) {
        world->aborted = true;
        describe_waiting(*world);
        for (Comm *each : world->comms)
            each->async_error = ncclRemoteError;
    }
    something_moved();
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    Locked locked;
    int status;
    if (call_fails(__func__, &status))
        for (Comm *each : comm_of(comm)->world->comms)
            each->async_error = ncclResult_t(status);
    *error = comm_of(comm)->async_error;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ENTER();
    *count = comm_of(comm)->world->n;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    ENTER();
    *rank = comm_of(comm)->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    ENTER();
    *device = comm_of(comm)->device;
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
    return cudaMalloc(pointer, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *pointer) { return cudaFree(pointer) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }

ncclResult_t ncclGroupStart(void)
{
    Locked locked;
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    ENTER();
    if (group_depth == 0)
        return ncclInvalidUsage;
    if (--group_depth == 0)
        close_groups();
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue({comm_of(comm), Call::send, from, nullptr, count, type, ncclSum, peer, stream, CUEMU_CALLER});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue({comm_of(comm), Call::receive, nullptr, to, count, type, ncclSum, peer, stream, CUEMU_CALLER});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue({comm_of(comm), Call::all_gather, from, to, count, type, ncclSum, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    Locked locked;
    return issue({comm_of(comm), Call::reduce_scatter, from, to, count, type, op, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue({comm_of(comm), Call::all_reduce, from, to, count, type, op, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue({comm_of(comm), Call::all_to_all, from, to, count, type, ncclSum, 0, stream, CUEMU_CALLER});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    Locked locked;
    return issue({comm_of(comm), Call::broadcast, from, to, count, type, ncclSum, root, stream, CUEMU_CALLER});
}

}    // extern "C"
