/* A Unix socket at a path, made so that only its owner can connect and that two servers never take it from each other: a
   socket file whose server is gone is replaced, a live one is refused. Plain POSIX; no loop. */
#ifndef GB_UV_SOCKET_PATH_H
#define GB_UV_SOCKET_PATH_H

#include <stddef.h>

#include "core/base/status.h"

enum { GB_SOCKET_PATH_MAX = 107 };    /* bytes, as struct sockaddr_un has room for */

/* Binds a non-blocking, close-on-exec stream socket with mode 0600 and returns its descriptor in *fd; the caller listens. GB_ETOOBIG
   (path too long), GB_EEXIST (a live server, or a file that is no socket), GB_EIO. */
int gb_socket_path_bind(int *fd, const char *path, gb_error *err);

/* Where server and clients meet when nobody says where: $XDG_RUNTIME_DIR/gimbal.sock, else ~/.gimbal.sock. GB_ENOTFOUND
   without either. */
int gb_socket_path_default(char *path, size_t capacity);

#endif
