/* The table in which the ranks of a world find each other. An id names the process that made it and the file there; that process must live
   until all have joined, as with NCCL. */
#include "cuda/cuemu/nccl.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cuemu {

/* What an id's bytes say. */
struct Id {
    char magic[8];
    int32_t process, file;
    uint64_t key;
};

static const char kMagic[8] = "cuemu 1";

static std::map<uint64_t, std::shared_ptr<World>> joining;    /* by key, until all ranks have sat down */

static std::vector<World *> &worlds = *new std::vector<World *>;    /* all of this process; outlives them at its end */

bool meets_processes()
{
    return std::any_of(worlds.begin(), worlds.end(), [](const World *world) { return world->remote && world->n; });
}

void show_life()
{
    for (World *world : worlds)
        for (int rank = 0; world->remote && rank < world->n; rank++)
            if (world->table->seats[rank].process == uint32_t(getpid()))
                world->table->seats[rank].calls.fetch_add(1, std::memory_order_relaxed);
}

uint64_t calls_elsewhere()
{
    uint64_t sum = 0;
    for (const World *world : worlds)
        for (int rank = 0; world->remote && rank < world->n; rank++)
            if (world->table->seats[rank].process != uint32_t(getpid()))
                sum += world->table->seats[rank].calls.load(std::memory_order_relaxed);
    return sum;
}

void see_who_came(World &world)
{
    world.remote = false;
    for (int rank = 0; rank < world.n; rank++)
        world.remote |= world.table->seats[rank].process != uint32_t(getpid());
}

static std::shared_ptr<World> open_table(int file)
{
    struct stat about;
    if (file < 0)
        return nullptr;
    bool whole = fstat(file, &about) == 0 && about.st_size >= off_t(sizeof(Table));
    void *table = whole ? mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (table != MAP_FAILED)
        return std::make_shared<World>(file, static_cast<Table *>(table));    /* it lists itself */
    close(file);
    return nullptr;
}

World::World(int opened, Table *mapped) : file(opened), table(mapped) { worlds.push_back(this); }

World::~World()
{
    worlds.erase(std::find(worlds.begin(), worlds.end(), this));
    munmap(table, sizeof(Table));
    close(file);
}

std::shared_ptr<World> new_world()
{
    static uint64_t last_key;
    int file = memfd_create("cuemu world", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, off_t(1) << 46)) {    /* inputs and messages lie behind the table (remote.cpp) */
        close(file);
        file = -1;
    }
    std::shared_ptr<World> world = open_table(file);
    if (world)
        world->table->key = (uint64_t(getpid()) << 32) + ++last_key;
    return world;
}

/* Worlds that are complete need no name any more. */
static void forget_names()
{
    for (auto entry = joining.begin(); entry != joining.end();)
        entry = all_seated(*entry->second) ? joining.erase(entry) : std::next(entry);
}

void name_world(ncclUniqueId *id)
{
    static_assert(sizeof(Id) <= sizeof id->internal, "an id has room");
    forget_names();
    Id named = {{}, 0, -1, 0};
    if (std::shared_ptr<World> world = new_world()) {
        named = {{}, getpid(), world->file, world->table->key};
        memcpy(named.magic, kMagic, sizeof kMagic);
        joining[named.key] = world;
    }
    memset(id->internal, 0, sizeof id->internal);
    memcpy(id->internal, &named, sizeof named);
}

std::shared_ptr<World> world_of(const ncclUniqueId &id)
{
    Id named;
    memcpy(&named, id.internal, sizeof named);
    if (memcmp(named.magic, kMagic, sizeof kMagic) != 0)
        return nullptr;
    auto found = joining.find(named.key);
    if (found != joining.end())
        return found->second;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", named.process, named.file);
    std::shared_ptr<World> world = open_table(open(path, O_RDWR | O_CLOEXEC));
    if (!world || world->table->key != named.key)
        return nullptr;
    return joining[named.key] = world;
}

bool sit_down(World &world, int rank, int n, int device)
{
    Seat &seat = world.table->seats[rank];
    uint32_t nobody = 0;
    if (!seat.process.compare_exchange_strong(nobody, uint32_t(getpid())))
        return false;
    seat.device = device;
    seat.ranks = uint32_t(n);
    world.n = n;
    world.remote = true;
    return true;
}

bool all_seated(const World &world)
{
    int n = world.n ? world.n : int(world.table->seats[0].ranks);
    for (int rank = 0; rank < n; rank++)
        if (!world.table->seats[rank].ranks)
            return false;
    return n > 0;
}

}    // namespace cuemu
