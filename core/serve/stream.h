/* One request's way from tokens to an answer: text that leaves piece by piece, and when it ends. Bytes pass the stop strings
   (matched across tokens; held back only while the tail may still become one) and then the UTF-8 gate (whole characters
   only). Rule: the stop string that is complete first wins, the longest among equals, so the cut does not depend on how the
   text was split into tokens. */
#ifndef GB_SERVE_STREAM_H
#define GB_SERVE_STREAM_H

#include "core/flow/event.h"
#include "core/flow/sampling.h"
#include "core/serve/server.h"

/* What all streams of a server share. */
typedef struct gb_stream_shared {
    const gb_tokenizer *tokenizer;    /* NULL: no text */
    const int32_t *end_ids;
    uint32_t n_end_ids;
    size_t token_bytes_max;           /* of the longest token */
    char *scratch;                    /* [GB_STOP_STRING_BYTES + token_bytes_max] */
} gb_stream_shared;

typedef struct gb_stream {
    gb_sampling sampling;             /* the request's, copied */
    uint32_t n_banned;
    int32_t banned[GB_STOP_IDS_MAX + GB_SERVER_END_IDS_MAX];    /* what may not be sampled before min_tokens */
    int32_t stop_string_token[GB_STOP_STRINGS_MAX];            /* the special token spelled like it, or -1 */
    gb_utf8_stream utf8;
    uint32_t n_held;
    char held[GB_STOP_STRING_BYTES];  /* the tail that is the beginning of a stop string */
} gb_stream;

typedef struct gb_stream_verdict {
    gb_finish finish;                 /* GB_FINISH_NONE: go on */
    int32_t stop_token, stop_string;  /* -1 unless they ended it */
} gb_stream_verdict;

/* Most text one token can release, with what was held before it. */
size_t gb_stream_text_max(const gb_stream_shared *shared);

void gb_stream_open(gb_stream *stream, const gb_stream_shared *shared, const gb_sampling *sampling);

/* Takes the token that is number `generated` (1-based) of the completion; writes the text that may leave now. */
gb_stream_verdict gb_stream_push(gb_stream *stream, const gb_stream_shared *shared, int32_t token, uint32_t generated,
                          char *text, size_t *text_bytes);

/* Writes what was held back (nothing after a stop string) and empties the stream; returns the bytes. */
size_t gb_stream_close(gb_stream *stream, char *text);

#endif
