/* What a gang (gang.h) and its ranks (follower.h) write to each other: messages of plain data over a pair of sockets. Both ends are one build
   on one machine, so structs travel as they are in memory. A message is a header and a body whose pieces begin at multiples of 8 bytes;
   whoever reads checks every length, and a message that is too short gives zeros and is `cut`.

   Each rank has three pairs, so that no kind of message waits behind another:

       rounds     the ops of rounds, answered in order; many may stand in one write
       copies     bytes of experts, beside rounds
       control    to a rank: the sentence with which to give up; from the process of a rank: its log lines. Datagrams. */
#ifndef GB_CUDA_WIRE_H
#define GB_CUDA_WIRE_H

#include "core/base/time.h"
#include "core/forward/ops.h"

typedef enum gb_wire_kind {
    GB_WIRE_OPEN,
    GB_WIRE_EMBED, GB_WIRE_COMPACT, GB_WIRE_NORM, GB_WIRE_ATTENTION, GB_WIRE_MLP, GB_WIRE_ROUTER, GB_WIRE_MAP, GB_WIRE_DISPATCH,
    GB_WIRE_EXPERTS, GB_WIRE_COMBINE, GB_WIRE_HEAD, GB_WIRE_SAMPLE, GB_WIRE_FINISH, GB_WIRE_READ,
    GB_WIRE_FORGET,    /* counts that are kept: another rank's went with its round */
    GB_WIRE_CLOSE,
    GB_WIRE_COPY, GB_WIRE_SEND, GB_WIRE_RECEIVE, GB_WIRE_CHECKSUM,
    GB_WIRE_ANSWER,    /* a status, and a sentence where it is not 0, or what was asked for */
    GB_WIRE_ALIVE,     /* the rank is at work on what it was asked */
    GB_WIRE_KINDS
} gb_wire_kind;

enum { GB_WIRE_ROUNDS, GB_WIRE_COPIES, GB_WIRE_CONTROL, GB_WIRE_PAIRS };

enum {
    GB_WIRE_BYTES_MAX = 1 << 30,    /* of one message; a longer one is damage */
    GB_WIRE_READ_BYTES = 1 << 16,   /* taken from a socket at once, if there are so many */
};

gb_time gb_wire_now(void);

/* --- writing. A buffer grows to the largest that was ever needed; `failed` when memory ended. --- */

typedef struct gb_wire_buffer {
    char *bytes;
    size_t n, capacity, began;    /* began: the open message */
    bool failed;
} gb_wire_buffer;

void gb_wire_free(gb_wire_buffer *out);
void gb_wire_begin(gb_wire_buffer *out, gb_wire_kind kind);    /* ends the message before */
void *gb_wire_room(gb_wire_buffer *out, size_t count, size_t size);    /* zeroed; NULL when memory ended */
void gb_wire_put(gb_wire_buffer *out, const void *from, size_t count, size_t size);
void gb_wire_put_numbers(gb_wire_buffer *out, uint32_t a, uint32_t b);

/* Writes all messages, which stay in the buffer until it is cleared. GB_EDOWN when the other side is gone, GB_EDEADLINE, GB_ENOMEM for a
   buffer that failed. */
int gb_wire_send(int socket, gb_wire_buffer *out, gb_time deadline);
void gb_wire_clear(gb_wire_buffer *out);

/* --- reading --- */

typedef struct gb_wire_reader {
    int socket;
    gb_wire_buffer bytes;    /* n = read so far */
    size_t at;               /* where the next message begins */
} gb_wire_reader;

typedef struct gb_wire_message {
    gb_wire_kind kind;
    const char *at, *end;
    bool cut;
} gb_wire_message;

/* Takes the next message if it is there whole. */
bool gb_wire_next(gb_wire_reader *in, gb_wire_message *m);
/* Reads what the socket has, once. GB_EDOWN at its end, GB_EFORMAT for damage, GB_ENOMEM. */
int gb_wire_fill(gb_wire_reader *in);
/* The next message, which lives until the next call for this reader. Also GB_EDEADLINE. */
int gb_wire_receive(gb_wire_reader *in, gb_wire_message *m, gb_time deadline);

const void *gb_wire_view(gb_wire_message *m, size_t count, size_t size);    /* in place, 8-byte aligned; NULL when cut */
void gb_wire_get(gb_wire_message *m, void *to, size_t count, size_t size);
void gb_wire_get_numbers(gb_wire_message *m, uint32_t *a, uint32_t *b);

/* --- what ops are asked about --- */

/* 32-bit words of a row of what gb_ops_read copies out. */
size_t gb_wire_words(const gb_ops_info *info, gb_readable what);

/* Rows that came by wire, in memory of their own. */
typedef struct gb_wire_rows {
    gb_row_set set;
    uint32_t *from;          /* [n_spans] of a compaction, else NULL */
    gb_wire_buffer memory;
} gb_wire_rows;

void gb_wire_put_rows(gb_wire_buffer *out, const gb_row_set *rows, const uint32_t *from);
int  gb_wire_get_rows(gb_wire_message *m, gb_wire_rows *rows, const gb_ops_limits *limits);    /* GB_EFORMAT, GB_ENOMEM */
void gb_wire_free_rows(gb_wire_rows *rows);

void gb_wire_put_placement(gb_wire_buffer *out, const gb_placement *p);
int  gb_wire_get_placement(gb_wire_message *m, gb_placement *p);    /* of the shape that p has; GB_EFORMAT */

/* A pick without its out, and of its work what the sampler looks at: tokens only where a penalty counts them. */
void gb_wire_put_pick(gb_wire_buffer *out, const gb_pick *pick);
/* Points into the message. */
void gb_wire_get_pick(gb_wire_message *m, uint32_t *logits_row, gb_work *work, gb_sampling *sampling);

#endif
