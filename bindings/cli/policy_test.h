/* gimbal policy test FILE: runs the spec of a policy with busted and the author's kit that is in this binary. */
#ifndef GB_CLI_POLICY_TEST_H
#define GB_CLI_POLICY_TEST_H

#include <stdbool.h>

/* spec: NULL = the file beside it, mine_spec.lua for mine.lua. Returns the exit code: 0 when all pass, 1 when some fail, 65 when a file
   is missing, 69 when busted or luajit is not installed. */
int gb_policy_test(const char *path, const char *spec, bool json);

#endif
