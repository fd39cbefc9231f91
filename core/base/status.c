#include "core/base/status.h"

#include <stdio.h>

const char *gb_status_name(int status)
{
    switch (status) {
    case GB_OK: return "OK";
#define X(name, code, message) case code: return #name;
    GB_STATUS_MAP(X)
#undef X
    default: return "?";
    }
}

const char *gb_status_message(int status)
{
    switch (status) {
    case GB_OK: return "ok";
#define X(name, code, message) case code: return message;
    GB_STATUS_MAP(X)
#undef X
    default: return "unknown status";
    }
}

int gb_fail(gb_error *err, int status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}
