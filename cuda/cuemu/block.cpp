/* Runs the blocks of a launch one after another: a fiber for each CUDA thread, barriers and warp meetings between them. A fiber
   runs until it has to wait; the order in which runnable fibers get their turn is a setting, for a right kernel must not care. */
#include "cuda/cuemu/cuemu.h"
#include "cuda/cuemu/internal.h"

#include <algorithm>
#include <sys/mman.h>

#if !defined(__x86_64__) || defined(CUEMU_UCONTEXT)
#define CUEMU_USES_UCONTEXT 1
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuemu {

enum { kWarp = 32, kStackBytes = 256 * 1024, kPage = 4096, kMaxThreads = 1024, kSharedLimit = 227 * 1024 };
enum State { kRunnable, kAtBarrier, kAtMeeting, kInQueue, kExited };

/* A copy between its issue and its arrival. */
struct AsyncCopy {
    void *to;
    const void *from;
    bool valid;
    const void *where;
    unsigned group;
};

struct Fiber : Thread {
    void *stack_pointer = nullptr;
    char *stack = nullptr;
#ifdef CUEMU_USES_UCONTEXT
    ucontext_t context;
#endif
    void *fake_stack = nullptr;    /* AddressSanitizer's */
    State state = kRunnable;
    bool in_kernel = false;
    const void *where = nullptr;   /* what it waits at */
    const char *waits_in = "";
    uint32_t mask = 0;
    Meeting *meeting = nullptr;
    int barrier_result = 0;
    uint32_t clock[kWarp];         /* what it knows of its warp's lanes: grows at __syncwarp */
    Knowledge known;               /* what it heard of other threads; empty: nothing */
    uint32_t fenced = 0;           /* its clock at the last fence.proxy.async */
    std::vector<AsyncCopy> copies;
    unsigned copy_group = 0;
};

struct Warp {
    uint32_t present = 0, exited = 0;
    Meeting *open = nullptr;
};

Thread *self;
Block here;

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static std::vector<unsigned> turn;
static const Launch *running;
static thread_local bool runs_blocks;    /* this host thread does, while others go through the host code of kernel files */
static unsigned threads;
static bool trapped;
static Meeting *free_meetings;
static struct {
    unsigned arrived, exited;
    BarrierKind kind;
    int value;
    const void *where;
} gate;

static Fiber *me() { return static_cast<Fiber *>(self); }

bool on_fiber() { return runs_blocks && self; }

std::string running_thread()
{
    if (!running)
        return "";
    char text[300];
    uint3 b = here.index, t = self ? self->index : uint3{0, 0, 0};
    if (self)
        snprintf(text, sizeof text, "%s, block (%u,%u,%u), thread (%u,%u,%u)", running->name, b.x, b.y, b.z, t.x, t.y, t.z);
    else
        snprintf(text, sizeof text, "%s, block (%u,%u,%u)", running->name, b.x, b.y, b.z);
    return text;
}

const uint32_t *warp_clock(unsigned *thread)
{
    *thread = me()->warp * kWarp + me()->lane;
    return me()->in_kernel ? me()->clock : nullptr;
}

bool on_running_stack(const void *address)
{
    auto *byte = static_cast<const char *>(address);
    return self && byte >= me()->stack && byte < me()->stack + kStackBytes;
}

void enter_kernel() { me()->in_kernel = true; }
void leave_kernel() { me()->in_kernel = false; }

/* --- the switch ------------------------------------------------------------------------------------------------------------- */

#ifdef CUEMU_USES_UCONTEXT
static ucontext_t scheduler_context;
#else
static void *scheduler_stack_pointer;
/* Saves the registers that a call keeps, and the place to come back to, on the stack that it leaves. */
extern "C" void cuemu_switch(void **save, void *to);
asm(R"(
.text
.hidden cuemu_switch
.globl cuemu_switch
.type cuemu_switch,@function
cuemu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuemu_switch,.-cuemu_switch
)");
#endif

/* AddressSanitizer wants to know which stack is in use. */
#ifdef __SANITIZE_ADDRESS__
static void *scheduler_fake;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
static void leaving_fiber(void **save) { __sanitizer_start_switch_fiber(save, scheduler_stack, scheduler_stack_bytes); }
static void entered_fiber(void *fake) { __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_bytes); }
static void leaving_scheduler(Fiber *f) { __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, kStackBytes); }
static void entered_scheduler() { __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr); }
#else
static void leaving_fiber(void **) {}
static void entered_fiber(void *) {}
static void leaving_scheduler(Fiber *) {}
static void entered_scheduler() {}
#endif

