#include "bindings/rpc/frame.h"

#include <stdbool.h>
#include <string.h>

/* The formats 0xc0..0xdf: how many bytes of length follow, then of type (ext), then a fixed payload; what the length counts. */
typedef enum unit { NOTHING, BYTES, VALUES, PAIRS } unit;

static const struct format {
    uint8_t length_bytes, type_bytes, payload;
    unit counts;
} formats[32] = {
    {0, 0, 0, NOTHING}, {0, 0, 0, NOTHING}, {0, 0, 0, NOTHING}, {0, 0, 0, NOTHING},    /* nil, (never used), false, true */
    {1, 0, 0, BYTES}, {2, 0, 0, BYTES}, {4, 0, 0, BYTES},                              /* bin */
    {1, 1, 0, BYTES}, {2, 1, 0, BYTES}, {4, 1, 0, BYTES},                              /* ext */
    {0, 0, 4, NOTHING}, {0, 0, 8, NOTHING},                                            /* float 32, 64 */
    {0, 0, 1, NOTHING}, {0, 0, 2, NOTHING}, {0, 0, 4, NOTHING}, {0, 0, 8, NOTHING},    /* uint */
    {0, 0, 1, NOTHING}, {0, 0, 2, NOTHING}, {0, 0, 4, NOTHING}, {0, 0, 8, NOTHING},    /* int */
    {0, 1, 1, NOTHING}, {0, 1, 2, NOTHING}, {0, 1, 4, NOTHING}, {0, 1, 8, NOTHING}, {0, 1, 16, NOTHING},    /* fixext */
    {1, 0, 0, BYTES}, {2, 0, 0, BYTES}, {4, 0, 0, BYTES},                              /* str */
    {2, 0, 0, VALUES}, {4, 0, 0, VALUES}, {2, 0, 0, PAIRS}, {4, 0, 0, PAIRS},          /* array, map */
};

/* The head of one value: its own bytes, and what it announces. */
typedef struct head {
    size_t bytes;
    uint64_t payload, children;
    bool container;
} head;

static head fix_head(uint8_t first)
{
    if (first >= 0xa0 && first <= 0xbf) return (head){.bytes = 1, .payload = first & 0x1f};
    if (first >= 0x90 && first <= 0x9f) return (head){.bytes = 1, .children = first & 0x0f, .container = true};
    if (first >= 0x80 && first <= 0x8f) return (head){.bytes = 1, .children = 2u * (first & 0x0f), .container = true};
    return (head){.bytes = 1};
}

/* False when the head has not arrived whole. */
static bool read_head(head *h, const uint8_t *p, size_t n)
{
    if (n == 0) return false;
    if (p[0] < 0xc0 || p[0] > 0xdf) {
        *h = fix_head(p[0]);
        return true;
    }
    const struct format *f = &formats[p[0] - 0xc0];
    *h = (head){.bytes = 1u + f->length_bytes + f->type_bytes, .payload = f->payload};
    if (n < h->bytes) return false;
    uint64_t length = 0;
    for (uint32_t i = 0; i < f->length_bytes; i++) length = length << 8 | p[1 + i];
    if (f->counts == BYTES) h->payload = length;
    if (f->counts == VALUES || f->counts == PAIRS) {
        h->children = f->counts == PAIRS ? 2 * length : length;
        h->container = true;
    }
    return true;
}

void gb_frame_init(gb_frame *frame)
{
    *frame = (gb_frame){.open = 1, .values = 1};
    frame->left[0] = 1;
}

static gb_frame_state check_head(const gb_frame *f, const head *h, gb_error *err)
{
    if (h->container && f->depth == GB_RPC_DEPTH_MAX) {
        gb_fail(err, GB_EFORMAT, "the message nests deeper than %d levels", GB_RPC_DEPTH_MAX);
        return GB_FRAME_BAD;
    }
    uint64_t needed = f->at + h->bytes + h->payload + h->children + (f->open - 1);
    if (needed > GB_RPC_MESSAGE_MAX) {
        gb_fail(err, GB_ETOOBIG, "the message announces at least %llu bytes, more than the limit of %d",
                (unsigned long long)needed, GB_RPC_MESSAGE_MAX);
        return GB_FRAME_BAD;
    }
    if (f->values + h->children > GB_RPC_VALUES_MAX) {
        gb_fail(err, GB_ETOOBIG, "the message announces %llu values, more than the limit of %d",
                (unsigned long long)(f->values + h->children), GB_RPC_VALUES_MAX);
        return GB_FRAME_BAD;
    }
    return GB_FRAME_WHOLE;
}

/* One value begins: it is no longer open, its children are. Levels that have nothing left close. */
static void enter(gb_frame *f, const head *h)
{
    f->left[f->depth]--;
    f->open += h->children - 1;
    f->values += (uint32_t)h->children;
    if (h->children > 0) f->left[++f->depth] = (uint32_t)h->children;
    while (f->depth > 0 && f->left[f->depth] == 0) f->depth--;
}

gb_frame_state gb_frame_scan(gb_frame *frame, const void *bytes, size_t n, gb_error *err)
{
    const uint8_t *p = bytes;
    while (frame->open > 0) {
        if (frame->at >= n) return GB_FRAME_PART;    /* a payload may reach beyond what has arrived */
        if (p[frame->at] == 0xc1) {
            gb_fail(err, GB_EFORMAT, "byte %zu of the message is 0xc1, which msgpack never uses", frame->at);
            return GB_FRAME_BAD;
        }
        head h;
        if (!read_head(&h, p + frame->at, n - frame->at)) return GB_FRAME_PART;
        if (check_head(frame, &h, err) == GB_FRAME_BAD) return GB_FRAME_BAD;
        frame->at += h.bytes + h.payload;
        enter(frame, &h);
    }
    return frame->at <= n ? GB_FRAME_WHOLE : GB_FRAME_PART;
}
