#include "bindings/cli/place_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const uint64_t FILE_BYTES_MAX = UINT64_C(1) << 32;

static int open_dump(FILE **file, uint64_t *bytes, const char *path, gb_error *err)
{
    struct stat info;
    *file = fopen(path, "rbe");
    if (!*file) return gb_fail(err, GB_EIO, "%s cannot be opened: %s; gimbal place gen or gimbal place dump writes such a file", path, strerror(errno));
    bool plain = fstat(fileno(*file), &info) == 0 && S_ISREG(info.st_mode);
    *bytes = plain ? (uint64_t)info.st_size : 0;
    if (plain && *bytes <= FILE_BYTES_MAX) return GB_OK;
    fclose(*file);
    return gb_fail(err, GB_EIO, plain ? "%s: a window dump has at most 4 GiB" : "%s: not a plain file", path);
}

int gb_place_file_read(gb_dump *dump, gb_arena *arena, const char *path, gb_error *err)
{
    FILE *file;
    uint64_t n = 0;
    gb_error why = {{0}};
    int rc = open_dump(&file, &n, path, err);
    if (rc != GB_OK) return rc;
    void *bytes = malloc(n ? n : 1);
    uint64_t got = bytes ? fread(bytes, 1, n, file) : 0;
    fclose(file);
    if (!bytes) return gb_fail(err, GB_ENOMEM, "out of memory for %s", path);
    rc = gb_dump_read(dump, arena, bytes, got, &why);
    free(bytes);
    return rc == GB_OK ? GB_OK : gb_fail(err, rc, "%s: %s", path, why.text);
}

int gb_place_file_write(const gb_dump *dump, const char *path, gb_error *err)
{
    uint64_t n = gb_dump_bytes(dump);
    void *bytes = malloc(n);
    if (!bytes) return gb_fail(err, GB_ENOMEM, "out of memory for %s", path);
    gb_dump_write(dump, bytes);
    FILE *file = fopen(path, "wbe");
    bool whole = file && fwrite(bytes, 1, n, file) == n;
    int why = errno;
    if (file && fclose(file) != 0) whole = false, why = errno;
    free(bytes);
    return whole ? GB_OK : gb_fail(err, GB_EIO, "%s cannot be written: %s", path, strerror(why));
}
