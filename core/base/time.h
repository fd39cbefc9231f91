/* Time as an argument. Nothing below the drivers reads a clock: a gb_time is nanoseconds on whatever clock the driver
   owns (monotonic, virtual, or the literals of a test). */
#ifndef GB_BASE_TIME_H
#define GB_BASE_TIME_H

#include <stdint.h>

typedef uint64_t gb_time;

#define GB_NEVER UINT64_MAX

static inline gb_time gb_us(uint64_t us) { return us * 1000u; }
static inline gb_time gb_ms(uint64_t ms) { return ms * 1000000u; }
static inline gb_time gb_seconds(uint64_t s) { return s * 1000000000u; }
static inline double gb_to_ms(gb_time t) { return (double)t / 1e6; }
static inline gb_time gb_time_since(gb_time then, gb_time now) { return now > then ? now - then : 0; }
static inline gb_time gb_time_min(gb_time a, gb_time b) { return a < b ? a : b; }

#endif
