/* The life of communicators: joining, calls that NCCL takes later, giving up; and windows. */
#include "cuda/cuemu/nccl.h"
#include "cuda/cuemu/cuemu.h"

#include <algorithm>
#include <unistd.h>

namespace cuemu {

static std::map<const void *, std::shared_ptr<Comm>> comms;    /* by handle */

thread_local int group_depth;
static thread_local std::vector<std::pair<std::shared_ptr<Comm>, Pending>> group_calls;

static ncclComm_t handle_of(Comm *comm) { return reinterpret_cast<ncclComm_t>(comm); }

std::shared_ptr<Comm> comm_of(ncclComm_t handle, const void *where)
{
    auto found = comms.find(handle);
    if (found != comms.end())
        return found->second;
    fault(where, "NCCL: %s", handle ? "this communicator was destroyed or aborted" : "no communicator");
    return nullptr;
}

static std::shared_ptr<Comm> new_comm(const std::shared_ptr<World> &world, int rank, int device, bool blocking)
{
    auto comm = std::make_shared<Comm>();
    comm->world = world;
    comm->rank = rank;
    comm->device = device;
    comm->blocking = blocking;
    return comms[comm.get()] = comm;
}

/* --- calls that are taken later ------------------------------------------------------------------------------------------------- */

ncclResult_t advance(Comm &comm)
{
    while (!comm.pending.empty() && comm.async_error == ncclSuccess) {
        ncclResult_t result = comm.pending.front().poll();
        if (result == ncclInProgress)
            return result;
        comm.pending.pop_front();
        something_moved();
        if (result == ncclSuccess)
            continue;
        comm.pending.clear();
        comm.async_error = result;
    }
    return comm.async_error;
}

using Calls = std::vector<std::pair<std::shared_ptr<Comm>, Pending>>;

/* Which ranks' calls are missing nobody knows here: the first that waits is named. */
static void report_never_taken(const Calls &calls)
{
    for (const auto &call : calls)
        if (call.first->blocking && !call.first->pending.empty()) {
            fault(call.second.where, "NCCL DEADLOCK: rank %d of %d waits in %s for ranks that do not call it", call.first->rank,
                  call.first->world->n, call.second.name);
            call.first->pending.clear();
            call.first->async_error = ncclSystemError;
        }
}

static ncclResult_t settle_all(Locked &locked, const Calls &calls)
{
    for (const auto &call : calls)
        call.first->pending.push_back(call.second);
    ncclResult_t result = ncclSuccess;
    for (Wait wait;;) {
        bool waits = false;
        result = ncclSuccess;
        for (const auto &call : calls) {
            ncclResult_t state = !call.first->blocking ? ncclInProgress : call.first->aborted ? ncclInternalError : advance(*call.first);
            waits |= call.first->blocking && state == ncclInProgress;
            if (result == ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
                result = state;
        }
        if (!waits)
            return result;
        if (!wait.for_others(locked, kNever))
            report_never_taken(calls);
    }
}

ncclResult_t settle(Locked &locked, const std::shared_ptr<Comm> &comm, Pending pending)
{
    if (group_depth == 0)
        return settle_all(locked, {{comm, std::move(pending)}});
    group_calls.push_back({comm, std::move(pending)});
    return ncclSuccess;
}

ncclResult_t settle_group(Locked &locked)
{
    Calls calls = std::move(group_calls);
    group_calls.clear();
    return settle_all(locked, calls);
}

/* --- joining -------------------------------------------------------------------------------------------------------------------- */

/* All ranks have come: two on one device cannot work together. */
static ncclResult_t check_devices(const World &world)
{
    for (int i = 0; i < world.n; i++)
        for (int k = 0; k < i; k++)
            if (world.table->seats[i].device == world.table->seats[k].device)
                return ncclInvalidUsage;
    return ncclSuccess;
}

static ncclResult_t finish_join(World &world)
{
    if (!all_seated(world))
        return ncclInProgress;
    see_who_came(world);
    return check_devices(world);
}

static ncclResult_t refuse_seat(const void *where, const char *why, int rank)
{
    fault(where, "NCCL MISMATCH: rank %d joins: %s", rank, why);
    return ncclInvalidUsage;
}

static bool others_agree(const World &world, int n)
{
    for (const Seat &seat : world.table->seats)
        if (seat.ranks && seat.ranks != uint32_t(n))
            return false;
    return true;
}

ncclResult_t join(Locked &locked, ncclComm_t *out, int n, const ncclUniqueId &id, int rank, bool blocking, const void *where)
{
    *out = nullptr;
    if (n < 1 || n > kMaxRanks || rank < 0 || rank >= n)
        return ncclInvalidArgument;
    std::shared_ptr<World> world = world_of(id);
    if (!world)
        return ncclSystemError;
    if (!others_agree(*world, n))
        return refuse_seat(where, "it knows another number of ranks than others", rank);
    if (!sit_down(*world, rank, n, current_device()))
        return refuse_seat(where, "another has this number already", rank);
    something_moved();
    std::shared_ptr<Comm> comm = new_comm(world, rank, current_device(), blocking);
    *out = handle_of(comm.get());
    return settle(locked, comm, {"ncclCommInitRank", where, [world] { return finish_join(*world); }});
}

ncclResult_t join_all(ncclComm_t *out, int n, const int *devices)
{
    std::shared_ptr<World> world = n >= 1 && n <= kMaxRanks ? new_world() : nullptr;
    if (!world)
        return ncclInvalidArgument;
    for (int rank = 0; rank < n; rank++) {
        int device = devices ? devices[rank] : rank;
        sit_down(*world, rank, n, device);
        out[rank] = handle_of(new_comm(world, rank, device, true).get());
    }
    return finish_join(*world);
}

void fail_later(ncclResult_t error, const Comm &of)
{
    for (auto &entry : comms)
        if (entry.second->world == of.world && entry.second->async_error == ncclSuccess)
            entry.second->async_error = error;
}

/* The world of a rank that is gone; when it was the last one here, nothing of it is waited for any more. */
static void forget(const std::shared_ptr<Comm> &comm)
{
    drop_work(*comm);
    comms.erase(comm.get());
    auto same = [&](const auto &entry) { return entry.second->world == comm->world; };
    if (std::none_of(comms.begin(), comms.end(), same))
        comm->world->remote = false;
}

void leave(const std::shared_ptr<Comm> &comm) { forget(comm); }

/* --- windows -------------------------------------------------------------------------------------------------------------------- */

struct Window {
    std::shared_ptr<Comm> comm;
    size_t bytes;
    std::vector<char *> parts;    /* by rank; this rank's device reaches them all */
};

static std::map<const void *, std::shared_ptr<Window>> windows;    /* by handle */

static ncclResult_t check_sizes(const Comm &comm, unsigned number, const void *where)
{
    uint64_t own = comm.seat().window[number].bytes;
    for (int rank = 0; rank < comm.world->n; rank++) {
        uint64_t other = comm.world->table->seats[rank].window[number].bytes;
        if (other == own)
            continue;
        fault(where, "NCCL MISMATCH: window %u has %llu bytes on rank %d and %llu on rank %d", number, (unsigned long long)own, comm.rank,
              (unsigned long long)other, rank);
        return ncclInvalidArgument;
    }
    return ncclSuccess;
}

static bool all_registered(const World &world, unsigned number)
{
    for (int rank = 0; rank < world.n; rank++)
        if (world.table->seats[rank].windows <= number)
            return false;
    return true;
}

static ncclResult_t finish_window(const std::shared_ptr<Comm> &comm, unsigned number, ncclWindow_t *out, const void *where)
{
    if (!all_registered(*comm->world, number))
        return ncclInProgress;
    ncclResult_t result = check_sizes(*comm, number, where);
    if (result != ncclSuccess)
        return result;
    auto window = std::make_shared<Window>();
    window->comm = comm;
    window->bytes = comm->seat().window[number].bytes;
    for (int rank = 0; rank < comm->world->n; rank++) {
        const Seat &seat = comm->world->table->seats[rank];
        const WindowEntry &entry = seat.window[number];
        bool ours = seat.process == uint32_t(getpid());
        window->parts.push_back(ours ? entry.start : adopt(entry.file, seat.device));
        if (!window->parts.back())
            return ncclRemoteError;
        lend(window->parts.back(), comm->device, 1);
    }
    if (comm->world->remote)
        expect_strangers(comm->seat().window[number].start);
    windows[window.get()] = window;
    *out = reinterpret_cast<ncclWindow_t>(window.get());
    return ncclSuccess;
}

ncclResult_t open_window(Locked &locked, const std::shared_ptr<Comm> &comm, void *start, size_t bytes, ncclWindow_t *out, const void *where)
{
    *out = nullptr;
    Seat &seat = comm->seat();
    unsigned number = seat.windows;
    if (number == kMaxWindows) {
        fault(where, "NCCL: more than %d windows of one communicator are not emulated", int(kMaxWindows));
        return ncclInvalidUsage;
    }
    if (!is_lendable(start, bytes) || device_of(start) != comm->device) {
        fault(where, "NCCL: a window is memory of ncclMemAlloc on the communicator's device, %zu bytes at %p are not", bytes, start);
        return ncclInvalidArgument;
    }
    seat.window[number] = {static_cast<char *>(start), bytes, file_of(start)};
    seat.windows = number + 1;
    something_moved();
    return settle(locked, comm, {"ncclCommWindowRegister", where, [=] { return finish_window(comm, number, out, where); }});
}

ncclResult_t close_window(ncclWindow_t handle, const void *where)
{
    auto found = windows.find(handle);
    if (found == windows.end()) {
        fault(where, "NCCL: ncclCommWindowDeregister of a window that is none");
        return ncclInvalidArgument;
    }
    for (char *part : found->second->parts) {
        lend(part, found->second->comm->device, -1);
        disown(part);
    }
    windows.erase(found);
    return ncclSuccess;
}

static void close_windows(const Comm &comm)
{
    for (auto next = windows.begin(); next != windows.end();) {
        auto window = next++;
        if (window->second->comm.get() == &comm)
            close_window(reinterpret_cast<ncclWindow_t>(const_cast<void *>(window->first)), nullptr);
    }
}

/* What this rank waits for is dropped, and its windows end. The others of this process are told when they ask, those of other processes
   never; what they wait for stays where it is until they give up themselves. */
void give_up(const std::shared_ptr<Comm> &comm)
{
    comm->aborted = true;
    comm->pending.clear();
    describe_work(*comm);
    close_windows(*comm);
    forget(comm);
    fail_later(ncclRemoteError, *comm);
    something_moved();
}

void *window_pointer(const void *handle, size_t offset, int peer, const void *where)
{
    auto found = windows.find(handle);
    if (found == windows.end()) {
        fault(where, "NCCL: ncclGetLsaPointer of a window that is none");
        return nullptr;
    }
    const Window &window = *found->second;
    if (peer < 0 || peer >= int(window.parts.size()) || offset >= window.bytes) {
        fault(where, "OUT OF BOUNDS: ncclGetLsaPointer to byte %zu of rank %d, in a window of %zu bytes on %zu ranks", offset, peer,
              window.bytes, window.parts.size());
        return nullptr;
    }
    return window.parts[size_t(peer)] + offset;
}

}    // namespace cuemu
