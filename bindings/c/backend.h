/* Finds the backend that --backend names: the built-in cpu, or a plugin beside the program. The core links no GPU library and
   looks for a driver before it loads one, so that starting without a GPU costs nothing. Called by one thread, at start;
   a plugin that was loaded stays. */
#ifndef GB_C_BACKEND_H
#define GB_C_BACKEND_H

#include "core/forward/backend.h"

/* "cpu", "cuda" or "cuemu"; or "auto": cuda where it can run, else cpu with one line in the log that says why. directory = where
   plugins are, NULL = the program's own. GB_ENOTFOUND without library or driver, GB_EVERSION for a plugin of another build,
   GB_EUNSUPPORTED without a device; the sentence says what to do. */
int gb_backend_choose(const gb_backend **out, gb_backend_device *device, const char *name, const char *directory, gb_error *err);

/* The plugin of that name alone, without asking for a driver or a device. */
int gb_backend_load(const gb_backend **out, const char *name, const char *directory, gb_error *err);

#endif
