#include "core/base/nearest.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

static int fold(char c) { return c == '_' ? '-' : tolower((unsigned char)c); }

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

uint32_t gb_edit_distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    if (m > GB_NEAREST_BYTES || n > GB_NEAREST_BYTES) return UINT32_MAX;
    uint32_t row[GB_NEAREST_BYTES + 1];    /* distances of a[0..i) to every prefix of b */
    for (uint32_t j = 0; j <= n; j++) row[j] = j;
    for (uint32_t i = 1; i <= m; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= n; j++) {
            uint32_t substituted = diagonal + (fold(a[i - 1]) != fold(b[j - 1]));
            diagonal = row[j];
            row[j] = least(substituted, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

gb_nearest gb_nearest_to(const char *word) { return (gb_nearest){.word = word, .distance = UINT32_MAX}; }

void gb_nearest_offer(gb_nearest *nearest, const char *candidate)
{
    uint32_t distance = gb_edit_distance(nearest->word, candidate);
    if (distance >= nearest->distance) return;
    nearest->distance = distance;
    nearest->best = candidate;
}

const char *gb_nearest_found(const gb_nearest *nearest)
{
    size_t bytes = strlen(nearest->word);
    uint32_t allowed = bytes < 6 ? 2 : (uint32_t)(bytes / 3);
    return nearest->best && nearest->distance <= allowed && nearest->distance < bytes ? nearest->best : NULL;
}
