/* UTF-8, one character at a time. Pure. */
#ifndef GB_MODEL_UTF8_H
#define GB_MODEL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character at text[0 .. n): its bytes, or 0 when they are malformed or cut. */
size_t gb_utf8_decode(int32_t *character, const char *text, size_t n);

/* 1 to 4 bytes of a Unicode scalar value. */
size_t gb_utf8_encode(char out[4], int32_t character);

/* The first malformed byte of a text; n when there is none. */
size_t gb_utf8_check(const char *text, size_t n);

/* Unicode's White_Space. */
bool gb_utf8_is_space(int32_t character);

#endif
