#include "core/serve/outbox.h"

#include "tests/check.h"

static gb_arena arena;
static gb_outbox outbox;
static gb_event event;

static void start(void)
{
    gb_arena_init(&arena);
    CHECK_EQ(gb_outbox_init(&outbox, &arena, 2, 3, 8), 0);
}

static void stop(void) { gb_arena_deinit(&arena); }

static void say(gb_event_kind kind, const char *text)
{
    gb_event *e = gb_outbox_add(&outbox, kind);
    e->text_bytes = strlen(text);
    memcpy((char *)e->text, text, strlen(text));
}

static void events_leave_in_order_with_their_own_text(void)
{
    start();
    say(GB_EVENT_TOKEN, "one");
    say(GB_EVENT_TOKEN, "two");
    say(GB_EVENT_DONE, "");
    CHECK(gb_outbox_poll(&outbox, &event));
    CHECK(event.text_bytes == 3 && memcmp(event.text, "one", 3) == 0);
    CHECK(gb_outbox_poll(&outbox, &event));
    CHECK(memcmp(event.text, "two", 3) == 0);
    CHECK(gb_outbox_poll(&outbox, &event));
    CHECK_EQ(event.kind, GB_EVENT_DONE);
    CHECK(!gb_outbox_poll(&outbox, &event));
    stop();
}

static void a_polled_event_lives_until_the_next_poll(void)
{
    start();
    say(GB_EVENT_TOKEN, "one");
    CHECK(gb_outbox_poll(&outbox, &event));
    for (int i = 0; i < 8; i++) say(i < 5 ? GB_EVENT_TOKEN : GB_EVENT_DONE, "xxxxxxxx");
    CHECK(memcmp(event.text, "one", 3) == 0);
    CHECK(gb_ring_full(&outbox.ring));
    stop();
}

static void a_round_has_room_while_at_most_one_rounds_tokens_wait(void)
{
    start();
    CHECK(gb_outbox_has_room_for_a_round(&outbox));
    for (int i = 0; i < 3; i++) say(GB_EVENT_TOKEN, "");
    CHECK(gb_outbox_has_room_for_a_round(&outbox));
    say(GB_EVENT_TOKEN, "");
    CHECK(!gb_outbox_has_room_for_a_round(&outbox));
    gb_outbox_poll(&outbox, &event);
    CHECK(!gb_outbox_has_room_for_a_round(&outbox));    /* lent, not gone */
    gb_outbox_poll(&outbox, &event);
    CHECK(gb_outbox_has_room_for_a_round(&outbox));
    stop();
}

static void logprobs_are_copied_beside_the_event(void)
{
    gb_logprobs logprobs = {.chosen = -0.5f, .n = 1, .ids = {4}, .values = {-0.25f}};
    start();
    gb_outbox_attach_logprobs(&outbox, gb_outbox_add(&outbox, GB_EVENT_TOKEN), &logprobs);
    say(GB_EVENT_TOKEN, "");
    logprobs.chosen = 0;
    CHECK(gb_outbox_poll(&outbox, &event));
    CHECK(event.logprobs && event.logprobs->chosen == -0.5f && event.logprobs->ids[0] == 4);
    CHECK(gb_outbox_poll(&outbox, &event));
    CHECK(event.logprobs == NULL);
    stop();
}

/* Polling an end frees its request's slot, so one more end may come while the polled one is still lent. */
static void a_lent_end_leaves_room_for_every_live_request_s_end(void)
{
    start();
    for (int i = 0; i < 6; i++) say(GB_EVENT_TOKEN, "");
    for (int i = 0; i < 2; i++) say(GB_EVENT_DONE, "");
    while (event.kind == GB_EVENT_TOKEN || outbox.ring.count == 8) gb_outbox_poll(&outbox, &event);
    for (int i = 0; i < 6; i++) say(GB_EVENT_TOKEN, "");
    say(GB_EVENT_DONE, "");
    CHECK(gb_ring_full(&outbox.ring));
    stop();
}

TESTS(TEST(a_lent_end_leaves_room_for_every_live_request_s_end), TEST(events_leave_in_order_with_their_own_text), TEST(a_polled_event_lives_until_the_next_poll),
      TEST(a_round_has_room_while_at_most_one_rounds_tokens_wait), TEST(logprobs_are_copied_beside_the_event))
