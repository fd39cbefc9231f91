/* A model file that is cut short while it is mapped makes the kernel send SIGBUS. Between start and stop, that ends the
   process with GB_EXIT_DATA and a sentence naming the file instead of a crash. */
#ifndef GB_CLI_MAP_GUARD_H
#define GB_CLI_MAP_GUARD_H

void gb_map_guard_start(void);
void gb_map_guard_stop(void);

#endif
