/* The nearest known name to one that is not known, for "did you mean". Case and '-' against '_' do not count. Pure; names
   longer than GB_NEAREST_BYTES are never near anything. */
#ifndef GB_BASE_NEAREST_H
#define GB_BASE_NEAREST_H

#include <stdint.h>

enum { GB_NEAREST_BYTES = 64 };

typedef struct gb_nearest {
    const char *word;        /* borrowed */
    const char *best;        /* the nearest candidate so far, or NULL */
    uint32_t distance;       /* of best */
} gb_nearest;

/* Levenshtein distance: insertions, deletions and substitutions that turn a into b; UINT32_MAX for a name too long. */
uint32_t gb_edit_distance(const char *a, const char *b);

gb_nearest  gb_nearest_to(const char *word);
void        gb_nearest_offer(gb_nearest *nearest, const char *candidate);    /* kept by reference */
const char *gb_nearest_found(const gb_nearest *nearest);    /* NULL when no candidate is close enough to be meant */

#endif
