#include "core/model/utf8.h"

#include <string.h>

#include "core/model/tokenizer.h"

static const char REPLACEMENT[] = "\xef\xbf\xbd";
enum { REPLACEMENT_BYTES = 3 };

/* ---- characters ---- */

/* Bytes that a lead byte announces; 0 when it cannot lead. */
static size_t length_of(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead >= 0xe0 && lead <= 0xef) return 3;
    if (lead >= 0xf0 && lead <= 0xf4) return 4;
    return 0;
}

/* Whether byte may follow `held` bytes that begin with lead: the second byte excludes overlong forms, surrogates and what
   lies beyond U+10FFFF. */
static bool continues(unsigned char lead, size_t held, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xbf;
    if (held == 1) {
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    }
    return byte >= low && byte <= high;
}

size_t gb_utf8_decode(int32_t *character, const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t length = n ? length_of(s[0]) : 0;
    if (!length || length > n) return 0;
    int32_t c = length == 1 ? s[0] : s[0] & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        if (!continues(s[0], i, s[i])) return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    *character = c;
    return length;
}

size_t gb_utf8_encode(char out[4], int32_t character)
{
    uint32_t c = (uint32_t)character;
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char LEADS[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(LEADS[length] | c);
    return length;
}

size_t gb_utf8_check(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        int32_t c;
        size_t length = gb_utf8_decode(&c, text + at, n - at);
        if (!length) return at;
        at += length;
    }
    return n;
}

bool gb_utf8_is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* ---- streams ---- */

static size_t replace(char *out)
{
    memcpy(out, REPLACEMENT, REPLACEMENT_BYTES);
    return REPLACEMENT_BYTES;
}

size_t gb_utf8_push(gb_utf8_stream *stream, const char *bytes, size_t n, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (stream->n_held && !continues(stream->held[0], stream->n_held, byte)) {
            stream->n_held = 0;    /* a maximal part of a character that does not go on */
            written += replace(out + written);
        }
        if (!stream->n_held && !length_of(byte)) {
            written += replace(out + written);
            continue;
        }
        stream->held[stream->n_held++] = byte;
        if (stream->n_held < length_of(stream->held[0])) continue;
        memcpy(out + written, stream->held, stream->n_held);
        written += stream->n_held;
        stream->n_held = 0;
    }
    return written;
}

size_t gb_utf8_flush(gb_utf8_stream *stream, char *out)
{
    if (!stream->n_held) return 0;
    stream->n_held = 0;
    return replace(out);
}
