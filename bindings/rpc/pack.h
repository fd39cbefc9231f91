/* Writing msgpack: a growing buffer with a limit, and maps whose size is known at their end. Whoever made a gb_pack owns
   it. Past its limit (or without memory) a pack overflows: it keeps what fits, ignores the rest and says so at the end. */
#ifndef GB_RPC_PACK_H
#define GB_RPC_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GB_PACK_KEEP_BYTES = 64 << 10 };    /* memory that an emptied pack keeps for its next use */

typedef struct gb_pack {
    uint8_t *data;
    size_t n, capacity, limit;
    bool overflow;
} gb_pack;

void gb_pack_init(gb_pack *p, size_t limit);
void gb_pack_deinit(gb_pack *p);
void gb_pack_clear(gb_pack *p);
void gb_pack_cut(gb_pack *p, size_t n);    /* forgets all but the first n bytes, and an overflow with them */

void gb_pack_raw(gb_pack *p, const void *bytes, size_t n);    /* bytes that are msgpack already */
void gb_pack_nil(gb_pack *p);
void gb_pack_bool(gb_pack *p, bool value);
void gb_pack_int(gb_pack *p, int64_t value);
void gb_pack_uint(gb_pack *p, uint64_t value);
void gb_pack_float(gb_pack *p, double value);
void gb_pack_str(gb_pack *p, const char *text);
void gb_pack_text(gb_pack *p, const char *text, size_t bytes);
void gb_pack_bin(gb_pack *p, const void *data, size_t bytes);
void gb_pack_array(gb_pack *p, size_t n);    /* n values follow */
void gb_pack_map(gb_pack *p, size_t n);      /* n pairs follow */

/* Ext type 1, a matrix: u8 dtype, u8 ndim, u16 0, u32 dims[ndim], data; little-endian. */
typedef enum gb_matrix_type { GB_MATRIX_U32, GB_MATRIX_U64, GB_MATRIX_F32, GB_MATRIX_F64 } gb_matrix_type;
enum { GB_MATRIX_EXT = 1, GB_MATRIX_DIMS_MAX = 4 };
void gb_pack_matrix(gb_pack *p, gb_matrix_type type, uint32_t n_dims, const uint32_t *dims, const void *data);

/* A map or array of at most 65535 entries, counted while it is written. */
typedef struct gb_pack_list {
    gb_pack *pack;
    size_t head;
    uint32_t n;
} gb_pack_list;

gb_pack_list gb_pack_begin_map(gb_pack *p);
gb_pack_list gb_pack_begin_array(gb_pack *p);
gb_pack     *gb_pack_next(gb_pack_list *list);                      /* the next element is about to be written */
gb_pack     *gb_pack_key(gb_pack_list *map, const char *key);       /* the next value is about to be written */
void         gb_pack_end(gb_pack_list *list);

void gb_pack_key_bool(gb_pack_list *map, const char *key, bool value);
void gb_pack_key_int(gb_pack_list *map, const char *key, int64_t value);
void gb_pack_key_uint(gb_pack_list *map, const char *key, uint64_t value);
void gb_pack_key_float(gb_pack_list *map, const char *key, double value);
void gb_pack_key_str(gb_pack_list *map, const char *key, const char *text);

#endif
