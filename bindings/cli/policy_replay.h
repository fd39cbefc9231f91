/* gimbal policy check --replay SNAP FILE: decides again what a hook saw when it failed. */
#ifndef GB_CLI_POLICY_REPLAY_H
#define GB_CLI_POLICY_REPLAY_H

#include <stdbool.h>

/* snapshot: a file with a snapshot or with the answer of policy_log for one fault, or "-" for standard input. Prints what the script
   in path does with it (or JSON) to standard output. Returns the exit code: 0 when it decides, 1 when it fails or is refused, 65 when
   the snapshot cannot be used. */
int gb_policy_replay(const char *snapshot, const char *path, bool json);

#endif
