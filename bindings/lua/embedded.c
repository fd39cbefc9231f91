#include "bindings/lua/embedded.h"

#include <string.h>

const gb_embedded_file *gb_embedded_find(const char *name)
{
    for (unsigned i = 0; i < gb_embedded_count; i++) {
        if (strcmp(gb_embedded_files[i].name, name) == 0) return &gb_embedded_files[i];
    }
    return NULL;
}
