/* Events on their way out: a bounded ring, each place with its own text. Ends always find room, because a request's slot is
   not given back before its end was polled; tokens find room because no round starts while more than one round's tokens are
   still here. The event polled last stays valid until the next poll. */
#ifndef GB_SERVE_OUTBOX_H
#define GB_SERVE_OUTBOX_H

#include "core/base/arena.h"
#include "core/base/ring.h"
#include "core/flow/event.h"

typedef struct gb_outbox {
    gb_ring ring;
    bool lent;                  /* the first event was polled and lives until the next poll */
    uint32_t tokens;            /* TOKEN events in the ring */
    uint32_t round_tokens;      /* most TOKEN events one round makes */
    gb_event *events;           /* [capacity] */
    gb_logprobs *logprobs;      /* [capacity] */
    char *text;                 /* [capacity][text_max] */
    size_t text_max;
} gb_outbox;

/* Room for `ends` ends and the tokens of two rounds; GB_ENOMEM. */
int gb_outbox_init(gb_outbox *outbox, gb_arena *arena, uint32_t ends, uint32_t round_tokens, size_t text_max);

/* A zeroed event at the end of the ring, with text pointing at text_max bytes of its own. */
gb_event *gb_outbox_add(gb_outbox *outbox, gb_event_kind kind);
void      gb_outbox_attach_logprobs(gb_outbox *outbox, gb_event *event, const gb_logprobs *logprobs);

bool gb_outbox_poll(gb_outbox *outbox, gb_event *event);
bool gb_outbox_has_room_for_a_round(const gb_outbox *outbox);

#endif
