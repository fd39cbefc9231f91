/* Device, shared and pinned memory. Buffers lie in an address range of their own with closed guard pages between them, their ends as
   near to the guard as alignment allows; fresh bytes are poison (0xff: NaN, -1), the slack around a buffer is checked after every
   kernel. Under AddressSanitizer each buffer is a heap block of exactly its size instead.

   In the track build every byte has a cell: who wrote and who read it last, and whether it was ever set. Two accesses are ordered
   when the same thread made them, when a block barrier lies between them, when a __syncwarp of their warp does, or when the
   kernels are ordered by streams, events and waits of the host (copies and products count as kernels), or when one thread heard of the
   other through an mbarrier; an unordered pair with a write in it, not both atomic, is a race. */
#include "cuda/cuemu/cuemu.h"
#include "cuda/cuemu/internal.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace cuemu {

bool tracking;

enum { kPage = 4096, kAlign = 256, kGuard = 1 << 20, kPoison = 0xff, kCanary = 0xc7 };

/* An access as the race check remembers it. */
struct Trace {
    uint32_t launch, block, epoch, clock;
    uint16_t thread;
    bool atomic, async;    /* async: by a tensor copy */
};

/* Two of each kind are kept, of two warps where possible, so that an access meets one that is not its own. */
struct Cell {
    Trace write[2], read[2];
    uint32_t set;    /* 0: never; shared memory: the block that set it */
};

struct Region {
    char *start;
    size_t bytes;
    Space space;
    int device;
    char *pages;        /* where its pages begin */
    size_t page_bytes;
    Cell *cells;
    int file;           /* that it lies in, if it may be lent; -1 */
    bool adopted;       /* of another process */
    bool strangers;     /* other processes write here */
    uint16_t lent[CUEMU_MAX_DEVICES];    /* how many windows of a device reach it */
    bool orphan;        /* given back by its rank, but windows of others reach it: as on hardware, the last of them frees it */
};

static std::map<char *, Region> regions;                        /* by start */
static std::multimap<size_t, Region> idle_shared;               /* shared arrays to use again, by exact size */
static size_t bytes_used[CUEMU_MAX_DEVICES];
static bool peers[CUEMU_MAX_DEVICES][CUEMU_MAX_DEVICES];

static Region *find(const void *address)
{
    auto *byte = static_cast<char *>(const_cast<void *>(address));
    auto next = regions.upper_bound(byte);
    if (next == regions.begin())
        return nullptr;
    Region &region = std::prev(next)->second;
    return byte < region.start + region.bytes ? &region : nullptr;
}

/* --- pages ------------------------------------------------------------------------------------------------------------------ */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

#ifdef __SANITIZE_ADDRESS__

static bool take_pages(Region *region)
{
    void *start;
    if (posix_memalign(&start, kAlign, region->bytes))
        return false;
    region->start = region->pages = static_cast<char *>(start);
    region->page_bytes = 0;
    return true;
}

static void give_pages_back(const Region &region) { free(region.start); }
static void check_slack(const Region &, const void *) {}
bool in_guard(const void *) { return false; }

