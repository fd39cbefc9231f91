/* Where log lines go: standard error, one write a line, as text or JSON. A reader that does not keep up costs lines, never
   time: what does not fit is dropped and counted, and the next line that fits says how many were lost. Any thread. */
#ifndef GB_CLI_LOG_LINES_H
#define GB_CLI_LOG_LINES_H

#include <stdbool.h>

#include "core/base/log.h"

/* level and format as the options log_level and log_format take them. Before any thread starts. */
void gb_log_lines_start(const char *level, const char *format);

/* Writes one line as the sink would, to a descriptor; for tests. False when it was dropped. */
bool gb_log_lines_write(int fd, bool json, gb_log_level level, const char *line);

#endif
