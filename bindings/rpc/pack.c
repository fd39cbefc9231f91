#include "bindings/rpc/pack.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/assert.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "matrices travel little-endian and are copied as they lie in memory");

void gb_pack_init(gb_pack *p, size_t limit) { *p = (gb_pack){.limit = limit}; }

void gb_pack_deinit(gb_pack *p)
{
    free(p->data);
    *p = (gb_pack){.limit = p->limit};
}

void gb_pack_clear(gb_pack *p)
{
    if (p->capacity > GB_PACK_KEEP_BYTES) gb_pack_deinit(p);
    p->n = 0;
    p->overflow = false;
}

void gb_pack_cut(gb_pack *p, size_t n)
{
    GB_ASSERT(n <= p->n);
    p->n = n;
    p->overflow = false;
}

static bool reserve(gb_pack *p, size_t more)
{
    if (more > p->limit - p->n) return false;
    if (more <= p->capacity - p->n) return true;
    size_t capacity = p->capacity ? p->capacity : 256;
    while (capacity - p->n < more) capacity *= 2;
    uint8_t *data = realloc(p->data, capacity);
    if (!data) return false;
    p->data = data;
    p->capacity = capacity;
    return true;
}

void gb_pack_raw(gb_pack *p, const void *bytes, size_t n)
{
    if (n == 0) return;
    if (p->overflow || !reserve(p, n)) {
        p->overflow = true;
        return;
    }
    memcpy(p->data + p->n, bytes, n);
    p->n += n;
}

static int write_bytes(void *pack, const char *bytes, size_t n)
{
    gb_pack_raw(pack, bytes, n);
    return 0;
}

static msgpack_packer packer(gb_pack *p)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, p, write_bytes);
    return packer;
}

void gb_pack_nil(gb_pack *p)
{
    msgpack_packer m = packer(p);
    msgpack_pack_nil(&m);
}

void gb_pack_bool(gb_pack *p, bool value)
{
    msgpack_packer m = packer(p);
    if (value) msgpack_pack_true(&m);
    else msgpack_pack_false(&m);
}

void gb_pack_int(gb_pack *p, int64_t value)
{
    msgpack_packer m = packer(p);
    msgpack_pack_int64(&m, value);
}

void gb_pack_uint(gb_pack *p, uint64_t value)
{
    msgpack_packer m = packer(p);
    msgpack_pack_uint64(&m, value);
}

void gb_pack_float(gb_pack *p, double value)
{
    msgpack_packer m = packer(p);
    msgpack_pack_double(&m, value);
}

void gb_pack_str(gb_pack *p, const char *text) { gb_pack_text(p, text, strlen(text)); }

void gb_pack_text(gb_pack *p, const char *text, size_t bytes)
{
    msgpack_packer m = packer(p);
    msgpack_pack_str(&m, bytes);
    gb_pack_raw(p, text, bytes);
}

void gb_pack_bin(gb_pack *p, const void *data, size_t bytes)
{
    msgpack_packer m = packer(p);
    msgpack_pack_bin(&m, bytes);
    gb_pack_raw(p, data, bytes);
}

void gb_pack_array(gb_pack *p, size_t n)
{
    msgpack_packer m = packer(p);
    msgpack_pack_array(&m, n);
}

void gb_pack_map(gb_pack *p, size_t n)
{
    msgpack_packer m = packer(p);
    msgpack_pack_map(&m, n);
}

void gb_pack_matrix(gb_pack *p, gb_matrix_type type, uint32_t n_dims, const uint32_t *dims, const void *data)
{
    static const uint8_t element_bytes[] = {4, 8, 4, 8};
    GB_ASSERT(n_dims >= 1 && n_dims <= GB_MATRIX_DIMS_MAX);
    uint8_t head[4] = {(uint8_t)type, (uint8_t)n_dims, 0, 0};
    size_t bytes = element_bytes[type];
    for (uint32_t i = 0; i < n_dims; i++) bytes *= dims[i];
    msgpack_packer m = packer(p);
    msgpack_pack_ext(&m, sizeof head + n_dims * sizeof *dims + bytes, GB_MATRIX_EXT);
    gb_pack_raw(p, head, sizeof head);
    gb_pack_raw(p, dims, n_dims * sizeof *dims);
    gb_pack_raw(p, data, bytes);
}

/* The count is written as 16 bits and filled in at the end. */
static gb_pack_list begin(gb_pack *p, uint8_t format)
{
    uint8_t head[3] = {format, 0, 0};
    gb_pack_list list = {.pack = p, .head = p->n};
    gb_pack_raw(p, head, sizeof head);
    return list;
}

gb_pack_list gb_pack_begin_map(gb_pack *p) { return begin(p, 0xde); }
gb_pack_list gb_pack_begin_array(gb_pack *p) { return begin(p, 0xdc); }

gb_pack *gb_pack_next(gb_pack_list *list)
{
    list->n++;
    return list->pack;
}

gb_pack *gb_pack_key(gb_pack_list *map, const char *key)
{
    map->n++;
    gb_pack_str(map->pack, key);
    return map->pack;
}

void gb_pack_end(gb_pack_list *list)
{
    GB_ASSERT(list->n <= UINT16_MAX);
    if (list->pack->overflow) return;
    list->pack->data[list->head + 1] = (uint8_t)(list->n >> 8);
    list->pack->data[list->head + 2] = (uint8_t)list->n;
}

void gb_pack_key_bool(gb_pack_list *map, const char *key, bool value) { gb_pack_bool(gb_pack_key(map, key), value); }
void gb_pack_key_int(gb_pack_list *map, const char *key, int64_t value) { gb_pack_int(gb_pack_key(map, key), value); }
void gb_pack_key_uint(gb_pack_list *map, const char *key, uint64_t value) { gb_pack_uint(gb_pack_key(map, key), value); }
void gb_pack_key_float(gb_pack_list *map, const char *key, double value) { gb_pack_float(gb_pack_key(map, key), value); }
void gb_pack_key_str(gb_pack_list *map, const char *key, const char *text) { gb_pack_str(gb_pack_key(map, key), text); }