/* Back to the scheduler; returns when this fiber gets its next turn. */
static void yield()
{
    Fiber *f = me();
    leaving_fiber(f->state == kExited ? nullptr : &f->fake_stack);
#ifdef CUEMU_USES_UCONTEXT
    swapcontext(&f->context, &scheduler_context);
#else
    cuemu_switch(&f->stack_pointer, scheduler_stack_pointer);
#endif
    entered_fiber(f->fake_stack);
}

static void resume(Fiber *f)
{
    self = f;
    leaving_scheduler(f);
#ifdef CUEMU_USES_UCONTEXT
    swapcontext(&scheduler_context, &f->context);
#else
    cuemu_switch(&scheduler_stack_pointer, f->stack_pointer);
#endif
    entered_scheduler();
    self = nullptr;
}

static void thread_exits(Fiber *f);

static void fiber_main()
{
    entered_fiber(nullptr);
    running->body();
    async_wait(0);
    thread_exits(me());
    yield();
    abort();    /* an exited fiber gets no turn */
}

static void prepare(Fiber *f)
{
    if (!f->stack) {
        f->stack = static_cast<char *>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        mprotect(f->stack, kPage, PROT_NONE);
    }
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(f->stack + kPage, kStackBytes - kPage);
#endif
#ifdef CUEMU_USES_UCONTEXT
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = kStackBytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
#else
    /* As cuemu_switch leaves it: six registers, the address to return to, and a word that aligns the stack as a call does. */
    void **top = reinterpret_cast<void **>(f->stack + kStackBytes);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f->stack_pointer = top;
#endif
}

/* --- barriers --------------------------------------------------------------------------------------------------------------- */

static void open_gate_if_all_came()
{
    if (!gate.arrived || gate.arrived + gate.exited < threads)
        return;
    for (unsigned i = 0; i < threads; i++)
        if (fibers[i].state == kAtBarrier) {
            fibers[i].state = kRunnable;
            fibers[i].barrier_result = gate.value;
        }
    gate.arrived = 0;
    start_epoch();
}

static void check_same_barrier(BarrierKind kind, const void *where)
{
    if (where == gate.where && kind == gate.kind)
        return;
    /* The compiler may have copied one barrier of the source to two places. */
    if (kind == gate.kind && place_of(where) == place_of(gate.where))
        return;
    fault(where, "DIVERGENT BARRIER: others wait at %s", place_of(gate.where).c_str());
    gate.where = where;
}

int barrier(BarrierKind kind, int value, const void *where)
{
    Fiber *f = me();
    if (!gate.arrived) {
        gate.kind = kind;
        gate.where = where;
        gate.value = kind == kBarrierAnd;
    } else {
        check_same_barrier(kind, where);
    }
    if (kind == kBarrierCount)
        gate.value += value != 0;
    else if (kind == kBarrierAnd)
        gate.value &= value != 0;
    else
        gate.value |= value != 0;
    f->state = kAtBarrier;
    f->where = where;
    f->waits_in = "__syncthreads";
    gate.arrived++;
    if (gate.exited && gate.arrived + gate.exited == threads)
        fault(where, "EARLY EXIT: %u threads of the block ended before this barrier", gate.exited);
    open_gate_if_all_came();
    if (f->state == kAtBarrier || settings().order == CUEMU_RANDOM)
        yield();
    return f->barrier_result;
}

/* --- what threads hear of each other through mbarriers ------------------------------------------------------------------------ */

static void merge(Knowledge &to, const Knowledge &from)
{
    if (to.size() < from.size())
        to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++)
        to[i] = std::max(to[i], from[i]);
}

void tell(Knowledge &to)
{
    if (!tracking)
        return;
    Fiber *f = me();
    to.resize(std::max<size_t>(to.size(), warps.size() * kWarp));
    merge(to, f->known);
    for (unsigned lane = 0; lane < kWarp; lane++)
        to[f->warp * kWarp + lane] = std::max(to[f->warp * kWarp + lane], f->clock[lane]);
    f->clock[f->lane]++;    /* what it does from here on is not part of it */
}

