/* Keys and tokens: kept as SHA-256 digests and compared in a time that does not depend on them. */
#ifndef GB_RPC_AUTH_H
#define GB_RPC_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/sha256.h"

bool gb_auth_matches(const uint8_t digest[GB_SHA256_BYTES], const void *secret, size_t bytes);

#endif
