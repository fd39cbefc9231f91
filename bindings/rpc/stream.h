/* A generation on its way to a client: as notifications with credit, or collected into one result.

   Order: the response to generate is written before the stream exists for events, token events carry a gapless seq, and
   exactly one of done and failed ends it. Credit: at most `window` token events are unacknowledged; what comes meanwhile
   is joined into the next event. A stream that cannot send for GB_RPC_STREAM_BYTES of text and then slow_reader of time,
   or whose connection holds GB_RPC_BACKLOG_BYTES, ends with SLOW_READER. A connection owns its streams; a detached one
   outlives it, unheard. */
#ifndef GB_RPC_STREAM_H
#define GB_RPC_STREAM_H

#include "bindings/rpc/method.h"

enum {
    GB_RPC_STREAMS_MAX = 1024,           /* of one connection */
    GB_RPC_WHOLE_BYTES = 8 << 20,        /* collected for the whole results of one connection */
};

typedef struct gb_rpc_stream {
    struct gb_rpc_stream *next, *previous;    /* of the connection */
    struct gb_rpc_stream *next_in_bucket;
    gb_rpc_service *service;
    gb_rpc_conn *conn;                        /* NULL: detached and unheard */
    gb_request_id id;
    char request_id[GB_RPC_REQUEST_ID_MAX + 1];
    bool detach;
    bool whole;                               /* one result at the end, as the answer to msgid */
    uint32_t msgid;
    uint32_t window, unacked;
    uint64_t seq;
    gb_pack text, tokens, logprobs;           /* not sent yet: bytes, packed integers, packed maps */
    uint32_t n_tokens, n_logprobs;
    bool ended;                               /* the serving core is done with it: end says how */
    gb_event end;
    gb_time starved_at;                       /* since when it has been full (or ended) without credit; GB_NEVER = it is not */
} gb_rpc_stream;

typedef struct gb_rpc_stream_options {
    const char *request_id;
    bool detach, whole;
    uint32_t msgid, window;
} gb_rpc_stream_options;

/* NULL without memory. The request id must be free. */
gb_rpc_stream *gb_rpc_stream_new(gb_rpc_conn *conn, gb_request_id id, const gb_rpc_stream_options *options);
gb_rpc_stream *gb_rpc_stream_find(gb_rpc_service *service, const char *request_id);
gb_rpc_stream *gb_rpc_stream_of(gb_rpc_service *service, gb_request_id id);

void gb_rpc_stream_event(gb_rpc_stream *stream, const gb_event *event);
void gb_rpc_stream_ack(gb_rpc_stream *stream, uint64_t n, gb_time now);
void gb_rpc_stream_tick(gb_rpc_stream *stream, gb_time now);

/* Ends it now with failed (or an error answer) and cancels what the core still does for it; frees the stream. */
void gb_rpc_stream_stop(gb_rpc_stream *stream, int code, const char *sentence, gb_time now);
/* Its connection goes: cancelled and freed, or detached. */
void gb_rpc_stream_orphan(gb_rpc_stream *stream, gb_time now);
void gb_rpc_stream_free(gb_rpc_stream *stream);

#endif
