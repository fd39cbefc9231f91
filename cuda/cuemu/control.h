/* How tests steer the emulator (plain C, any thread). The same settings come from the environment, read once at the first call:

       CUEMU_ORDER=ascending|descending|random|warp_random   in which order the threads of a block run
       CUEMU_STREAMS=eager|lazy|others_first                 when queued work runs: at once; only when somebody waits for it;
                                                             after all that other streams can do
       CUEMU_SEED=1        CUEMU_DEVICES=1      CUEMU_MEMORY_MB=8192 (of each device)
       CUEMU_PATIENCE_MS=10000                               how long others may do nothing before a wait that they could end is reported

   A process with reports that nobody cleared ends with status CUEMU_EXIT_STATUS, whatever else it did. */
#ifndef GB_CUEMU_CONTROL_H
#define GB_CUEMU_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUEMU_EXIT_STATUS = 86, CUEMU_MAX_DEVICES = 16 };

typedef enum cuemu_order { CUEMU_ASCENDING, CUEMU_DESCENDING, CUEMU_RANDOM, CUEMU_WARP_RANDOM } cuemu_order;
typedef enum cuemu_streams { CUEMU_EAGER, CUEMU_LAZY, CUEMU_OTHERS_FIRST } cuemu_streams;

void cuemu_set_order(cuemu_order order, uint64_t seed);
void cuemu_set_streams(cuemu_streams mode);
void cuemu_set_devices(int n);                       /* 0: no GPU, as a machine without a driver answers */
void cuemu_set_memory(size_t bytes);                 /* of each device */
void cuemu_set_patience_ms(unsigned ms);

/* Whether kernels of this program report every load and store (built with -fsanitize=thread). */
int cuemu_tracks(void);

/* Reports so far, their text, and forgetting both. The text is valid until the next emulator call. */
unsigned cuemu_reports(void);
const char *cuemu_report_text(void);
void cuemu_clear_reports(void);
void cuemu_quiet(int quiet);                         /* keep reports off stderr */

/* The call of that runtime, NCCL or cuBLAS function that follows `after` others returns status and does nothing. */
void cuemu_fail_call(const char *function, unsigned after, int status);

#ifdef __cplusplus
}
#endif

#endif
