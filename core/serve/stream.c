#include "core/serve/stream.h"

#include <string.h>

#include "core/base/assert.h"

static bool contains(const int32_t *ids, uint32_t n, int32_t token)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == token) return true;
    return false;
}

/* 3: U+FFFD for a byte that is no character; the gate may hold 3 bytes of its own. */
size_t gb_stream_text_max(const gb_stream_shared *shared)
{
    return 3 * (GB_STOP_STRING_BYTES + shared->token_bytes_max + 4);
}

/* --- opening --- */

static void collect_banned(gb_stream *stream, const gb_stream_shared *shared)
{
    const gb_sampling *s = &stream->sampling;
    for (uint32_t i = 0; i < s->n_stop_ids; i++) stream->banned[stream->n_banned++] = s->stop_ids[i];
    if (s->ignore_eos) return;
    for (uint32_t i = 0; i < shared->n_end_ids; i++) stream->banned[stream->n_banned++] = shared->end_ids[i];
}

/* A special token has no text, so a stop string that spells one is matched by id. */
static int32_t special_token_of(const gb_stream_shared *shared, const char *bytes, uint32_t n)
{
    char content[GB_STOP_STRING_BYTES + 1];
    if (memchr(bytes, 0, n)) return -1;
    memcpy(content, bytes, n);
    content[n] = 0;
    int32_t token = gb_tokenizer_find(shared->tokenizer, content);
    return token >= 0 && gb_tokenizer_is_special(shared->tokenizer, token) ? token : -1;
}

void gb_stream_open(gb_stream *stream, const gb_stream_shared *shared, const gb_sampling *sampling)
{
    stream->sampling = *sampling;
    stream->n_banned = 0;
    stream->utf8 = (gb_utf8_stream){0};
    stream->n_held = 0;
    collect_banned(stream, shared);
    for (uint32_t i = 0; i < sampling->n_stop_strings; i++)
        stream->stop_string_token[i] = special_token_of(shared, sampling->stop_strings[i], sampling->stop_string_bytes[i]);
}

/* --- stop strings --- */

/* The longest stop string that ends exactly where the held text ends; -1 = none. */
static int32_t completed(const gb_stream *stream)
{
    const gb_sampling *s = &stream->sampling;
    int32_t best = -1;
    for (uint32_t i = 0; i < s->n_stop_strings; i++) {
        uint32_t n = s->stop_string_bytes[i];
        if (n > stream->n_held || memcmp(stream->held + stream->n_held - n, s->stop_strings[i], n) != 0) continue;
        if (best < 0 || n > s->stop_string_bytes[best]) best = (int32_t)i;
    }
    return best;
}

static bool begins_a_stop_string(const gb_stream *stream, uint32_t from)
{
    const gb_sampling *s = &stream->sampling;
    uint32_t n = stream->n_held - from;
    for (uint32_t i = 0; i < s->n_stop_strings; i++)
        if (n < s->stop_string_bytes[i] && memcmp(stream->held + from, s->stop_strings[i], n) == 0) return true;
    return false;
}

/* Lets go of the first n held bytes. */
static void release(gb_stream *stream, char *out, size_t *n_out, uint32_t n)
{
    memcpy(out + *n_out, stream->held, n);
    *n_out += n;
    stream->n_held -= n;
    memmove(stream->held, stream->held + n, stream->n_held);
}

/* Byte by byte: held is always the longest tail that begins a stop string, so a complete one lies inside it. */
static int32_t match(gb_stream *stream, const char *bytes, size_t n, char *out, size_t *n_out)
{
    for (size_t i = 0; i < n; i++) {
        GB_ASSERT(stream->n_held < GB_STOP_STRING_BYTES);
        stream->held[stream->n_held++] = bytes[i];
        int32_t stop = completed(stream);
        if (stop >= 0) {
            uint32_t kept = stream->sampling.include_stop ? stream->sampling.stop_string_bytes[stop] : 0;
            release(stream, out, n_out, stream->n_held - stream->sampling.stop_string_bytes[stop] + kept);
            stream->n_held = 0;
            return stop;
        }
        uint32_t from = 0;
        while (from < stream->n_held && !begins_a_stop_string(stream, from)) from++;
        if (from > 0) release(stream, out, n_out, from);
    }
    return -1;
}

/* --- one token --- */

static gb_stream_verdict judge_id(const gb_stream *stream, const gb_stream_shared *shared, int32_t token)
{
    const gb_sampling *s = &stream->sampling;
    if (!s->ignore_eos && contains(shared->end_ids, shared->n_end_ids, token))
        return (gb_stream_verdict){GB_FINISH_STOP, token, -1};
    if (contains(s->stop_ids, s->n_stop_ids, token)) return (gb_stream_verdict){GB_FINISH_STOP, token, -1};
    return (gb_stream_verdict){GB_FINISH_NONE, -1, -1};
}

static int32_t special_stop_string(const gb_stream *stream, int32_t token)
{
    for (uint32_t i = 0; i < stream->sampling.n_stop_strings; i++)
        if (stream->stop_string_token[i] == token) return (int32_t)i;
    return -1;
}

/* The token's bytes that belong to the text; a token that ends the request by its id does not, unless asked for. */
static const char *visible_bytes(const gb_stream *stream, const gb_stream_shared *shared, int32_t token, bool ends, size_t *n)
{
    *n = 0;
    if (!shared->tokenizer || gb_tokenizer_is_special(shared->tokenizer, token)) return "";
    if (ends && !stream->sampling.include_stop) return "";
    const char *bytes = gb_tokenizer_bytes(shared->tokenizer, token, n);
    return bytes ? bytes : "";
}

gb_stream_verdict gb_stream_push(gb_stream *stream, const gb_stream_shared *shared, int32_t token, uint32_t generated,
                          char *text, size_t *text_bytes)
{
    const gb_sampling *s = &stream->sampling;
    gb_stream_verdict verdict = judge_id(stream, shared, token);
    size_t n, n_raw = 0;
    const char *bytes = visible_bytes(stream, shared, token, verdict.finish != GB_FINISH_NONE, &n);
    bool matching = s->n_stop_strings > 0 && generated > s->min_tokens;
    if (matching && verdict.finish == GB_FINISH_NONE) {
        verdict.stop_string = special_stop_string(stream, token);
        if (verdict.stop_string < 0) verdict.stop_string = match(stream, bytes, n, shared->scratch, &n_raw);
        if (verdict.stop_string >= 0) verdict.finish = GB_FINISH_STOP;
        *text_bytes = gb_utf8_push(&stream->utf8, shared->scratch, n_raw, text);
    } else {
        release(stream, shared->scratch, &n_raw, stream->n_held);
        *text_bytes = gb_utf8_push(&stream->utf8, shared->scratch, n_raw, text);
        *text_bytes += gb_utf8_push(&stream->utf8, bytes, n, text + *text_bytes);
    }
    if (verdict.finish == GB_FINISH_NONE && generated >= s->max_tokens) verdict.finish = GB_FINISH_LENGTH;
    return verdict;
}

size_t gb_stream_close(gb_stream *stream, char *text)
{
    size_t n = gb_utf8_push(&stream->utf8, stream->held, stream->n_held, text);
    stream->n_held = 0;
    return n + gb_utf8_flush(&stream->utf8, text + n);
}
