#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>

static gb_log_sink *log_sink;
static void *log_self;
static gb_log_level log_lowest = GB_LOG_INFO;

void gb_log_set_sink(gb_log_sink *sink, void *self, gb_log_level lowest)
{
    log_sink = sink;
    log_self = self;
    log_lowest = lowest;
}

void gb_log(gb_log_level level, const char *format, ...)
{
    if (!log_sink || level < log_lowest) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_sink(log_self, level, line);
}
