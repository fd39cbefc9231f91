/* Settings, the one lock, which host threads are here, and calls that are made to fail. */
#include "cuda/cuemu/internal.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/stat.h>

namespace cuemu {

static std::mutex mutex;
static std::condition_variable moved;
static uint64_t moves;              /* grows with everything that somebody could wait for */
static uint64_t calls;              /* of all threads: a sign that somebody is alive */
static unsigned waiting;            /* host threads that wait for others */
static uint64_t random_state;

static thread_local int device;

static unsigned long number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoul(text, nullptr, 10) : otherwise;
}

static unsigned choice(const char *name, std::initializer_list<const char *> words)
{
    const char *text = getenv(name);
    unsigned i = 0;
    for (const char *word : words) {
        if (text && strcmp(text, word) == 0)
            return i;
        i++;
    }
    if (text && *text)
        fprintf(stderr, "cuemu: %s=%s means nothing: the first choice is taken\n", name, text);
    return 0;
}

static Settings from_environment()
{
    Settings s;
    s.order = cuemu_order(choice("CUEMU_ORDER", {"ascending", "descending", "random", "warp_random"}));
    s.streams = cuemu_streams(choice("CUEMU_STREAMS", {"eager", "lazy", "others_first"}));
    s.seed = number("CUEMU_SEED", 1);
    s.devices = std::min<int>(number("CUEMU_DEVICES", 1), CUEMU_MAX_DEVICES);
    s.memory = size_t(number("CUEMU_MEMORY_MB", 8192)) << 20;
    s.patience_ms = number("CUEMU_PATIENCE_MS", 10000);
    random_state = s.seed * 0x9E3779B97F4A7C15ull + 1;
    return s;
}

Settings &settings()
{
    static Settings s = from_environment();
    return s;
}

uint64_t random_word()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

Locked::Locked() : lock(mutex)
{
    settings();
    calls++;
    show_life();
}

void something_moved()
{
    moves++;
    moved.notify_all();
}

int64_t now_ns()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static int64_t patience_ns() { return int64_t(settings().patience_ms) * 1000000; }

/* Also those that never called: one of them may be about to abort a communicator. */
static unsigned threads_of_process()
{
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 ? unsigned(tasks.st_nlink - 2) : UINT_MAX;
}

enum : int64_t { kLookAgainNs = 50000000, kPollNs = 100000 };

Wait::Wait() : patient_until(now_ns() + patience_ns()), calls_seen(calls + calls_elsewhere()) {}

bool Wait::for_others(Locked &locked, int64_t due_ns)
{
    uint64_t before = moves;
    bool hope = true;
    waiting++;
    while (moves == before && hope && now_ns() < due_ns) {
        if (calls + calls_elsewhere() != calls_seen) {
            calls_seen = calls + calls_elsewhere();
            patient_until = now_ns() + patience_ns();
        }
        bool polls = meets_processes(), all_wait = !polls && waiting >= threads_of_process();
        bool over = all_wait || now_ns() >= patient_until;
        if (over && due_ns == kNever) {
            hope = false;
            break;
        }
        int64_t until = std::min({now_ns() + (polls ? kPollNs : kLookAgainNs), due_ns, over ? kNever : patient_until});    /* threads end without a sound */
        moved.wait_until(locked.lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until)));
        if (polls)
            break;
    }
    waiting--;
    if (moves != before)
        *this = Wait();
    else if (!hope)
        something_moved();    /* the others look once more, and give up in turn */
    return hope;
}

int current_device() { return device; }
void set_current_device(int number) { device = number; }

struct Failure {
    unsigned after;
    int status;
};

static std::map<std::string, Failure> failures;

bool call_fails(const char *function, int *status)
{
    auto found = failures.find(function);
    if (found == failures.end())
        return false;
    if (found->second.after-- > 0)
        return false;
    *status = found->second.status;
    failures.erase(found);
    return true;
}

}    // namespace cuemu

using namespace cuemu;

extern "C" {

void cuemu_set_order(cuemu_order order, uint64_t seed)
{
    Locked locked;
    settings().order = order;
    settings().seed = seed;
    random_state = seed * 0x9E3779B97F4A7C15ull + 1;
}

void cuemu_set_streams(cuemu_streams mode)
{
    Locked locked;
    settings().streams = mode;
}

void cuemu_set_devices(int n)
{
    Locked locked;
    settings().devices = n < 0 ? 0 : n > CUEMU_MAX_DEVICES ? int(CUEMU_MAX_DEVICES) : n;
}

void cuemu_set_memory(size_t bytes)
{
    Locked locked;
    settings().memory = bytes;
}

void cuemu_set_patience_ms(unsigned ms)
{
    Locked locked;
    settings().patience_ms = ms;
}

void cuemu_fail_call(const char *function, unsigned after, int status)
{
    Locked locked;
    failures[function] = {after, status};
}

}    // extern "C"
