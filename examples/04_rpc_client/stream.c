/* One streaming request from C.

   usage: stream ADDRESS [PROMPT]
   build: cc -Ibindings/clients/c examples/04_rpc_client/stream.c bindings/clients/c/gimbal_client.c $(pkg-config --cflags --libs \
          $(pkg-config --exists msgpack-c && echo msgpack-c || echo msgpack)) -o stream */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gimbal_client.h"

static void fail(const gimbal_error *error)
{
    fprintf(stderr, "%s: %s\n", error->name, error->message);
    exit(1);
}

static void ask(gimbal_client *client, const char *prompt)
{
    gimbal_error error;
    msgpack_packer *params = gimbal_begin(client);
    msgpack_pack_map(params, 3);
    gimbal_pack_text(params, "prompt");
    gimbal_pack_text(params, prompt);
    gimbal_pack_text(params, "stream");
    msgpack_pack_true(params);
    gimbal_pack_text(params, "sampling");
    msgpack_pack_map(params, 1);
    gimbal_pack_text(params, "max_tokens");
    msgpack_pack_int(params, 60);
    if (gimbal_call(client, "generate", NULL, &error)) fail(&error);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: stream ADDRESS [PROMPT]\n");
        return 64;
    }
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
    gimbal_error error;
    gimbal_client *client;
    if (gimbal_open(&client, argv[1], NULL, &error)) fail(&error);
    ask(client, prompt);
    fputs(prompt, stdout);
    for (gimbal_event event;;) {
        if (gimbal_next(client, &event, &error)) fail(&error);
        if (strcmp(event.name, "token") != 0) break;    /* done or failed */
        size_t n;
        const char *text = gimbal_text(event.map, "text", &n);
        fwrite(text, 1, n, stdout);
        fflush(stdout);
    }
    puts("");
    gimbal_close(client);
    return 0;
}
