/* Collectives of virtual ranks. One happens when every rank's call stands at the head of its stream; sends and receives pair up in order.
   What would hang or corrupt memory on hardware is reported with the places of the calls. Sums run in the order of the ranks. */
#include "cuda/cuemu/nccl.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cuemu {

const char *const call_names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclAlltoAll", "ncclBroadcast",
                                  "ncclSend", "ncclRecv"};

size_t bytes_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8: case ncclUint8: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    default: return 4;
    }
}

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

bool can_reduce(ncclDataType_t type, ncclRedOp_t op)
{
    bool types = type == ncclBfloat16 || type == ncclFloat32 || type == ncclFloat64 || type == ncclInt32 || type == ncclUint32;
    return types && (op == ncclSum || op == ncclMax || op == ncclMin);
}

/* Element i of the reduction over all ranks' inputs; floats are summed as floats, rank after rank. */
static double reduced(const std::vector<const char *> &pieces, size_t i, ncclDataType_t type, ncclRedOp_t op)
{
    size_t at = i * bytes_of(type);
    double value = load(pieces[0] + at, type);
    for (size_t rank = 1; rank < pieces.size(); rank++) {
        double other = load(pieces[rank] + at, type);
        value = op == ncclSum ? value + other : op == ncclMax ? std::max(value, other) : std::min(value, other);
        if (type == ncclFloat32 || type == ncclBfloat16)
            value = float(value);
    }
    return value;
}

/* --- collectives -------------------------------------------------------------------------------------------------------------- */

size_t piece_offset(const Request &into)
{
    return into.call == Call::reduce_scatter || into.call == Call::all_to_all ? size_t(into.comm->rank) * bytes_of(into) : 0;
}

size_t input_bytes(const Request &r)
{
    return bytes_of(r) * (r.call == Call::reduce_scatter || r.call == Call::all_to_all ? size_t(r.comm->world->n) : 1);
}

void deliver(const Request &into, const std::vector<const char *> &pieces)
{
    size_t bytes = bytes_of(into), size = bytes_of(into.type);
    if (into.call == Call::broadcast) {
        copy_bytes(into.to, pieces[size_t(into.peer)], bytes, into.where);
    } else if (into.call == Call::reduce_scatter || into.call == Call::all_reduce) {
        std::vector<char> out(bytes);
        for (size_t i = 0; i < into.count; i++)
            store(&out[i * size], into.type, reduced(pieces, i, into.type, into.op));
        copy_bytes(into.to, out.data(), bytes, into.where);
    } else {
        for (size_t rank = 0; rank < pieces.size(); rank++)
            copy_bytes(static_cast<char *>(into.to) + rank * bytes, pieces[rank], bytes, into.where);
    }
}

/* Every rank's output. An all-reduce is computed once: in place it overwrites what other ranks still read. */
static void deliver_to_all(const Round &round)
{
    std::vector<const char *> inputs, pieces(round.posted.size());
    for (const auto &posted : round.posted)
        inputs.push_back(static_cast<const char *>(posted->request.from));
    std::vector<char> sum(bytes_of(round.posted[0]->request));
    bool once = round.posted[0]->request.call == Call::all_reduce;
    if (once) {
        Request whole = round.posted[0]->request;
        whole.to = sum.data();
        deliver(whole, inputs);
    }
    for (const auto &posted : round.posted) {
        const Request &r = posted->request;
        std::transform(inputs.begin(), inputs.end(), pieces.begin(), [&](const char *input) { return input + piece_offset(r); });
        if (once)
            copy_bytes(r.to, sum.data(), sum.size(), r.where);
        else
            deliver(r, pieces);
    }
}

static void run_collective(Round &round)
{
    std::vector<cudaStream_t> streams;
    for (const auto &posted : round.posted)
        streams.push_back(posted->request.stream);
    meet_streams(streams);
    for (const auto &posted : round.posted)
        if (!touch(posted->request.from, input_bytes(posted->request), false, posted->request.where))
            return;
    deliver_to_all(round);
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
    Comm *comm = posted->request.comm.get();
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

static Started start_remote(const std::vector<Request> &requests)
{
    auto open = std::make_shared<std::vector<std::function<bool()>>>();
    for (const Request &r : requests)
        open->push_back(post_remote(r));
    std::shared_ptr<Comm> comm = requests[0].comm;
    return {[open, comm] {
        auto is_done = [](const std::function<bool()> &done) { return done(); };
        if (!comm->aborted)
            open->erase(std::remove_if(open->begin(), open->end(), is_done), open->end());
        return comm->aborted || open->empty();
    }};
}

Started start_group(const std::vector<Request> &requests)
{
    auto posted = std::make_shared<std::vector<std::shared_ptr<Posted>>>();
    if (requests[0].comm->aborted)    /* it was queued before: it ends as it begins */
        return {[] { return true; }};
    if (requests[0].comm->world->remote)
        return start_remote(requests);
    for (const Request &r : requests)
        posted->push_back(std::make_shared<Posted>(Posted{r, false}));
    for (const auto &each : *posted)
        if (is_pair(each->request.call))
            post_pair(each);
        else
            post_collective(each, each->request.comm->next_round++);
    auto over = [](const auto &each) { return each->done || each->request.comm->aborted; };
    return {[posted, over] { return std::all_of(posted->begin(), posted->end(), over); }};
}

template <class F> static void each_posted(const Comm &comm, F f)
{
    for (auto &entry : comm.world->rounds)
        for (auto &posted : entry.second.posted)
            if (posted && posted->request.comm.get() == &comm)
                f(posted->request);
    for (auto *side : {&comm.world->sends, &comm.world->receives})
        for (auto &way : *side)
            for (auto &posted : way.second)
                if (posted->request.comm.get() == &comm)
                    f(posted->request);
}

void describe_work(const Comm &comm)
{
    each_posted(comm, [](const Request &r) {
        std::string with = is_pair(r.call) ? " with rank " + std::to_string(r.peer) : "";
        fprintf(stderr, "cuemu: aborted: rank %d waited in %s%s called at %s\n", r.comm->rank, call_names[int(r.call)], with.c_str(),
                place_of(r.where).c_str());
    });
}

void drop_work(const Comm &comm)
{
    auto own = [&](const std::shared_ptr<Posted> &posted) { return posted && posted->request.comm.get() == &comm; };
    for (auto &entry : comm.world->rounds)
        for (auto &posted : entry.second.posted)
            if (own(posted))
                posted = nullptr;
    for (auto *side : {&comm.world->sends, &comm.world->receives})
        for (auto &way : *side)
            way.second.erase(std::remove_if(way.second.begin(), way.second.end(), own), way.second.end());
}

}    // namespace cuemu