void learn(const Knowledge &from)
{
    if (tracking)
        merge(me()->known, from);
}

uint32_t heard_of(unsigned thread)
{
    return on_fiber() && thread < me()->known.size() ? me()->known[thread] : 0;
}

uint32_t fenced_clock(unsigned thread) { return fibers[thread].fenced; }

void fence_async()
{
    Fiber *f = me();
    f->fenced = f->clock[f->lane]++;
}

void wait_in(Queue &queue, const char *what, const void *where)
{
    Fiber *f = me();
    queue.push_back(f);
    f->state = kInQueue;
    f->where = where;
    f->waits_in = what;
    yield();
}

void wake(Queue &queue)
{
    for (Thread *thread : queue)
        static_cast<Fiber *>(thread)->state = kRunnable;
    queue.clear();
}

unsigned number_of(const Thread *thread) { return thread->warp * kWarp + thread->lane; }
unsigned threads_of_block() { return threads; }

void as_thread(unsigned number, const std::function<void()> &f)
{
    Thread *before = self;
    self = &fibers[number];
    f();
    self = before;
}

/* --- meetings of a warp's lanes ----------------------------------------------------------------------------------------------- */

/* __syncwarp orders memory among the lanes that met: each knows now what any of them knew. Shuffles do not. */
static void merge_clocks(Fiber *first, uint32_t lanes)
{
    uint32_t merged[kWarp] = {0};
    for (unsigned i = 0; i < kWarp; i++)
        for (unsigned k = 0; lanes >> i & 1 && k < kWarp; k++)
            merged[k] = std::max(merged[k], first[i].clock[k]);
    Knowledge heard;
    for (unsigned i = 0; i < kWarp; i++)
        if (lanes >> i & 1 && !first[i].known.empty())
            merge(heard, first[i].known);
    for (unsigned i = 0; i < kWarp; i++)
        if (lanes >> i & 1) {
            std::copy(merged, merged + kWarp, first[i].clock);
            first[i].clock[i]++;
            if (!heard.empty())
                first[i].known = heard;
        }
}

static void complete(Warp &warp, Meeting *meeting)
{
    Meeting **link = &warp.open;
    while (*link != meeting)
        link = &(*link)->next;
    *link = meeting->next;
    meeting->left = __builtin_popcount(meeting->arrived);
    Fiber *first = &fibers[(&warp - warps.data()) * kWarp];
    if (meeting->together)
        meeting->together(meeting);
    if (meeting->kind == kSyncWarp)
        merge_clocks(first, meeting->arrived);
    for (unsigned i = 0; i < kWarp; i++)
        if (meeting->arrived >> i & 1 && first[i].state == kAtMeeting && first[i].meeting == meeting)
            first[i].state = kRunnable;
}

static uint32_t missing(const Warp &warp, const Meeting *meeting)
{
    return meeting->mask & warp.present & ~warp.exited & ~meeting->arrived;
}

static Meeting *open_meeting(Warp &warp, Kind kind, uint32_t mask, const void *where, void (*together)(Meeting *))
{
    Meeting *meeting = free_meetings ? free_meetings : new Meeting;
    free_meetings = meeting == free_meetings ? meeting->next : nullptr;
    *meeting = {mask, 0, 0, kind, where, together, {0}, warp.open};
    warp.open = meeting;
    return meeting;
}

static Meeting *find_meeting(Warp &warp, uint32_t mask, unsigned lane)
{
    for (Meeting *meeting = warp.open; meeting; meeting = meeting->next)
        if (meeting->mask == mask && !(meeting->arrived >> lane & 1))
            return meeting;
    return nullptr;
}

Meeting *meet(Kind kind, uint32_t mask, uint64_t value, const void *where, void (*together)(Meeting *))
{
    Fiber *f = me();
    Warp &warp = warps[f->warp];
    if (!(mask >> f->lane & 1)) {
        fault(where, "WRONG MASK: lane %u is not in its own mask %#x", f->lane, mask);
        mask |= 1u << f->lane;
    }
    Meeting *meeting = find_meeting(warp, mask, f->lane);
    if (!meeting)
        meeting = open_meeting(warp, kind, mask, where, together);
    else if (meeting->kind != kind)
        fault(where, "DIVERGENT WARP: lanes of one mask meet in another intrinsic at %s", place_of(meeting->where).c_str());
    meeting->arrived |= 1u << f->lane;
    meeting->value[f->lane] = value;
    if (!missing(warp, meeting)) {
        complete(warp, meeting);
        if (settings().order == CUEMU_RANDOM && random_word() % 4 == 0)
            yield();
        return meeting;
    }
    f->state = kAtMeeting;
    f->meeting = meeting;
    f->where = where;
    f->waits_in = "a warp intrinsic";
    f->mask = mask;
    yield();
    return meeting;
}

