#include "bindings/lua/lua_digest.h"

#include <string.h>

#include "core/base/rng.h"

/* A sum of products, each of the two halves of a value and of its place: no product waits for another. */
static uint64_t add_column(uint64_t sum, uint32_t column, const double *values, uint32_t n)
{
    uint64_t key = UINT64_C(0x9e3779b97f4a7c15) * (column + 1);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        uint64_t low = (uint32_t)(bits + key), high = (uint32_t)((bits >> 32) + (key >> 32));
        sum += low * high;
        key += UINT64_C(0xd1342543de82ef95);
    }
    return sum;
}

static uint32_t rows_of(uint32_t n) { return n < GB_LUA_DIGEST_ROWS ? n : GB_LUA_DIGEST_ROWS; }

uint64_t gb_lua_digest_select(const gb_request_row *request, const gb_engine_table *engines)
{
    uint32_t column = 0, rows = rows_of(engines->n);
    uint64_t sum = gb_mix64((uint64_t)engines->n << 32 | engines->next);
#define SCALAR(name, unit, meaning) sum = add_column(sum, column++, &request->name, 1);
    GB_REQUEST_COLUMNS(SCALAR)
#undef SCALAR
#define COLUMN(name, unit, meaning) sum = add_column(sum, column++, engines->name, rows);
    GB_ENGINE_COLUMNS(COLUMN)
#undef COLUMN
    return gb_mix64(sum);
}

uint64_t gb_lua_digest_order(const gb_queue_table *queue)
{
    uint32_t column = 0, rows = rows_of(queue->n);
    uint64_t sum = gb_mix64((uint64_t)queue->n << 32 | queue->engine);
#define COLUMN(name, unit, meaning) sum = add_column(sum, column++, queue->name, rows);
#define WRITTEN(name, unit, meaning)
    GB_QUEUE_COLUMNS_OF(COLUMN, WRITTEN)
#undef WRITTEN
#undef COLUMN
    return gb_mix64(sum);
}
