/* gimbal policy check FILE: everything that can be said of a policy without a server. */
#ifndef GB_CLI_POLICY_CHECK_H
#define GB_CLI_POLICY_CHECK_H

#include <stdbool.h>

/* Prints a report (or JSON) to standard output. Returns the exit code: 0, or 1 when the policy would be refused or failed. */
int gb_policy_check(const char *path, bool json);

#endif
