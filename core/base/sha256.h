/* SHA-256 (FIPS 180-4), to name texts by their contents: a policy version, a journal, a manifest. Not for secrets. */
#ifndef GB_BASE_SHA256_H
#define GB_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { GB_SHA256_BYTES = 32, GB_SHA256_HEX = 64 };

void gb_sha256(uint8_t digest[GB_SHA256_BYTES], const void *data, size_t bytes);
void gb_sha256_hex(char hex[GB_SHA256_HEX + 1], const void *data, size_t bytes);    /* lower case, terminated */

#endif
