/* Added tokens: texts that are tokens as a whole wherever they stand, found leftmost and longest first before anything else
   is cut. Immutable once filled; any thread. */
#ifndef GB_MODEL_ADDED_H
#define GB_MODEL_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GB_ADDED_BYTES_MAX = 1024 };

typedef struct gb_added_token {
    int32_t id;
    bool lstrip, rstrip;    /* takes the white space before, behind it */
} gb_added_token;

/* A trie over the bytes of the tokens. Zero-initialise. */
typedef struct gb_added {
    struct gb_added_node *nodes;
    size_t n, capacity;
    uint32_t roots[256];    /* node + 1 by first byte; 0 = none */
} gb_added;

void gb_added_deinit(gb_added *added);

/* GB_EEXIST when the text is there already; GB_ENOMEM. bytes in 1 .. GB_ADDED_BYTES_MAX. */
int gb_added_set(gb_added *added, const char *text, size_t bytes, const gb_added_token *token);

/* Called for each piece in order: text between tokens (token NULL), or a token with the text it takes. What it returns other
   than 0 ends the walk. */
typedef int gb_added_visit(void *self, const gb_added_token *token, const char *piece, size_t bytes);

int gb_added_run(const gb_added *added, const char *text, size_t bytes, gb_added_visit *visit, void *self);

#endif
