/* Any bytes through the frame scanner: at once, byte by byte, and as msgpack-c sees them. They agree on where a message ends,
   and what passes the scanner is within every limit. */
#include <msgpack.h>

#include "bindings/rpc/frame.h"
#include "core/base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static gb_frame_state scan_bytewise(gb_frame *frame, const uint8_t *data, size_t size)
{
    gb_error err;
    gb_frame_state state = GB_FRAME_PART;
    gb_frame_init(frame);
    for (size_t n = 0; n <= size && state == GB_FRAME_PART; n++) state = gb_frame_scan(frame, data, n, &err);
    return state;
}

static uint32_t depth_of(const msgpack_object *o);

static uint32_t deeper(uint32_t depth, const msgpack_object *child)
{
    uint32_t below = depth_of(child);
    return below > depth ? below : depth;
}

static uint32_t depth_of(const msgpack_object *o)
{
    uint32_t depth = 0;
    if (o->type != MSGPACK_OBJECT_ARRAY && o->type != MSGPACK_OBJECT_MAP) return 0;
    if (o->type == MSGPACK_OBJECT_ARRAY)
        for (uint32_t i = 0; i < o->via.array.size; i++) depth = deeper(depth, &o->via.array.ptr[i]);
    else
        for (uint32_t i = 0; i < o->via.map.size; i++) depth = deeper(deeper(depth, &o->via.map.ptr[i].key), &o->via.map.ptr[i].val);
    return depth + 1;
}

static void check_whole(const uint8_t *data, size_t message)
{
    msgpack_unpacked unpacked;
    size_t at = 0;
    msgpack_unpacked_init(&unpacked);
    GB_ASSERT(msgpack_unpack_next(&unpacked, (const char *)data, message, &at) == MSGPACK_UNPACK_SUCCESS && at == message);
    GB_ASSERT(depth_of(&unpacked.data) <= GB_RPC_DEPTH_MAX);
    msgpack_unpacked_destroy(&unpacked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gb_frame whole, bytewise;
    gb_error err = {0};
    gb_frame_init(&whole);
    gb_frame_state state = gb_frame_scan(&whole, data, size, &err);
    GB_ASSERT(scan_bytewise(&bytewise, data, size) == state);
    if (state == GB_FRAME_BAD) GB_ASSERT(err.text[0]);
    if (state != GB_FRAME_WHOLE) return 0;
    GB_ASSERT(whole.at == bytewise.at && whole.at <= size && whole.at <= GB_RPC_MESSAGE_MAX && whole.values <= GB_RPC_VALUES_MAX);
    check_whole(data, whole.at);
    return 0;
}