void leave(Meeting *meeting)
{
    if (--meeting->left)
        return;
    meeting->next = free_meetings;
    free_meetings = meeting;
}

static void thread_exits(Fiber *f)
{
    Warp &warp = warps[f->warp];
    f->state = kExited;
    warp.exited |= 1u << f->lane;
    gate.exited++;
    for (Meeting *meeting = warp.open, *next; meeting; meeting = next) {
        next = meeting->next;
        if (!missing(warp, meeting))
            complete(warp, meeting);
    }
    if (gate.arrived && gate.arrived + gate.exited == threads) {
        fault(gate.where, "EARLY EXIT: a thread ended while others wait at a barrier");
        open_gate_if_all_came();
    }
}

/* --- asynchronous copies: the strictest reading ------------------------------------------------------------------------------- */

/* From issue to wait the target holds poison, and the source is read at the last moment: who reads the one too early or writes
   the other too early gets wrong numbers. */
void async_copy16(void *to, const void *from, bool valid, const void *where)
{
    access(to, 16, Access::write, where);
    if (valid)
        access(from, 16, Access::read, where);
    memset(to, 0xff, 16);
    unset(to, 16);
    me()->copies.push_back({to, from, valid, where, me()->copy_group});
}

void async_commit() { me()->copy_group++; }

void async_wait(unsigned pending)
{
    Fiber *f = me();
    size_t kept = 0;
    for (const AsyncCopy &copy : f->copies)
        if (copy.group + pending < f->copy_group || !f->in_kernel) {
            access(copy.to, 16, Access::write, copy.where);
            if (copy.valid)
                memcpy(copy.to, copy.from, 16);
            else
                memset(copy.to, 0, 16);
        } else {
            f->copies[kept++] = copy;
        }
    f->copies.resize(kept);
}

/* --- a launch --------------------------------------------------------------------------------------------------------------- */

struct SharedArray {
    const void *key;
    void *start;
    size_t bytes;
};

static std::vector<SharedArray> shared_arrays;    /* of this launch */
static void *dynamic_array;

void *dynamic_shared() { return dynamic_array; }
char *dynamic_start() { return static_cast<char *>(dynamic_array); }
size_t dynamic_bytes() { return running->shared_bytes; }

void *static_shared(const void *key, size_t bytes, size_t)
{
    for (const SharedArray &array : shared_arrays)
        if (array.key == key)
            return array.start;
    void *start = allocate(bytes, Space::shared, running->device);
    shared_arrays.push_back({key, start, bytes});
    return start;
}

void trap(const void *where)
{
    fault(where, "TRAP");
    trapped = true;
    me()->state = kExited;
    yield();
    abort();
}

static void shuffle_turns()
{
    if (settings().order == CUEMU_RANDOM)
        for (unsigned i = threads; i > 1; i--)
            std::swap(turn[i - 1], turn[random_word() % i]);
    if (settings().order != CUEMU_WARP_RANDOM)
        return;
    for (unsigned warp = threads / kWarp; warp > 1; warp--) {
        unsigned other = random_word() % warp;
        std::swap_ranges(&turn[(warp - 1) * kWarp], &turn[warp * kWarp], &turn[other * kWarp]);
    }
}

static void report_deadlock()
{
    fault(nullptr, "DEADLOCK: no thread of the block can run");
    const Fiber *last = nullptr;
    unsigned shown = 0;
    for (unsigned i = 0; i < threads && shown < 8; i++) {
        const Fiber &f = fibers[i];
        if (f.state == kExited || (last && last->where == f.where && last->mask == f.mask))
            continue;
        detail("thread %u waits in %s (mask %#x) at %s", i, f.waits_in, f.state == kAtMeeting ? f.mask : 0xffffffffu,
               place_of(f.where).c_str());
        last = &f;
        shown++;
    }
    describe_mbarriers();
}

