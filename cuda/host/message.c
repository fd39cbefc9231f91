#include "cuda/host/check.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/base/log.h"

static _Thread_local char message[512];

const char *gb_k_message(void) { return message; }

int gb_k_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    gb_log(GB_LOG_ERROR, "cuda: %s", message);
    return status;
}
