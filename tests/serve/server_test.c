#include "core/serve/server.h"

#include "tests/check.h"
#include "tests/serve/fake.h"

static fake f;
static gb_server *server;

static void start(const gb_server_options *options)
{
    gb_error err = {{0}};
    fake_init(&f, options);
    CHECK_EQ(gb_server_new(&server, options, &err), GB_OK);
    CHECK_STR(err.text, "");
}

static void stop(void)
{
    gb_server_check(server);
    gb_server_free(server);
    fake_deinit(&f);
}

static void start_default(void)
{
    gb_server_options o;
    fake_options(&o);
    start(&o);
}

static void a_request_walks_from_submit_to_done(void)
{
    gb_event event;
    start_default();
    gb_request request = fake_request(40, 3);
    request.tag = 77;
    gb_request_id id = fake_submit(server, &request, gb_ms(10));
    CHECK(fake_round(&f, server, gb_ms(20), gb_ms(30)));
    CHECK(fake_round(&f, server, gb_ms(30), gb_ms(40)));
    CHECK(fake_round(&f, server, gb_ms(40), gb_ms(50)));
    CHECK(!fake_round(&f, server, gb_ms(50), gb_ms(60)));
    int32_t known[43];
    memcpy(known, request.tokens, 40 * sizeof *known);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(gb_server_poll_event(server, &event));
        CHECK_EQ(event.kind, GB_EVENT_TOKEN);
        CHECK(event.id == id);
        CHECK_EQ(event.tag, 77);
        CHECK_EQ(event.index, i);
        CHECK_EQ(event.at, gb_ms(30 + 10 * i));
        known[40 + i] = fake_token(&f.options, known, 40 + i, 1);
        CHECK_EQ(event.token, known[40 + i]);
    }
    CHECK(gb_server_poll_event(server, &event));
    CHECK_EQ(event.kind, GB_EVENT_DONE);
    CHECK_EQ(event.finish, GB_FINISH_LENGTH);
    CHECK_EQ(event.usage.prompt_tokens, 40);
    CHECK_EQ(event.usage.completion_tokens, 3);
    CHECK_EQ(event.timings.queued, gb_ms(10));
    CHECK_EQ(event.timings.prefill, gb_ms(10));
    CHECK_EQ(event.timings.decode, gb_ms(20));
    CHECK_EQ(event.timings.total, gb_ms(40));
    CHECK(!gb_server_poll_event(server, &event));
    stop();
}

TESTS(TEST(a_request_walks_from_submit_to_done))