/* Addresses between closed pages, for what is no heap block. */
static bool reserve_pages(Region *region)
{
    enum { kRoom = 1 << 20 };
    region->page_bytes = round_up(std::max<size_t>(region->bytes, 1), kPage);
    void *range = mmap(nullptr, region->page_bytes + 2 * kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    region->pages = static_cast<char *>(range) + kRoom;
    region->start = region->pages + (region->page_bytes - round_up(region->bytes, kAlign));
    return range != MAP_FAILED;
}

#else

static const size_t kArena = size_t(4) << 40;
static char *arena, *arena_top;

bool in_guard(const void *address)
{
    auto *byte = static_cast<const char *>(address);
    return arena && byte >= arena && byte < arena + kArena;
}

/* A kernel that runs into a guard page dies with the place, not just with a signal. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    if (in_guard(info->si_addr)) {
#if defined(__x86_64__)
        auto *pc = reinterpret_cast<char *>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]) + 1;
#else
        char *pc = nullptr;
#endif
        fault(pc, "OUT OF BOUNDS: address %p lies in the guard around a device or shared buffer", info->si_addr);
        fflush(nullptr);
        _exit(CUEMU_EXIT_STATUS);
    }
    signal(number, SIG_DFL);
}

static void open_arena()
{
    void *range = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        fprintf(stderr, "cuemu: cannot reserve %zu GiB of address space (ulimit -v?)\n", kArena >> 30);
        abort();
    }
    arena = arena_top = static_cast<char *>(range);
    static char signal_stack[64 * 1024];
    stack_t stack = {};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
}

static bool reserve_pages(Region *region)
{
    if (!arena)
        open_arena();
    region->page_bytes = round_up(std::max<size_t>(region->bytes, 1), kPage);
    region->pages = arena_top;
    region->start = region->pages + (region->page_bytes - round_up(region->bytes, kAlign));
    if (arena_top + region->page_bytes + kGuard > arena + kArena)
        return false;
    arena_top += region->page_bytes + round_up(kGuard, kPage);
    return true;
}

static bool take_pages(Region *region)
{
    if (!reserve_pages(region) || mprotect(region->pages, region->page_bytes, PROT_READ | PROT_WRITE))
        return false;
    memset(region->pages, kCanary, region->page_bytes);
    return true;
}

static void give_pages_back(const Region &region)
{
    madvise(region.pages, region.page_bytes, MADV_DONTNEED);
    mprotect(region.pages, region.page_bytes, PROT_NONE);
}

static const char *first_changed(const char *from, const char *to)
{
    for (; from < to; from++)
        if (static_cast<unsigned char>(*from) != kCanary)
            return from;
    return nullptr;
}

static const char *name_of(Space space)
{
    return space == Space::device ? "device" : space == Space::shared ? "shared" : "pinned";
}

static void check_slack(const Region &region, const void *where)
{
    char *end = region.start + region.bytes, *last = region.pages + region.page_bytes;
    const char *before = first_changed(region.pages, region.start), *after = first_changed(end, last);
    if (before)
        fault(where, "OUT OF BOUNDS: something was written %zd bytes before a %s buffer of %zu bytes", region.start - before,
              name_of(region.space), region.bytes);
    if (after)
        fault(where, "OUT OF BOUNDS: something was written %zd bytes past the end of a %s buffer of %zu bytes", after - end,
              name_of(region.space), region.bytes);
    if (before)
        memset(region.pages, kCanary, region.start - region.pages);
    if (after)
        memset(end, kCanary, last - end);
}

#endif

/* A buffer that lies in a file, so that other processes can have it, too. */
static bool map_file(Region *region)
{
    return reserve_pages(region) &&
           mmap(region->pages, region->page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, region->file, 0) != MAP_FAILED;
}

/* The addresses stay closed, so that a late access is noticed. */
static void unmap_file(const Region &region)
{
    mmap(region.pages, region.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    close(region.file);
}

/* --- buffers ---------------------------------------------------------------------------------------------------------------- */

static bool reuse_shared(size_t bytes, Region *region)
{
    auto idle = idle_shared.find(bytes);
    if (idle == idle_shared.end())
        return false;
    *region = idle->second;
    idle_shared.erase(idle);
    return true;
}

void *allocate(size_t bytes, Space space, int device)
{
    if (space == Space::device && bytes_used[device] + bytes > settings().memory)
        return nullptr;
    Region region = {nullptr, bytes, space, device, nullptr, 0, nullptr, -1, false, false, {0}, false};
    if (space != Space::shared || !reuse_shared(bytes, &region)) {
        if (!take_pages(&region))
            return nullptr;
        if (tracking && !(region.cells = static_cast<Cell *>(calloc(std::max<size_t>(bytes, 1), sizeof(Cell)))))
            return nullptr;
    }
    region.device = device;
    memset(region.start, kPoison, bytes);
    if (space == Space::device)
        bytes_used[device] += bytes;
    regions[region.start] = region;
    return region.start;
}

static bool is_reached(const Region &region)
{
    return std::any_of(std::begin(region.lent), std::end(region.lent), [](uint16_t windows) { return windows > 0; });
}

bool release(void *start, Space space)
{
    auto found = regions.find(static_cast<char *>(start));
    if (found == regions.end() || found->second.space != space || found->second.orphan)
        return false;
    if (is_reached(found->second)) {
        found->second.orphan = true;
        return true;
    }
    Region region = found->second;
    check_slack(region, nullptr);
    regions.erase(found);
    if (space == Space::device)
        bytes_used[region.device] -= region.bytes;
#ifndef __SANITIZE_ADDRESS__
    if (space == Space::shared) {
        idle_shared.insert({region.bytes, region});
        return true;
    }
#endif
    free(region.cells);
    if (region.file >= 0)
        unmap_file(region);
    else
        give_pages_back(region);
    return true;
}

void release_device(int device)
{
    std::vector<void *> starts;
    for (const auto &entry : regions)
        if (entry.second.space == Space::device && entry.second.device == device)
            starts.push_back(entry.first);
    for (void *start : starts)
        release(start, Space::device);
}

size_t device_bytes_free(int device) { return settings().memory - std::min(settings().memory, bytes_used[device]); }

bool is_pinned(const void *address)
{
    Region *region = find(address);
    return region && region->space == Space::pinned;
}

int device_of(const void *address)
{
    Region *region = find(address);
    return region && region->space == Space::device ? region->device : -1;
}

/* --- memory for windows ------------------------------------------------------------------------------------------------------- */

void *allocate_lendable(size_t bytes, int device)
{
    if (bytes_used[device] + bytes > settings().memory)
        return nullptr;
    Region region = {nullptr, bytes, Space::device, device, nullptr, 0, nullptr, memfd_create("cuemu window", MFD_CLOEXEC), false, false, {0}, false};
    if (region.file < 0)
        return nullptr;
    if (ftruncate(region.file, off_t(bytes + kPage)) || !map_file(&region) ||
        (tracking && !(region.cells = static_cast<Cell *>(calloc(std::max<size_t>(bytes, 1), sizeof(Cell)))))) {
        close(region.file);
        return nullptr;
    }
    memset(region.pages, kCanary, region.page_bytes);
    memset(region.start, kPoison, bytes);
    bytes_used[device] += bytes;
    regions[region.start] = region;
    return region.start;
}

SharedFile file_of(const void *start)
{
    const Region *region = find(start);
    return {int32_t(getpid()), region->file, region->bytes, uint64_t(static_cast<const char *>(start) - region->start)};
}

char *adopt(const SharedFile &file, int device)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", file.process, file.file);
    Region region = {nullptr, file.bytes, Space::device, device, nullptr, 0, nullptr, open(path, O_RDWR | O_CLOEXEC), true, false, {0}, false};
    if (region.file < 0)
        return nullptr;
    if (!map_file(&region)) {
        close(region.file);
        return nullptr;
    }
    regions[region.start] = region;
    return region.start + file.offset;
}

void disown(const void *start)
{
    const Region *found = find(start);
    if (!found || !found->adopted)
        return;
    Region region = *found;
    regions.erase(region.start);
    unmap_file(region);
}

void expect_strangers(const void *start)
{
    if (Region *region = find(start))
        region->strangers = true;
}

bool is_lendable(const void *start, size_t bytes)
{
    const Region *region = find(start);
    return region && region->file >= 0 && static_cast<const char *>(start) + bytes <= region->start + region->bytes;
}

void lend(const void *start, int to, int change)
{
    Region *region = find(start);
    if (!region || region->lent[to] + change < 0)
        return;
    region->lent[to] = uint16_t(region->lent[to] + change);
    if (region->orphan && !is_reached(*region)) {
        region->orphan = false;
        release(region->start, Space::device);
    }
}

bool is_lent(const void *start, int to)
{
    const Region *region = find(start);
    return region && region->lent[to];
}

static bool can_touch(int from, const Region &region) { return can_reach(from, region.device) || region.lent[from]; }

bool can_reach(int from, int to) { return from == to || peers[from][to]; }
void allow_peer(int from, int to) { peers[from][to] = true; }
void forbid_peer(int from, int to) { peers[from][to] = false; }

void check_guards(const void *where)
{
    for (const auto &entry : regions)
        check_slack(entry.second, where);
}

/* --- the track build ---------------------------------------------------------------------------------------------------------- */

/* launch: the number of a piece of work, a kernel or what the runtime does. */
static uint32_t launch_number, block_number, epoch;
static int launch_device;
static Clock work_clock;    /* of the work that runs */

/* Where the pieces of work stand in their streams, by launch number. */
struct Moment {
    uint32_t stream, tick;
};

static std::vector<Moment> moments(1);

void start_work(unsigned stream, const Clock &clock)
{
    if (!tracking)
        return;
    launch_number++;
    block_number++;
    epoch = 1;
    work_clock = clock;
    moments.push_back({stream, clock.of(stream)});
}

void start_launch(int device) { launch_device = device; }

void start_block()
{
    block_number++;
    epoch = 1;
}

void start_epoch() { epoch++; }

/* Shared cells remember the block that set them, so that a new block needs no sweep. */
void forget_shared() {}

static bool reads_only(Access kind) { return kind == Access::read || kind == Access::operand || kind == Access::fetch; }
static bool writes_only(Access kind) { return kind == Access::write || kind == Access::deliver; }

static bool is_set(const Region &region, const Cell &cell)
{
    /* What the host writes to pinned memory, and other processes to windows, is not seen. */
    return region.space == Space::pinned || region.strangers || (region.space == Space::shared ? cell.set == block_number : cell.set != 0);
}

/* Of other work than that which runs: do streams, events and waits of the host order it before? */
static bool happened_before(const Trace &trace)
{
    const Moment &moment = moments[trace.launch];
    return work_clock.of(moment.stream) >= moment.tick;
}

static bool ordered(const Region &region, const Trace &trace, unsigned thread, const uint32_t *clock)
{
    if (trace.launch != launch_number)
        return region.space == Space::shared || happened_before(trace);
    if (trace.block != block_number)
        return region.space == Space::shared;    /* another block's shared memory was another memory */
    if (trace.thread == thread || trace.epoch < epoch)
        return true;
    return (trace.thread / 32 == thread / 32 && clock[trace.thread % 32] >= trace.clock) || heard_of(trace.thread) >= trace.clock;
}

/* An atomic access does not make its thread's plain one forgotten: the next atomic of another meets both. */
static void remember(Trace kept[2], const Trace &now)
{
    auto stale = [&](const Trace &t) {
        if (t.launch != now.launch)
            return happened_before(t);
        return t.block == now.block && (t.epoch < now.epoch || (t.thread == now.thread && t.atomic >= now.atomic));
    };
    if (stale(kept[0]))
        kept[0] = now;
    else if (stale(kept[1]) || (kept[0].thread / 32 != now.thread / 32 && kept[0].block == now.block) ||
             kept[0].thread / 32 == kept[1].thread / 32)
        kept[1] = now;
}

static void remember_access(const Region &region, Cell *cell, Access kind, const Trace &now)
{
    if (reads_only(kind)) {
        remember(cell->read, now);
        return;
    }
    if (writes_only(kind))    /* ordered after what was there, or reported */
        cell->write[0] = cell->write[1] = Trace();
    remember(cell->write, now);
    cell->set = region.space == Space::shared ? block_number : 1;
}

struct Conflict {
    const Trace *other;
    bool is_write;
};

static Conflict conflict(const Region &region, const Cell &cell, Access kind, unsigned thread, const uint32_t *clock)
{
    for (const Trace &write : cell.write)
        if (write.launch && !(kind == Access::atomic && write.atomic) && !ordered(region, write, thread, clock))
            return {&write, true};
    for (const Trace &read : cell.read)
        if (!reads_only(kind) && read.launch && !ordered(region, read, thread, clock))
            return {&read, false};
    return {nullptr, false};
}

static void report_race(const Region &region, const Conflict &race, Access kind, const void *where)
{
    const char *what = !race.is_write ? "write after unordered read"
                       : reads_only(kind) ? "read after unordered write" : "two unordered writes";
    if (race.other->launch != launch_number)
        fault(where, "RACE between streams: %s by other work, and no event or wait orders the two", what);
    else
        fault(where, "RACE in %s memory: %s by thread %u of %s", region.space == Space::shared ? "shared" : "device", what,
              race.other->thread, race.other->block == block_number ? "this block" : "another block");
}

static void outside(const void *address, size_t bytes, Access kind, const void *where)
{
    const char *verb = reads_only(kind) ? "read" : "write";
    if (on_running_stack(address))
        return;
    if (in_guard(address)) {
        auto next = regions.upper_bound(static_cast<char *>(const_cast<void *>(address)));
        ptrdiff_t past = 0;
        size_t size = 0;
        if (next != regions.begin()) {
            const Region &before = std::prev(next)->second;
            past = static_cast<const char *>(address) - before.start - before.bytes;
            size = before.bytes;
        }
        fault(where, "OUT OF BOUNDS: %s of %zu bytes, %td bytes past the end of a buffer of %zu bytes", verb, bytes, past, size);
        trap(where);
    }
    if (tracking && !reads_only(kind))
        fault(where, "HOST MEMORY: a kernel writes %zu bytes to memory that is no device memory", bytes);
}

static bool check_bounds(const Region &region, size_t offset, size_t bytes, const void *address, Access kind, const void *where)
{
    const char *verb = reads_only(kind) ? "read" : "write";
    if (offset + bytes > region.bytes) {
        fault(where, "OUT OF BOUNDS: %s of %zu bytes runs over the end of a buffer of %zu bytes", verb, bytes, region.bytes);
        return false;
    }
    if (bytes < 16 && reinterpret_cast<uintptr_t>(address) % (bytes & -bytes))
        fault(where, "MISALIGNED: %s of %zu bytes at %p", verb, bytes, address);
    if (region.space == Space::device && !can_touch(launch_device, region))
        fault(where, "NO PEER ACCESS: a kernel on device %d touches memory of device %d", launch_device, region.device);
    return true;
}

/* Written by an ordinary store of this block whose thread has passed no fence since. */
static bool hidden_from_async(const Region &region, const Cell &cell)
{
    const Trace &write = cell.write[0];
    return region.space == Space::shared && write.launch == launch_number && write.block == block_number && !write.async &&
           write.clock > fenced_clock(write.thread);
}

static void track(Region &region, size_t offset, size_t bytes, Access kind, const void *where)
{
    unsigned thread;
    const uint32_t *clock = warp_clock(&thread);
    Trace now = {launch_number, block_number, epoch, clock[thread % 32], uint16_t(thread), kind == Access::atomic, kind == Access::deliver};
    bool unset_before = false, raced = false, hidden = false;
    for (Cell *cell = region.cells + offset; cell < region.cells + offset + bytes; cell++) {
        Conflict race = conflict(region, *cell, kind, thread, clock);
        if (race.other && !raced)    /* once an access, not once a byte */
            report_race(region, race, kind, where);
        raced |= race.other != nullptr;
        hidden |= kind == Access::operand && hidden_from_async(region, *cell);
        if (!writes_only(kind) && kind != Access::fetch && !is_set(region, *cell)) {
            unset_before = true;
            cell->set = region.space == Space::shared ? block_number : 1;
        }
        remember_access(region, cell, kind, now);
    }
    if (hidden)
        fault(where, "ASYNC PROXY: a tensor core reads what a thread stored and did not follow with fence.proxy.async");
    if (unset_before)
        fault(where, "UNINITIALISED: read of %s memory that nobody set", region.space == Space::shared ? "shared" : "device");
}

void access(const void *address, size_t bytes, Access kind, const void *where)
{
    unsigned thread;
    if (!on_fiber() || !warp_clock(&thread))
        return;
    if (bytes == 16 && reinterpret_cast<uintptr_t>(address) % 16)
        fault(where, "MISALIGNED: access of 16 bytes at %p", address);
    if (!tracking && !in_guard(address))
        return;
    Region *region = find(address);
    if (!region)
        outside(address, bytes, kind, where);
    if (!region || !tracking)
        return;
    size_t offset = static_cast<const char *>(address) - region->start;
    if (check_bounds(*region, offset, bytes, address, kind, where) && region->cells)
        track(*region, offset, bytes, kind, where);
}

void unset(const void *address, size_t bytes)
{
    Region *region = find(address);
    if (!region || !region->cells)
        return;
    Cell *cells = region->cells + (static_cast<const char *>(address) - region->start);
    for (size_t i = 0; i < bytes; i++)
        cells[i].set = 0;
}

void set_again(const void *address, size_t bytes)
{
    Region *region = find(address);
    if (!region || !region->cells)
        return;
    Cell *cells = region->cells + (static_cast<const char *>(address) - region->start);
    for (size_t i = 0; i < bytes; i++)
        cells[i].set = region->space == Space::shared ? block_number : 1;
}

/* --- what the runtime itself does to memory ----------------------------------------------------------------------------------- */

/* An access by a copy, a fill or a product, or an atomic one outside of kernels. */
static void trace_runtime(Region &region, size_t offset, size_t bytes, Access kind, const void *where)
{
    static const uint32_t no_warp[32] = {0};
    Trace now = {launch_number, block_number, epoch, 1, 0, kind == Access::atomic, false};
    bool raced = false;
    for (Cell *cell = region.cells + offset; cell < region.cells + offset + bytes; cell++) {
        Conflict race = conflict(region, *cell, kind, 0, no_warp);
        if (race.other && !raced)
            report_race(region, race, kind, where);
        raced |= race.other != nullptr;
        remember_access(region, cell, kind, now);
    }
}

bool touch(const void *address, size_t bytes, bool write, const void *where)
{
    Region *region = find(address);
    if (!region) {
        if (!in_guard(address))
            return true;
        fault(where, "OUT OF BOUNDS: a copy touches %p, which is no buffer", address);
        return false;
    }
    size_t offset = static_cast<const char *>(address) - region->start;
    if (offset + bytes > region->bytes) {
        fault(where, "OUT OF BOUNDS: %zu bytes at offset %zu of a buffer of %zu bytes", bytes, offset, region->bytes);
        return false;
    }
    if (region->cells && bytes)
        trace_runtime(*region, offset, bytes, write ? Access::write : Access::read, where);
    return true;
}

bool touch_atomic(const void *address, size_t bytes, int device, const void *where)
{
    Region *region = find(address);
    size_t offset = region ? static_cast<const char *>(address) - region->start : 0;
    if (!region || region->space != Space::device || offset + bytes > region->bytes) {
        fault(where, "OUT OF BOUNDS: an atomic access to %p, which is no device memory", address);
        return false;
    }
    if (!can_touch(device, *region)) {
        fault(where, "NO PEER ACCESS: device %d touches memory of device %d", device, region->device);
        return false;
    }
    if (region->cells)
        trace_runtime(*region, offset, bytes, Access::atomic, where);
    return true;
}

/* What was not set stays so in the copy. */
static void copy_set(void *to, const void *from, size_t bytes)
{
    Region *source = find(from), *target = find(to);
    if (!source || !source->cells || source->space == Space::pinned || !target || !target->cells)
        return;
    const Cell *in = source->cells + (static_cast<const char *>(from) - source->start);
    Cell *out = target->cells + (static_cast<char *>(to) - target->start);
    for (size_t i = 0; i < bytes; i++)
        out[i].set = in[i].set;
}

void copy_bytes(void *to, const void *from, size_t bytes, const void *where)
{
    if (!touch(from, bytes, false, where) || !touch(to, bytes, true, where))
        return;
    copy_set(to, from, bytes);
    memmove(to, from, bytes);
}

void fill_bytes(void *to, int byte, size_t bytes, const void *where)
{
    if (touch(to, bytes, true, where))
        memset(to, byte, bytes);
}

}    // namespace cuemu

extern "C" int cuemu_tracks(void) { return cuemu::tracking; }
