/* gimbal place dump and load: windows out of a running server, placements into it. */
#include "bindings/cli/place_verbs.h"

#include <stdio.h>

#include "bindings/cli/place_file.h"

/* --- what the server said ----------------------------------------------------------------------------------------------------- */

static uint64_t number(const json_t *map, const char *key) { return (uint64_t)json_integer_value(json_object_get(map, key)); }

static int server_shape(gb_error *err) { return gb_fail(err, GB_EFORMAT, "the server's answers have shapes that do not fit together"); }

/* The numbers of nested arrays in order; false unless there are n of them. */
static bool flatten(const json_t *tree, uint64_t *to, size_t n, size_t *at)
{
    if (!json_is_array(tree)) {
        if (*at == n || !json_is_integer(tree)) return false;
        to[(*at)++] = (uint64_t)json_integer_value(tree);
        return true;
    }
    for (size_t i = 0; i < json_array_size(tree); i++)
        if (!flatten(json_array_get(tree, i), to, n, at)) return false;
    return true;
}

static bool flatten_all(const json_t *tree, uint64_t *to, size_t n)
{
    size_t at = 0;
    return flatten(tree, to, n, &at) && at == n;
}

static int fill_slots(gb_place_session *s, const json_t *placement, gb_error *err)
{
    gb_placement *p = &s->dump.placement;
    size_t n = (size_t)p->layers * gb_placement_slots(p);
    uint64_t *slots = GB_ARENA_NEW(&s->arena, uint64_t, n);
    if (!slots) return gb_fail(err, GB_ENOMEM, "out of memory for the placement");
    if (!flatten_all(json_object_get(placement, "slots"), slots, n)) return server_shape(err);
    for (size_t i = 0; i < n; i++) p->expert_of_slot[i] = (int32_t)(uint32_t)slots[i];    /* an empty slot is 2^32 - 1 there */
    p->version = (uint32_t)number(placement, "version");
    return GB_OK;
}

static int fill_window(gb_place_session *s, const json_t *matrix, gb_error *err)
{
    gb_window *w = &s->dump.window[0];
    w->id = number(matrix, "window_id");
    w->rounds = (uint32_t)number(matrix, "counted_rounds");
    w->from = (gb_time)(json_number_value(json_object_get(matrix, "t0_ms")) * 1e6);
    w->to = (gb_time)(json_number_value(json_object_get(matrix, "t1_ms")) * 1e6);
    return flatten_all(json_object_get(matrix, "A"), w->counts.counts, gb_matrix_cells(&w->counts)) ? GB_OK : server_shape(err);
}

static int fill_dump(gb_place_session *s, const json_t *matrix, const json_t *placement, gb_error *err)
{
    const json_t *a = json_object_get(matrix, "A"), *first = json_array_get(a, 0);
    uint32_t layers = (uint32_t)json_array_size(a), sources = (uint32_t)json_array_size(first);
    uint32_t experts = (uint32_t)json_array_size(json_array_get(first, 0)), ranks = (uint32_t)number(placement, "ranks");
    uint32_t slots = (uint32_t)number(placement, "slots_per_rank");
    if (layers == 0) return gb_fail(err, GB_EUNSUPPORTED, "the server's model has no experts");
    if (ranks == 0 || slots < experts / ranks) return server_shape(err);
    int rc = gb_dump_init(&s->dump, &s->arena, 1, layers, sources, experts, ranks, slots - experts / ranks, number(placement, "expert_bytes"), err);
    if (rc == GB_OK) rc = fill_slots(s, placement, err);
    return rc == GB_OK ? fill_window(s, matrix, err) : rc;
}

/* --- verbs -------------------------------------------------------------------------------------------------------------------- */

int gb_place_dump(gb_place_session *s, gb_error *err)
{
    gb_remote *remote = NULL;
    json_t *matrix = NULL, *placement = NULL;
    int rc = gb_remote_open(&remote, &s->flags->remote, err);
    if (rc == GB_OK) rc = gb_remote_call(remote, "expert_matrix", json_object(), &matrix, err);
    if (rc == GB_OK) rc = gb_remote_call(remote, "placement_get", json_object(), &placement, err);
    if (rc == GB_OK) rc = fill_dump(s, matrix, placement, err);
    if (rc == GB_OK) rc = gb_place_file_write(&s->dump, s->args->words[1], err);
    if (rc == GB_OK) printf("window %llu of %u rounds, placement %u\n", (unsigned long long)s->dump.window[0].id, s->dump.window[0].rounds, s->dump.placement.version);
    json_decref(matrix);
    json_decref(placement);
    gb_remote_close(remote);
    return rc;
}

static json_t *slots_of(const gb_placement *p)
{
    json_t *slots = json_array();
    for (uint32_t i = 0; i < p->layers * gb_placement_slots(p); i++) json_array_append_new(slots, json_integer(p->expert_of_slot[i]));
    return slots;
}

int gb_place_load(gb_place_session *s, gb_error *err)
{
    gb_remote *remote = NULL;
    json_t *result = NULL;
    int rc = gb_remote_open(&remote, &s->flags->remote, err);
    if (rc == GB_OK) rc = gb_remote_call(remote, "placement_set", json_pack("{s:o}", "slots", slots_of(&s->dump.placement)), &result, err);
    if (rc == GB_OK) printf("%llu moves begin\n", (unsigned long long)number(result, "moves"));
    json_decref(result);
    gb_remote_close(remote);
    return rc;
}
