/* Window dumps as files. */
#ifndef GB_CLI_PLACE_FILE_H
#define GB_CLI_PLACE_FILE_H

#include "core/moe/dump.h"

/* GB_EIO when the file cannot be read or written, GB_EFORMAT when it is no dump; both name the file. */
int gb_place_file_read(gb_dump *dump, gb_arena *arena, const char *path, gb_error *err);
int gb_place_file_write(const gb_dump *dump, const char *path, gb_error *err);

#endif
