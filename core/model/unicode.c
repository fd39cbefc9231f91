#include "core/model/unicode.h"

#include <stddef.h>

#include "core/model/utf8.h"

typedef struct range {
    uint32_t first, last : 24, kind : 8;
} range;

enum { L = GB_UNICODE_LETTER, N = GB_UNICODE_NUMBER, M = GB_UNICODE_MARK };

#include "core/model/unicode_tables.h"

/* The kind of the range that holds c; 0 when none does. */
static uint32_t look_up(const range *table, size_t n, uint32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > table[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < n && c >= table[low].first ? table[low].kind : 0;
}

gb_unicode_kind gb_unicode_kind_of(int32_t character)
{
    if (gb_utf8_is_space(character)) return GB_UNICODE_SPACE;
    return (gb_unicode_kind)look_up(CLASSES, sizeof CLASSES / sizeof *CLASSES, (uint32_t)character);
}

bool gb_unicode_inert(int32_t character)
{
    return look_up(INERT, sizeof INERT / sizeof *INERT, (uint32_t)character) != 0;
}