static void set_up_threads(dim3 size)
{
    gate.arrived = gate.exited = 0;
    for (Warp &warp : warps)
        warp = Warp();
    for (unsigned i = 0; i < threads; i++) {
        Fiber &f = fibers[i];
        f.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        f.lane = i % kWarp;
        f.warp = i / kWarp;
        f.state = kRunnable;
        f.in_kernel = false;
        f.meeting = nullptr;
        f.fake_stack = nullptr;
        f.copies.clear();
        f.copy_group = 0;
        std::fill(f.clock, f.clock + kWarp, 0);
        f.clock[f.lane] = 1;
        f.known.clear();
        f.fenced = 0;
        warps[f.warp].present |= 1u << f.lane;
        prepare(&f);
        turn[i] = settings().order == CUEMU_DESCENDING ? threads - 1 - i : i;
    }
}

/* Until every thread ended; a block that is stuck is reported and left, and the answer is false. */
static bool run_block(dim3 size)
{
    set_up_threads(size);
    for (bool live = true; live && !trapped;) {
        shuffle_turns();
        bool ran = false;
        live = false;
        for (unsigned i = 0; i < threads && !trapped; i++) {
            Fiber &f = fibers[turn[i]];
            if (f.state == kRunnable) {
                resume(&f);
                ran = true;
            }
            live |= f.state != kExited;
        }
        if (live && !ran && !bring_awaited_copies()) {
            report_deadlock();
            return false;
        }
    }
    return !trapped;
}

bool launchable(dim3 g, dim3 b, size_t shared_bytes)
{
    uint64_t n = uint64_t(b.x) * b.y * b.z;
    return n >= 1 && n <= kMaxThreads && b.z <= 64 && g.x && g.x <= 0x7fffffff && g.y && g.y <= 65535 && g.z && g.z <= 65535 &&
           shared_bytes <= kSharedLimit;
}

static void set_up_launch(const Launch &launch)
{
    running = &launch;
    runs_blocks = true;
    trapped = false;
    threads = launch.block.x * launch.block.y * launch.block.z;
    size_t whole_warps = (threads + kWarp - 1) / kWarp * kWarp;
    if (fibers.size() < whole_warps)
        fibers.resize(whole_warps);
    for (Fiber &f : fibers)
        f.state = kExited;
    warps.assign(whole_warps / kWarp, Warp());
    turn.resize(threads);
    here.grid = launch.grid;
    here.block = launch.block;
    dynamic_array = launch.shared_bytes ? allocate(launch.shared_bytes, Space::shared, launch.device) : nullptr;
    start_launch(launch.device);
}

static void clean_up_launch(const Launch &launch)
{
    enum { kStaticLimit = 48 * 1024 };
    size_t total = 0;
    for (const SharedArray &array : shared_arrays) {
        total += array.bytes;
        release(array.start, Space::shared);
    }
    if (total > kStaticLimit || total + launch.shared_bytes > kSharedLimit)
        fault(launch.where, "TOO MUCH SHARED MEMORY: %zu bytes static and %zu dynamic", total, launch.shared_bytes);
    shared_arrays.clear();
    if (dynamic_array)
        release(dynamic_array, Space::shared);
    dynamic_array = nullptr;
    runs_blocks = false;
    running = nullptr;
}

static void poison_shared(const Launch &launch)
{
    for (const SharedArray &array : shared_arrays)
        memset(array.start, 0xff, array.bytes);
    if (dynamic_array)
        memset(dynamic_array, 0xff, launch.shared_bytes);
    forget_shared();
}

bool run_grid(const Launch &launch)
{
    set_up_launch(launch);
    dim3 g = launch.grid;
    uint64_t blocks = uint64_t(g.x) * g.y * g.z;
    for (uint64_t i = 0; i < blocks && !trapped; i++) {
        uint64_t b = settings().order == CUEMU_DESCENDING ? blocks - 1 - i : i;
        here.index = {unsigned(b % g.x), unsigned(b / g.x % g.y), unsigned(b / g.x / g.y)};
        poison_shared(launch);
        start_block();
        start_mbarriers();
        start_warpgroups();
        if (!run_block(launch.block))
            continue;
        end_mbarriers(launch.where);
        end_warpgroups(launch.where);
    }
    check_guards(launch.where);
    clean_up_launch(launch);
    return !trapped;
}

}    // namespace cuemu
