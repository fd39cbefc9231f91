/* Cuts text into words with the split regexes of a tokenizer.json. A pattern is Oniguruma's in the reference and PCRE2's
   here: only what means the same to both is accepted, the rest is refused by name. Immutable once made; any thread. */
#ifndef GB_MODEL_SPLIT_H
#define GB_MODEL_SPLIT_H

#include <stddef.h>

#include "core/base/status.h"

enum {
    GB_SPLIT_STAGES_MAX = 8,
    GB_SPLIT_PATTERN_BYTES_MAX = 4096,
    GB_SPLIT_MATCH_LIMIT = 10 * 1000 * 1000,    /* steps of one match, as PCRE2 counts them */
    GB_SPLIT_HEAP_KIB = 64 * 1024,
};

typedef struct gb_split gb_split;

int  gb_split_new(gb_split **out);
void gb_split_free(gb_split *split);

/* Adds a stage: the pieces of the stages before are cut by the matches of pattern, which become pieces themselves. */
int gb_split_add(gb_split *split, const char *pattern, gb_error *err);

/* Called for each piece in order, none of them empty; what it returns other than 0 ends the walk. */
typedef int gb_split_visit(void *self, const char *piece, size_t bytes);

/* Cuts valid UTF-8. GB_EFORMAT when a regex needs more steps or memory than the limits allow; GB_ENOMEM. */
int gb_split_run(const gb_split *split, const char *text, size_t bytes, gb_split_visit *visit, void *self, gb_error *err);

#endif
