/* What the emulator's files share. All state is behind one lock: entry points of the fake libraries hold a Locked for as long as
   they run, and kernels run inside one of them, so device work never overlaps. */
#ifndef GB_CUEMU_INTERNAL_H
#define GB_CUEMU_INTERNAL_H

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "cuda/cuemu/control.h"

namespace cuemu {

/* --- settings and the lock (settings.cpp) ----------------------------------------------------------------------------------- */

struct Settings {
    cuemu_order order = CUEMU_ASCENDING;
    cuemu_streams streams = CUEMU_EAGER;
    uint64_t seed = 1;
    int devices = 1;
    size_t memory = size_t(8) << 30;
    unsigned patience_ms = 10000;
};

Settings &settings();
uint64_t random_word();

struct Locked {
    std::unique_lock<std::mutex> lock;
    Locked();
};

void something_moved();

/* Nanoseconds of a steady clock, and a time that never comes. */
int64_t now_ns();
enum : int64_t { kNever = INT64_MAX };

/* One wait inside a fake call. for_others gives up the lock until something moves or due_ns has come. False: nobody can end the wait,
   it is a deadlock. That is known at once when every thread of the process waits here; while others could still call, after a time
   without any call of theirs. */
class Wait {
    int64_t patient_until;
    uint64_t calls_seen;

public:
    Wait();
    bool for_others(Locked &locked, int64_t due_ns);
};

int current_device();
void set_current_device(int device);

/* Whether this call of the named function is to fail, and with what. */
bool call_fails(const char *function, int *status);

/* --- ranks in other processes (table.cpp) ------------------------------------------------------------------------------------- */

bool meets_processes();             /* what they do cannot be waited for, only polled */
void show_life();                   /* to them: a call was made here */
uint64_t calls_elsewhere();

/* --- reports (report.cpp) --------------------------------------------------------------------------------------------------- */

/* file:line of a code address, with the lines it was inlined into. */
std::string place_of(const void *where);
/* One report: the message, where, and which thread of which kernel runs. where may be NULL. */
void fault(const void *where, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Lines that belong to the report before. */
void detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- memory (memory.cpp) ---------------------------------------------------------------------------------------------------- */

enum class Space { device, shared, pinned };

void *allocate(size_t bytes, Space space, int device);    /* poisoned; NULL when the device is full */
void *allocate_lendable(size_t bytes, int device);        /* device memory that windows may be made of */
bool is_lendable(const void *start, size_t bytes);

/* Where such memory lies for other processes: a file of that process without a name. */
struct SharedFile {
    int32_t process, file;
    uint64_t bytes, offset;                               /* of the whole buffer; where the start lies in it */
};
SharedFile file_of(const void *start);
char *adopt(const SharedFile &file, int device);          /* maps it here; NULL when the process is gone. Its accesses are not tracked */
void disown(const void *start);                           /* ends it, if it was adopted */
void expect_strangers(const void *start);                 /* other processes write to our buffer: what is set there nobody knows */
void lend(const void *start, int to, int change);         /* the device may reach the buffer (1), or no longer (-1) */
bool is_lent(const void *start, int to);
bool release(void *start, Space space);
void release_device(int device);                          /* all buffers of it */
size_t device_bytes_free(int device);
bool is_pinned(const void *address);
int device_of(const void *address);                       /* -1: no device memory */
bool can_reach(int from, int to);
void allow_peer(int from, int to);
void forbid_peer(int from, int to);
void check_guards(const void *where);                     /* of all buffers, for writes just past an end */
void forget_shared();                                     /* a new block: shared memory is unset again */
bool in_guard(const void *address);

void set_again(const void *address, size_t bytes);        /* what was on its way (unset) is there */

/* A copy or a fill by the runtime: bounds checked, and what is unset stays unset. */
void copy_bytes(void *to, const void *from, size_t bytes, const void *where);
void fill_bytes(void *to, int byte, size_t bytes, const void *where);
/* All n bytes are inside one buffer; writes count as set. Used by the fake libraries. */
bool touch(const void *address, size_t bytes, bool write, const void *where);
/* An atomic access by a device outside of kernels, to device memory that it reaches. */
bool touch_atomic(const void *address, size_t bytes, int device, const void *where);

/* What happened before a piece of work, as far as streams, events and waits of the host tell: the last piece of each stream. */
struct Clock {
    std::vector<uint32_t> ticks;    /* by number of the stream; 0 is the host */
    void join(const Clock &other);
    void tick(unsigned stream);
    uint32_t of(unsigned stream) const { return stream < ticks.size() ? ticks[stream] : 0; }
};

/* The work that runs from here on, its stream's tick counted in clock. */
void start_work(unsigned stream, const Clock &clock);
void start_launch(int device);
void start_block();
void start_epoch();                                       /* a block barrier was passed */

extern bool tracking;

/* --- running kernels (block.cpp) -------------------------------------------------------------------------------------------- */

struct Launch {
    dim3 grid, block;
    size_t shared_bytes;
    const char *name;
    const void *kernel;
    int device;
    std::function<void()> body;
    const void *where;
};

bool launchable(dim3 grid, dim3 block, size_t shared_bytes);
/* False: the kernel trapped. */
bool run_grid(const Launch &launch);
bool on_fiber();
std::string running_thread();                             /* "kernel, block (0,0,0) thread (3,0,0)" or "" */
const uint32_t *warp_clock(unsigned *thread);             /* of the running CUDA thread, for the race check */
bool on_running_stack(const void *address);

/* For what waits at other things than barriers of the block and meetings of a warp. */
using Queue = std::vector<struct Thread *>;
void wait_in(Queue &queue, const char *what, const void *where);    /* the running thread, until somebody wakes the queue */
void wake(Queue &queue);
unsigned number_of(const Thread *thread);                 /* in its block */
unsigned threads_of_block();
/* Runs f as if that thread of the block did it. */
void as_thread(unsigned number, const std::function<void()> &f);

/* What a thread knows of the others of its block beside barriers and its warp: their clocks, heard through mbarriers. Only kept
   where accesses are tracked. */
using Knowledge = std::vector<uint32_t>;
void tell(Knowledge &to);                                 /* all that the running thread did and knows so far */
void learn(const Knowledge &from);
uint32_t heard_of(unsigned thread);                       /* by the running thread */
uint32_t fenced_clock(unsigned thread);                   /* up to where fence.proxy.async shows its stores */

/* Where the dynamic shared memory of the running block is. */
char *dynamic_start();
size_t dynamic_bytes();

/* --- mbarriers, tensor copies (tma.cpp), products of warpgroups (wgmma.cpp): the state of one block -------------------------- */

void start_mbarriers();
void end_mbarriers(const void *where);                    /* copies that nobody awaited are reported */
void describe_mbarriers();                                /* of a deadlock */
bool bring_awaited_copies();                              /* when no thread can run; false: there are none */
bool is_arriving(const void *address, size_t bytes);      /* a tensor copy into it is on its way */
void start_warpgroups();
void end_warpgroups(const void *where);                   /* products that nobody awaited are reported */

/* --- streams (streams.cpp) -------------------------------------------------------------------------------------------------- */

struct Event;
struct Stream;
struct Graph;

/* What waits for other ranks, once it stands at the head of its stream: polled until it is done, which it is by due_ns at the latest. */
struct Started {
    std::function<bool()> done;
    int64_t due_ns = kNever;
};

/* One queued piece of work; a collective is whatever starts and then waits. */
struct Op {
    enum Kind { run, record, wait, collective } kind;
    const char *name;
    const void *where;
    std::function<void()> work;
    std::shared_ptr<Event> event;
    uint64_t version;
    std::function<Started()> start;
    Started started;
    Clock since;    /* what the host knew when it queued this */
};

Stream *stream_of(cudaStream_t handle);
int device_of_stream(cudaStream_t handle);
bool is_capturing(cudaStream_t handle);
bool thread_captures();
void push(Stream *stream, Op op);
void push_work(cudaStream_t stream, const char *name, std::function<void()> work, const void *where);
const Clock &clock_of(const Stream *stream);
void learn(Stream *stream, const Clock &clock);           /* the stream's work from here on happens after that */
/* Streams whose work happened together: each knows now what any of them knew. */
void meet_streams(const std::vector<cudaStream_t> &handles);
void start_host_work();
void drain_legacy(Locked &locked);
cudaError_t drain(Locked &locked, cudaStream_t stream);

/* --- errors of the fake runtime (cudart.cpp) --------------------------------------------------------------------------------- */

cudaError_t enqueue_kernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const void *kernel, const char *name,
                           std::function<void()> body, const void *where);
cudaError_t failed(cudaError_t error);                    /* remembered for cudaGetLastError */
bool may_launch(const char *name, cudaStream_t stream, const void *where, cudaError_t *error);
void device_broken(int device);                           /* a kernel trapped: every later call on the device says so */

}    // namespace cuemu

#define CUEMU_CALLER __builtin_return_address(0)

#endif
