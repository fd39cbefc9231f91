#include "bindings/rpc/auth.h"

bool gb_auth_matches(const uint8_t digest[GB_SHA256_BYTES], const void *secret, size_t bytes)
{
    uint8_t given[GB_SHA256_BYTES], different = 0;
    gb_sha256(given, secret, bytes);
    for (int i = 0; i < GB_SHA256_BYTES; i++) different |= given[i] ^ digest[i];
    return different == 0;
}
