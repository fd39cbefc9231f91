/* Status codes. Every fallible function returns 0 or one of these negative codes; paths a user can trip over also
   fill a gb_error with a sentence that names the thing and the remedy. One table makes codes, names and messages. */
#ifndef GB_BASE_STATUS_H
#define GB_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#define GB_STATUS_MAP(X) \
    X(EINVAL, -1, "invalid argument") \
    X(ENOMEM, -2, "out of memory") \
    X(EFULL, -3, "a queue or pool is full") \
    X(ENOTFOUND, -4, "not found") \
    X(EEXIST, -5, "already exists") \
    X(ECONTEXT, -6, "longer than the context") \
    X(EDEADLINE, -7, "deadline passed") \
    X(EABORTED, -8, "aborted") \
    X(EDRAINING, -9, "draining: no new work is accepted") \
    X(EDOWN, -10, "the engine is down") \
    X(ESLOW, -11, "the reader is too slow") \
    X(ETOOBIG, -12, "over a size limit") \
    X(EFORMAT, -13, "malformed data") \
    X(EIO, -14, "input or output failed") \
    X(EUNSUPPORTED, -15, "not supported") \
    X(EPOLICY, -16, "the policy was rejected") \
    X(EVERSION, -17, "version conflict") \
    X(EINTERNAL, -18, "internal error")

enum {
    GB_OK = 0,
#define X(name, code, message) GB_##name = code,
    GB_STATUS_MAP(X)
#undef X
};

/* A sentence for the user. Zero-initialise; text is always terminated. */
typedef struct gb_error {
    char text[2048];
} gb_error;

const char *gb_status_name(int status);    /* "EINVAL"; "OK" for 0; "?" when unknown */
const char *gb_status_message(int status);

/* Writes the sentence (err may be NULL) and returns status, so that a caller can `return gb_fail(err, GB_EINVAL, ...)`. */
int gb_fail(gb_error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
