/* What the files of the fake NCCL share: calls, communicators, and the table in which the ranks of a world find each other. */
#ifndef GB_CUEMU_NCCL_H
#define GB_CUEMU_NCCL_H

#include <atomic>
#include <map>

#include <nccl.h>

#include "cuda/cuemu/internal.h"

namespace cuemu {

enum class Call { all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, send, receive };

extern const char *const call_names[];

struct Comm;

/* One call as it was made. */
struct Request {
    std::shared_ptr<Comm> comm;
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

size_t bytes_of(ncclDataType_t type);
inline size_t bytes_of(const Request &r) { return r.count * bytes_of(r.type); }
inline bool is_pair(Call call) { return call == Call::send || call == Call::receive; }

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

/* --- the table (table.cpp) ---------------------------------------------------------------------------------------------------- */

enum { kMaxRanks = 64, kMaxWindows = 64 };

/* A rank's n-th window: where its process has it, and the file that it lies in. */
struct WindowEntry {
    char *start;
    uint64_t bytes;
    SharedFile file;
};

/* A collective as its ranks must agree about it. */
struct Agreement {
    int call, type, op, root;
    uint64_t count;
};

/* What a rank tells the others. Only the rank writes its seat, so a process that dies in the middle leaves nothing locked. */
struct Seat {
    std::atomic<uint32_t> process;    /* 0: nobody sits here yet */
    std::atomic<uint32_t> ranks;      /* how many it thinks there are; the seat is taken when this is set */
    std::atomic<int> device;
    std::atomic<uint64_t> calls;      /* of its process, while others may wait for it: a sign of life */
    std::atomic<uint32_t> windows;    /* how many it has registered */
    WindowEntry window[kMaxWindows];
    std::atomic<uint64_t> posted, finished;    /* collectives between processes: inputs laid out, outputs taken */
    Agreement agreement;              /* of the last posted */
};

/* Messages from one rank to another, between processes. */
struct Way {
    std::atomic<uint64_t> sent;       /* by the sender; bytes is of the last */
    std::atomic<uint64_t> taken;      /* by the receiver */
    uint64_t bytes;
};

struct Table {
    uint64_t key;                     /* of the id, so that a file that took another's number is noticed */
    Seat seats[kMaxRanks];
    Way ways[kMaxRanks][kMaxRanks];   /* [from][to] */
};

/* One for all ranks of this process. The table is an anonymous file that other processes open through /proc: it has no name, so nothing of
   it is left behind however a process ends. */
struct World {
    int file;
    Table *table;
    int n = 0;
    bool remote = true;               /* a rank is in another process, or may yet be */
    std::map<uint64_t, Round> rounds;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posted>>> sends, receives;    /* by (from, to) */
    World(int opened, Table *mapped);
    World(const World &) = delete;
    ~World();
};

std::shared_ptr<World> new_world();
void name_world(ncclUniqueId *id);
std::shared_ptr<World> world_of(const ncclUniqueId &id);    /* NULL: who made the id is gone, or never was */
bool sit_down(World &world, int rank, int n, int device);   /* false: the seat is taken */
bool all_seated(const World &world);
void see_who_came(World &world);                            /* all have: remote or not */

/* --- communicators (communicators.cpp) ------------------------------------------------------------------------------------------ */

/* A call that NCCL has not taken yet: ncclInProgress until poll says how it went. */
struct Pending {
    const char *name;
    const void *where;
    std::function<ncclResult_t()> poll;
};

struct Comm {
    std::shared_ptr<World> world;
    int rank, device;
    bool blocking = true, aborted = false;
    std::deque<Pending> pending;
    uint64_t next_round = 0;
    std::map<int, uint64_t> next_send, next_receive;        /* by peer */
    ncclResult_t async_error = ncclSuccess;
    Seat &seat() const { return world->table->seats[rank]; }
};

/* The communicator behind a handle. Reports one that is gone. */
std::shared_ptr<Comm> comm_of(ncclComm_t handle, const void *where);
/* Takes what can be taken of a communicator's calls, and says how it stands. */
ncclResult_t advance(Comm &comm);
/* Ends a call: at once for a communicator that does not block, else when its ranks have done their part. Inside a group, at its end. */
ncclResult_t settle(Locked &locked, const std::shared_ptr<Comm> &comm, Pending pending);
ncclResult_t settle_group(Locked &locked);

ncclResult_t join(Locked &locked, ncclComm_t *out, int n, const ncclUniqueId &id, int rank, bool blocking, const void *where);
ncclResult_t join_all(ncclComm_t *out, int n, const int *devices);
void leave(const std::shared_ptr<Comm> &comm);
void give_up(const std::shared_ptr<Comm> &comm);
void fail_later(ncclResult_t error, const Comm &of);        /* on every rank of its world that is here */

ncclResult_t open_window(Locked &locked, const std::shared_ptr<Comm> &comm, void *start, size_t bytes, ncclWindow_t *out, const void *where);
ncclResult_t close_window(ncclWindow_t window, const void *where);

extern thread_local int group_depth;

/* --- collectives (collectives.cpp) ---------------------------------------------------------------------------------------------- */

bool can_reduce(ncclDataType_t type, ncclRedOp_t op);
/* Called when the requests of a group reach the head of their stream, each time they are launched (a graph launches them again). */
Started start_group(const std::vector<Request> &requests);
/* What a rank gets out of the pieces of all ranks; the same for ranks of this and of other processes. */
size_t piece_offset(const Request &into);                   /* of every rank's input, bytes_of(into) long */
size_t input_bytes(const Request &r);
void deliver(const Request &into, const std::vector<const char *> &pieces);

/* remote.cpp: one request of a rank whose world spans processes; polled until it is done. */
std::function<bool()> post_remote(const Request &request);

/* Whatever the communicator's rank waits for is dropped. */
void describe_work(const Comm &comm);
void drop_work(const Comm &comm);

}    // namespace cuemu

#endif
