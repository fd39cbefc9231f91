/* Checks policy scripts in processes of their own: `gimbal policy check --json -` with the script on standard input. Each has a
   deadline and may say so much; what takes longer or says more is killed. The loop never waits for one. */
#ifndef GB_UV_CHECKER_H
#define GB_UV_CHECKER_H

#include <uv.h>

#include "bindings/rpc/checker.h"

typedef struct gb_checker gb_checker;

enum { GB_CHECKER_DEADLINE_S = 30 };

/* executable: the gimbal command; borrowed. clock tells the time that gb_check_done gets. */
int  gb_checker_new(gb_checker **out, uv_loop_t *loop, const char *executable, gb_time deadline, gb_time (*clock)(void *self), void *self,
                    gb_error *err);
void gb_checker_close(gb_checker *checker);    /* kills what runs, calls no done; frees itself in a later turn of the loop */
const gb_checker_seam *gb_checker_seam_of(const gb_checker *checker);

#endif
