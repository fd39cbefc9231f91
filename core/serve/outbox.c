#include "core/serve/outbox.h"

#include "core/base/status.h"

int gb_outbox_init(gb_outbox *outbox, gb_arena *arena, uint32_t ends, uint32_t round_tokens, size_t text_max)
{
    uint32_t capacity = ends + 2 * round_tokens + 1;    /* 1: an end that was polled is still lent while its slot is taken again */
    *outbox = (gb_outbox){.ring = {.capacity = capacity}, .round_tokens = round_tokens, .text_max = text_max};
    outbox->events = GB_ARENA_NEW(arena, gb_event, capacity);
    outbox->logprobs = GB_ARENA_NEW(arena, gb_logprobs, capacity);
    outbox->text = gb_arena_take(arena, capacity, text_max);
    return outbox->events && outbox->logprobs && outbox->text ? GB_OK : GB_ENOMEM;
}

gb_event *gb_outbox_add(gb_outbox *outbox, gb_event_kind kind)
{
    uint32_t place = gb_ring_push(&outbox->ring);
    gb_event *event = &outbox->events[place];
    *event = (gb_event){.kind = kind, .token = -1, .stop_token = -1, .stop_string = -1,
                        .text = outbox->text + (size_t)place * outbox->text_max};
    outbox->tokens += kind == GB_EVENT_TOKEN;
    return event;
}

void gb_outbox_attach_logprobs(gb_outbox *outbox, gb_event *event, const gb_logprobs *logprobs)
{
    gb_logprobs *own = &outbox->logprobs[event - outbox->events];
    *own = *logprobs;
    event->logprobs = own;
}

bool gb_outbox_poll(gb_outbox *outbox, gb_event *event)
{
    if (outbox->lent) {
        gb_event *last = &outbox->events[gb_ring_pop(&outbox->ring)];
        outbox->tokens -= last->kind == GB_EVENT_TOKEN;
        outbox->lent = false;
    }
    if (outbox->ring.count == 0) return false;
    *event = outbox->events[gb_ring_place(&outbox->ring, 0)];
    outbox->lent = true;
    return true;
}

bool gb_outbox_has_room_for_a_round(const gb_outbox *outbox) { return outbox->tokens <= outbox->round_tokens; }
