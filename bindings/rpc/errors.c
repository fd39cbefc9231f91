#include "bindings/rpc/errors.h"

#include <string.h>

const char *gb_rpc_error_name(int code)
{
    switch (code) {
#define X(name, value, when) case value: return #name;
        GB_RPC_ERRORS(X)
#undef X
    default: return "INTERNAL";
    }
}

int gb_rpc_error_of_status(int status)
{
    switch (status) {
    case GB_EINVAL:
    case GB_EEXIST:
    case GB_EFORMAT:
    case GB_EUNSUPPORTED: return GB_RPC_INVALID_PARAMS;
    case GB_EFULL: return GB_RPC_OVERLOADED;
    case GB_ENOTFOUND: return GB_RPC_NOT_FOUND;
    case GB_ECONTEXT: return GB_RPC_CONTEXT_LENGTH;
    case GB_EDEADLINE: return GB_RPC_DEADLINE;
    case GB_EABORTED: return GB_RPC_ABORTED;
    case GB_EDRAINING: return GB_RPC_DRAINING;
    case GB_EDOWN: return GB_RPC_ENGINE_DOWN;
    case GB_ESLOW: return GB_RPC_SLOW_READER;
    case GB_ETOOBIG: return GB_RPC_TOO_LARGE;
    case GB_EPOLICY: return GB_RPC_POLICY_REJECTED;
    case GB_EVERSION: return GB_RPC_VERSION_CONFLICT;
    default: return GB_RPC_INTERNAL;
    }
}

static void pack_data(gb_pack *out, const gb_rpc_error *error)
{
    gb_pack_str(out, "data");
    gb_pack_map(out, 1);
    if (error->path[0]) {
        gb_pack_str(out, "path");
        gb_pack_str(out, error->path);
    } else {
        gb_pack_str(out, "retry_after_ms");
        gb_pack_int(out, GB_RPC_RETRY_AFTER_MS);
    }
}

void gb_rpc_error_pack(gb_pack *out, const gb_rpc_error *error)
{
    bool has_data = error->path[0] || error->code == GB_RPC_OVERLOADED;
    gb_pack_map(out, has_data ? 4 : 3);
    gb_pack_str(out, "code");
    gb_pack_int(out, error->code);
    gb_pack_str(out, "name");
    gb_pack_str(out, gb_rpc_error_name(error->code));
    gb_pack_str(out, "message");
    gb_pack_str(out, error->sentence.text);
    if (has_data) pack_data(out, error);
}

const char *gb_rpc_echo(char *out, const char *text, size_t bytes)
{
    size_t n = bytes < 64 ? bytes : 64;
    for (size_t i = 0; i < n; i++) out[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    strcpy(out + n, bytes > n ? "..." : "");
    return out;
}
