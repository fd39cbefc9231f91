/* Settings, the one lock, which host threads are here, and calls that are made to fail. */
#include "cuda/cuemu/internal.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

namespace cuemu {

static std::mutex mutex;
static std::condition_variable moved;
static uint64_t moves;              /* grows with everything that somebody could wait for */
static unsigned present, waiting;   /* host threads that have called, and those that wait for others */
static uint64_t random_state;

namespace {

/* A host thread counts from its first call to its end. */
struct Presence {
    int device = 0;
    bool counted = false;
    ~Presence()
    {
        if (!counted)
            return;
        std::lock_guard<std::mutex> lock(mutex);
        present--;
        moved.notify_all();
    }
};

}    // namespace

static thread_local Presence presence;

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
    if (!presence.counted) {
        presence.counted = true;
        present++;
    }
}

void something_moved()
{
    moves++;
    moved.notify_all();
}

/* Threads that sit outside the emulator might still call: they get some patience. When all are here and wait, it is over. */
bool wait_for_others(Locked &locked)
{
    uint64_t before = moves;
    waiting++;
    auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(settings().patience_ms);
    bool hope = true;
    while (moves == before && hope)
        if (waiting == present)
            hope = false;
        else
            hope = moved.wait_until(locked.lock, until) != std::cv_status::timeout;
    waiting--;
    if (moves == before)
        something_moved();    /* the others look once more, and give up in turn */
    return hope;
}

int current_device() { return presence.device; }
void set_current_device(int device) { presence.device = device; }

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
