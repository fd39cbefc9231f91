/* A blocking connection to a running server for the commands that need one: JSON trees in, JSON trees out, msgpack between.
   One thread. */
#ifndef GB_CLI_REMOTE_H
#define GB_CLI_REMOTE_H

#include <jansson.h>

#include "bindings/cli/command.h"

/* Where the server is; the flags of every command that talks to one. */
typedef struct gb_remote_flags {
    const char *socket, *host, *key_file;
    int64_t port;
} gb_remote_flags;

/* For a struct that has gb_remote_flags as its member `remote`. */
#define GB_REMOTE_FLAGS(type) \
    {{"flags", "socket", GB_OPTION_STRING, "", 0, 0, "PATH", \
      "the server's Unix socket (default: $GIMBAL_SOCKET, else where gimbal serve listens by default)"}, offsetof(type, remote.socket)}, \
    {{"flags", "host", GB_OPTION_STRING, "127.0.0.1", 0, 0, "ADDR", "the server's address, with --port"}, offsetof(type, remote.host)}, \
    {{"flags", "port", GB_OPTION_INT, "0", 0, 65535, "PORT", "the server's TCP port; 0 uses the socket"}, offsetof(type, remote.port)}, \
    {{"flags", "key_file", GB_OPTION_STRING, "", 0, 0, "FILE", "present the key or admin token in this file"}, offsetof(type, remote.key_file)}

typedef struct gb_remote gb_remote;

/* What the server sent: the answer to a call (result or error set), or a notification (method set). Free with
   gb_remote_message_clear. */
typedef struct gb_remote_message {
    uint32_t msgid;
    json_t *error, *result;        /* of an answer; error NULL = it worked */
    const char *method;            /* of a notification; lives as long as params */
    json_t *params;
    json_t *whole;                 /* the message they are parts of */
} gb_remote_message;

/* Connects and says hello. GB_EIO when nobody listens, GB_EINVAL for wrong flags or key. */
int  gb_remote_open(gb_remote **out, const gb_remote_flags *flags, gb_error *err);
void gb_remote_close(gb_remote *remote);

int  gb_remote_send(gb_remote *remote, const char *method, const json_t *params, uint32_t *msgid, gb_error *err);
int  gb_remote_receive(gb_remote *remote, gb_remote_message *message, gb_error *err);    /* waits; GB_EIO when the server is gone */
void gb_remote_message_clear(gb_remote_message *message);

/* Sends and waits for the answer, passing over notifications. *result is new. A refused call is GB_EABORTED with the server's
   sentence. params is taken. */
int gb_remote_call(gb_remote *remote, const char *method, json_t *params, json_t **result, gb_error *err);

/* The error object of an answer as a sentence; returns GB_EABORTED. */
int gb_remote_refused(const json_t *error, gb_error *err);

/* Exit code of a command that failed while talking to a server; prints the sentence. */
int gb_remote_failed(int status, const gb_error *err);

#endif
