/* Any bytes as a window dump, as they are and signed anew so that they get past the checksum. What is accepted is valid, can be
   decided on, and is written again byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "bindings/cli/placer.h"
#include "core/base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decide(const gb_dump *dump, gb_arena *arena)
{
    gb_placer placer;
    gb_placement next;
    gb_placer_outcome outcome;
    const gb_placement *now = &dump->placement;
    uint32_t spare = now->slots_per_rank - now->experts / now->ranks;
    GB_ASSERT(gb_placer_init(&placer, arena, dump, NULL) == GB_OK);
    GB_ASSERT(gb_placement_init(&next, arena, now->layers, now->sources, now->experts, now->ranks, spare, NULL) == GB_OK);
    for (uint32_t i = 0; i < gb_placer_policy_count; i++) {
        int rc = gb_placer_step(&placer, &gb_placer_policies[i], &next, now, &dump->window[0].counts, true, &outcome, NULL);
        GB_ASSERT(rc == GB_OK || rc == GB_EUNSUPPORTED);    /* copies may have left homes that a search cannot start from */
        if (rc == GB_OK) GB_ASSERT(gb_placement_check(&next, NULL) == GB_OK);
    }
}

static void read_bytes(const uint8_t *data, size_t size)
{
    enum { SMALL_CELLS = 512 };    /* deciding on larger ones takes too long for a fuzzer */
    gb_arena arena;
    gb_dump dump;
    gb_error err;
    gb_arena_init(&arena);
    if (gb_dump_read(&dump, &arena, data, size, &err) == GB_OK) {
        GB_ASSERT(gb_placement_check(&dump.placement, NULL) == GB_OK);
        GB_ASSERT(gb_dump_bytes(&dump) == size);
        uint8_t *again = malloc(size);
        gb_dump_write(&dump, again);
        GB_ASSERT(memcmp(again, data, size) == 0);
        free(again);
        if (gb_matrix_cells(&dump.window[0].counts) * dump.placement.ranks <= SMALL_CELLS) decide(&dump, &arena);
    }
    gb_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_bytes(data, size);
    if (size < 4) return 0;
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size - 4);
    uint32_t crc = gb_crc32(copy, size - 4);
    for (int i = 0; i < 4; i++) copy[size - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
    read_bytes(copy, size);
    free(copy);
    return 0;
}
