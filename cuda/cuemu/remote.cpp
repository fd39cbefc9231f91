/* Ranks of other processes: inputs and messages are laid into the table's file, and taken from there. As in one process a rank takes part when
   its call stands at the head of its stream, and a send is over when it was received. Everything is polled; what another process does
   to its memory before and after is not tracked. */
#include "cuda/cuemu/nccl.h"

#include <unistd.h>

namespace cuemu {

/* Where in the sparse file a rank's input and a message lie. */
enum : uint64_t { kInputArea = uint64_t(1) << 36, kMessageArea = uint64_t(1) << 33, kFirstInput = uint64_t(1) << 36,
                  kFirstMessage = kFirstInput + kMaxRanks * kInputArea };

static off_t input_at(int rank) { return off_t(kFirstInput + uint64_t(rank) * kInputArea); }
static off_t message_at(int from, int to) { return off_t(kFirstMessage + uint64_t(from * kMaxRanks + to) * kMessageArea); }

static bool lay_out(const World &world, const void *from, size_t bytes, off_t at, const void *where)
{
    if (!touch(from, bytes, false, where))
        return false;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(world.file, static_cast<const char *>(from) + done, bytes - done, at + off_t(done));
        if (n <= 0) {
            fault(where, "NCCL: no memory to send %zu bytes to another process", bytes);
            return false;
        }
        done += size_t(n);
    }
    return true;
}

static std::vector<char> take(const World &world, size_t bytes, off_t at)
{
    std::vector<char> taken(bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(world.file, taken.data() + done, bytes - done, at + off_t(done));
        if (n <= 0)
            break;
        done += size_t(n);
    }
    return taken;
}

/* --- collectives ------------------------------------------------------------------------------------------------------------------ */

static bool all_ranks(const World &world, std::atomic<uint64_t> Seat::*count, uint64_t least)
{
    for (int rank = 0; rank < world.n; rank++)
        if (world.table->seats[rank].*count < least)
            return false;
    return true;
}

static Agreement agreement_of(const Request &r)
{
    return {int(r.call), int(r.type), int(r.op), r.call == Call::broadcast ? r.peer : 0, r.count};
}

/* Who calls something else would hang or corrupt memory on hardware: the collective never happens. */
static bool all_agree(const Request &r)
{
    Agreement own = agreement_of(r);
    for (int rank = 0; rank < r.comm->world->n; rank++) {
        const Agreement &other = r.comm->world->table->seats[rank].agreement;
        if (other.call == own.call && other.type == own.type && other.root == own.root && other.count == own.count)
            continue;
        fault(r.where, "NCCL MISMATCH: rank %d calls %s of %zu elements (type %d), rank %d %s of %llu (type %d)", r.comm->rank,
              call_names[own.call], r.count, own.type, rank, call_names[other.call], (unsigned long long)other.count, other.type);
        return false;
    }
    return true;
}

static void take_outputs(const Request &r)
{
    const World &world = *r.comm->world;
    std::vector<std::vector<char>> inputs;
    std::vector<const char *> pieces;
    for (int rank = 0; rank < world.n; rank++) {
        bool wanted = r.call != Call::broadcast || rank == r.peer;
        inputs.push_back(take(world, wanted ? bytes_of(r) : 0, input_at(rank) + off_t(piece_offset(r))));
        pieces.push_back(inputs.back().data());
    }
    deliver(r, pieces);
}

/* The n-th collective: its input may be laid out when all have taken the one before, its output be taken when all inputs are there. */
static std::function<bool()> post_collective(const Request &r, uint64_t number)
{
    enum Stage { before, waits, disputed };
    auto stage = std::make_shared<Stage>(before);
    return [r, number, stage] {
        World &world = *r.comm->world;
        Seat &seat = r.comm->seat();
        if (*stage == before && all_ranks(world, &Seat::finished, number)) {
            if (!lay_out(world, r.from, input_bytes(r), input_at(r.comm->rank), r.where))
                return true;
            seat.agreement = agreement_of(r);
            seat.posted = number + 1;
            *stage = waits;
        }
        if (*stage != waits || !all_ranks(world, &Seat::posted, number + 1))
            return false;
        if (!all_agree(r)) {
            *stage = disputed;
            return false;
        }
        take_outputs(r);
        seat.finished = number + 1;
        return true;
    };
}

/* --- messages --------------------------------------------------------------------------------------------------------------------- */

static std::function<bool()> post_send(const Request &r, uint64_t number)
{
    auto laid_out = std::make_shared<bool>(false);
    return [r, number, laid_out] {
        World &world = *r.comm->world;
        Way &way = world.table->ways[r.comm->rank][r.peer];
        if (!*laid_out && way.taken >= number) {
            if (!lay_out(world, r.from, bytes_of(r), message_at(r.comm->rank, r.peer), r.where))
                return true;
            way.bytes = bytes_of(r);
            way.sent = number + 1;
            *laid_out = true;
        }
        return way.taken > number;
    };
}

static std::function<bool()> post_receive(const Request &r, uint64_t number)
{
    return [r, number] {
        World &world = *r.comm->world;
        Way &way = world.table->ways[r.peer][r.comm->rank];
        if (way.sent <= number || way.taken > number)
            return way.taken > number;
        if (way.bytes != bytes_of(r))
            fault(r.where, "NCCL MISMATCH: rank %d sends %llu bytes, rank %d receives %zu", r.peer, (unsigned long long)way.bytes, r.comm->rank,
                  bytes_of(r));
        std::vector<char> message = take(world, std::min<size_t>(way.bytes, bytes_of(r)), message_at(r.peer, r.comm->rank));
        copy_bytes(r.to, message.data(), message.size(), r.where);
        way.taken = number + 1;
        return true;
    };
}

std::function<bool()> post_remote(const Request &r)
{
    uint64_t most = is_pair(r.call) ? kMessageArea : kInputArea;
    if (input_bytes(r) > most) {
        fault(r.where, "NCCL: %s of %zu bytes between processes is not emulated", call_names[int(r.call)], input_bytes(r));
        return [] { return true; };
    }
    if (r.call == Call::send)
        return post_send(r, r.comm->next_send[r.peer]++);
    if (r.call == Call::receive)
        return post_receive(r, r.comm->next_receive[r.peer]++);
    return post_collective(r, r.comm->next_round++);
}

}    // namespace cuemu
