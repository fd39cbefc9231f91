/* Levelled log lines to one sink. The library writes nothing by itself: without a sink, lines vanish. The sink adds the
   time; it may be called from any thread and must not block. Prompts and keys are never logged. */
#ifndef GB_BASE_LOG_H
#define GB_BASE_LOG_H

typedef enum gb_log_level { GB_LOG_DEBUG, GB_LOG_INFO, GB_LOG_WARN, GB_LOG_ERROR } gb_log_level;

typedef void gb_log_sink(void *self, gb_log_level level, const char *line);

void gb_log_set_sink(gb_log_sink *sink, void *self, gb_log_level lowest);    /* before any thread starts */
void gb_log(gb_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
