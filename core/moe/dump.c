#include "core/moe/dump.h"

#include <inttypes.h>
#include <string.h>

#include "core/flow/ids.h"
#include "core/moe/route.h"

static const char MAGIC[8] = "GBWINDOW";

enum { HEADER_BYTES = 56, WINDOW_HEADER_BYTES = 32, CRC_BYTES = 4 };

uint32_t gb_crc32(const void *bytes, uint64_t n)
{
    uint32_t table[16], crc = 0xFFFFFFFFu;    /* a nibble at a time: dumps are small and read once */
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int k = 0; k < 4; k++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xEDB88320u : 0);
    }
    for (uint64_t i = 0; i < n; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* --- shape ------------------------------------------------------------------------------------------------------------ */

typedef struct header {
    uint32_t version, windows, flags, layers, sources, experts, ranks, slots_per_rank;
    uint64_t expert_bytes, placement_version;
} header;

static uint64_t slots_of(const header *h) { return (uint64_t)h->layers * h->ranks * h->slots_per_rank; }
static uint64_t cells_of(const header *h) { return (uint64_t)h->layers * h->sources * h->experts; }

/* With every number within its limit the products stay below 2^63. */
static uint64_t file_bytes(const header *h)
{
    return HEADER_BYTES + (uint64_t)h->sources * h->ranks * 8 + slots_of(h) * 4 + h->windows * (WINDOW_HEADER_BYTES + cells_of(h) * 8) + CRC_BYTES;
}

static int check_shape(const header *h, int status, gb_error *err)
{
    const struct { const char *name; uint32_t value, most; } limits[] = {
        {"layers", h->layers, GB_DUMP_LAYERS_MAX}, {"sources", h->sources, GB_ENGINES_MAX}, {"experts", h->experts, GB_EXPERTS_MAX},
        {"ranks", h->ranks, GB_RANKS_MAX}, {"windows", h->windows, GB_DUMP_WINDOWS_MAX}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value == 0 || limits[i].value > limits[i].most)
            return gb_fail(err, status, "window dump: %u %s: 1 to %u are possible", limits[i].value, limits[i].name, limits[i].most);
    if (h->ranks > h->experts) return gb_fail(err, status, "window dump: %u ranks for %u experts: every rank holds at least one", h->ranks, h->experts);
    if (h->experts % h->ranks != 0)
        return gb_fail(err, status, "window dump: %u experts cannot be split evenly over %u ranks", h->experts, h->ranks);
    if (h->slots_per_rank < h->experts / h->ranks || h->slots_per_rank > h->experts)
        return gb_fail(err, status, "window dump: %u slots per rank: %u experts on %u ranks need %u to %u", h->slots_per_rank, h->experts, h->ranks,
                       h->experts / h->ranks, h->experts);
    if (h->expert_bytes == 0) return gb_fail(err, status, "window dump: an expert of 0 bytes");
    return GB_OK;
}

static int take_memory(gb_dump *d, gb_arena *arena, const header *h, gb_error *err)
{
    *d = (gb_dump){.windows = h->windows, .expert_bytes = h->expert_bytes};
    int rc = gb_links_init(&d->links, arena, h->sources, h->ranks, err);
    if (rc == GB_OK)
        rc = gb_placement_init(&d->placement, arena, h->layers, h->sources, h->experts, h->ranks, h->slots_per_rank - h->experts / h->ranks, err);
    if (rc != GB_OK) return rc;
    d->window = GB_ARENA_NEW(arena, gb_window, h->windows);
    for (uint32_t w = 0; d->window && w < h->windows; w++)
        if (gb_matrix_init(&d->window[w].counts, arena, h->layers, h->sources, h->experts) != GB_OK) d->window = NULL;
    return d->window ? GB_OK : gb_fail(err, GB_ENOMEM, "out of memory for a dump of %u windows", h->windows);
}

int gb_dump_init(gb_dump *d, gb_arena *arena, uint32_t windows, uint32_t layers, uint32_t sources, uint32_t experts, uint32_t ranks,
                 uint32_t spare, uint64_t expert_bytes, gb_error *err)
{
    header h = {.windows = windows, .layers = layers, .sources = sources, .experts = experts, .ranks = ranks, .expert_bytes = expert_bytes};
    h.slots_per_rank = ranks ? experts / ranks + spare : 0;
    int rc = check_shape(&h, GB_EINVAL, err);
    return rc == GB_OK ? take_memory(d, arena, &h, err) : rc;
}

static header header_of(const gb_dump *d)
{
    const gb_placement *p = &d->placement;
    return (header){GB_DUMP_VERSION, d->windows, 0, p->layers, p->sources, p->experts, p->ranks, p->slots_per_rank, d->expert_bytes, p->version};
}

uint64_t gb_dump_bytes(const gb_dump *d)
{
    header h = header_of(d);
    return file_bytes(&h);
}

/* --- bytes ------------------------------------------------------------------------------------------------------------ */

static void put32(uint8_t **at, uint32_t x)
{
    for (int i = 0; i < 4; i++) *(*at)++ = (uint8_t)(x >> 8 * i);
}

static void put64(uint8_t **at, uint64_t x)
{
    for (int i = 0; i < 8; i++) *(*at)++ = (uint8_t)(x >> 8 * i);
}

static uint32_t get32(const uint8_t **at)
{
    uint32_t x = 0;
    for (int i = 0; i < 4; i++) x |= (uint32_t)*(*at)++ << 8 * i;
    return x;
}

static uint64_t get64(const uint8_t **at)
{
    uint64_t low = get32(at);
    return low | (uint64_t)get32(at) << 32;
}

static void put_number(uint8_t **at, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put64(at, bits);
}

static double get_number(const uint8_t **at)
{
    uint64_t bits = get64(at);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void gb_dump_write(const gb_dump *d, void *bytes)
{
    header h = header_of(d);
    uint8_t *at = bytes;
    memcpy(at, MAGIC, sizeof MAGIC);
    at += sizeof MAGIC;
    const uint32_t words[] = {h.version, h.windows, h.flags, h.layers, h.sources, h.experts, h.ranks, h.slots_per_rank};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) put32(&at, words[i]);
    put64(&at, h.expert_bytes);
    put64(&at, h.placement_version);
    for (uint32_t i = 0; i < h.sources * h.ranks; i++) put_number(&at, d->links.cost[i]);
    for (uint64_t i = 0; i < slots_of(&h); i++) put32(&at, (uint32_t)d->placement.expert_of_slot[i]);
    for (uint32_t w = 0; w < d->windows; w++) {
        const gb_window *window = &d->window[w];
        put64(&at, window->id);
        put64(&at, window->from);
        put64(&at, window->to);
        put64(&at, window->rounds);
        for (uint64_t i = 0; i < cells_of(&h); i++) put64(&at, window->counts.counts[i]);
    }
    put32(&at, gb_crc32(bytes, (uint64_t)(at - (uint8_t *)bytes)));
}

/* --- reading ---------------------------------------------------------------------------------------------------------- */

static int read_header(header *h, const uint8_t *bytes, uint64_t n, gb_error *err)
{
    const uint8_t *at = bytes + sizeof MAGIC;
    if (n < sizeof MAGIC || memcmp(bytes, MAGIC, sizeof MAGIC) != 0) return gb_fail(err, GB_EFORMAT, "this is not a window dump: it does not begin with GBWINDOW");
    if (n < HEADER_BYTES) return gb_fail(err, GB_EFORMAT, "window dump: truncated inside its header (%" PRIu64 " bytes)", n);
    *h = (header){.version = get32(&at), .windows = get32(&at)};
    h->flags = get32(&at);
    h->layers = get32(&at);
    h->sources = get32(&at);
    h->experts = get32(&at);
    h->ranks = get32(&at);
    h->slots_per_rank = get32(&at);
    h->expert_bytes = get64(&at);
    h->placement_version = get64(&at);
    if (h->version != GB_DUMP_VERSION)
        return gb_fail(err, GB_EFORMAT, "window dump: format version %u, but this gimbal reads version %d", h->version, GB_DUMP_VERSION);
    if (h->flags != 0) return gb_fail(err, GB_EFORMAT, "window dump: unknown flags 0x%x", h->flags);
    if (h->placement_version > UINT32_MAX) return gb_fail(err, GB_EFORMAT, "window dump: placement version %" PRIu64 " is too large", h->placement_version);
    return check_shape(h, GB_EFORMAT, err);
}

static int check_length(const header *h, const uint8_t *bytes, uint64_t n, gb_error *err)
{
    uint64_t expected = file_bytes(h);
    if (n < expected)
        return gb_fail(err, GB_EFORMAT, "window dump: truncated: %" PRIu64 " bytes, but %u windows of %u x %u x %u take %" PRIu64, n, h->windows, h->layers,
                       h->sources, h->experts, expected);
    if (n > expected) return gb_fail(err, GB_EFORMAT, "window dump: %" PRIu64 " bytes after its end", n - expected);
    const uint8_t *at = bytes + n - CRC_BYTES;
    uint32_t stored = get32(&at), computed = gb_crc32(bytes, n - CRC_BYTES);
    if (stored != computed) return gb_fail(err, GB_EFORMAT, "window dump: checksum %08x, but its bytes give %08x: the file is damaged", stored, computed);
    return GB_OK;
}

static int read_counts(gb_window *w, uint32_t index, const uint8_t **at, gb_error *err)
{
    const gb_matrix *m = &w->counts;
    uint64_t row = (uint64_t)m->sources * m->experts;
    for (uint32_t l = 0; l < m->layers; l++) {
        uint64_t total = 0;
        for (uint64_t i = 0; i < row; i++) {
            uint64_t count = m->counts[l * row + i] = get64(at);
            if (count > GB_DUMP_COUNT_MAX)
                return gb_fail(err, GB_EFORMAT, "window dump: window %u layer %u source %u expert %u: count %" PRIu64 " is negative or above 2^53", index, l,
                               (uint32_t)(i / m->experts), (uint32_t)(i % m->experts), count);
            total += count;    /* at most 2^19 counts of a layer: no overflow in 2^64 before the check below stops it */
            if (total > GB_DUMP_COUNT_MAX) return gb_fail(err, GB_EFORMAT, "window dump: window %u layer %u: the counts add up to more than 2^53", index, l);
        }
    }
    return GB_OK;
}

static int read_windows(gb_dump *d, const uint8_t **at, gb_error *err)
{
    for (uint32_t w = 0; w < d->windows; w++) {
        gb_window *window = &d->window[w];
        window->id = get64(at);
        window->from = get64(at);
        window->to = get64(at);
        uint64_t rounds = get64(at);
        if (rounds > UINT32_MAX || window->to < window->from)
            return gb_fail(err, GB_EFORMAT, "window dump: window %u ends before it begins, or counts %" PRIu64 " rounds", w, rounds);
        window->rounds = (uint32_t)rounds;
        int rc = read_counts(window, w, at, err);
        if (rc != GB_OK) return rc;
    }
    return GB_OK;
}

static bool lives(const int32_t *slots, uint32_t n, uint32_t expert)
{
    for (uint32_t i = 0; i < n; i++)
        if (slots[i] == (int32_t)expert) return true;
    return false;
}

/* Routes are derived, so each expert must live before there is a nearest copy. */
static int settle_placement(gb_dump *d, gb_error *err)
{
    gb_placement *p = &d->placement;
    for (uint32_t l = 0; l < p->layers; l++) {
        for (uint32_t e = 0; e < p->experts; e++)
            if (!lives(gb_placement_layer_slots(p, l), gb_placement_slots(p), e))
                return gb_fail(err, GB_EFORMAT, "window dump: its placement has expert %u of layer %u nowhere", e, l);
        gb_route_nearest(p, l, &d->links);
    }
    return gb_placement_check(p, err) == GB_OK ? GB_OK : GB_EFORMAT;
}

int gb_dump_read(gb_dump *dump, gb_arena *arena, const void *bytes, uint64_t n, gb_error *err)
{
    header h;
    gb_dump d;
    int rc = read_header(&h, bytes, n, err);
    if (rc == GB_OK) rc = check_length(&h, bytes, n, err);
    if (rc == GB_OK) rc = take_memory(&d, arena, &h, err);
    if (rc != GB_OK) return rc;
    const uint8_t *at = (const uint8_t *)bytes + HEADER_BYTES;
    for (uint32_t i = 0; i < h.sources * h.ranks; i++) d.links.cost[i] = get_number(&at);
    for (uint64_t i = 0; i < slots_of(&h); i++) d.placement.expert_of_slot[i] = (int32_t)get32(&at);
    d.placement.version = (uint32_t)h.placement_version;
    if (gb_links_check(&d.links, err) != GB_OK) return GB_EFORMAT;
    rc = read_windows(&d, &at, err);
    if (rc == GB_OK) rc = settle_placement(&d, err);
    if (rc == GB_OK) *dump = d;
    return rc;
}
