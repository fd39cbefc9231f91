#include "core/base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void gb_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "gimbal: %s:%d: assertion failed: %s\n", file, line, expression);
    abort();
}
