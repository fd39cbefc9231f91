/* The loop that serves: owns the clock, the timer, the worker and the connections, and pumps rounds and events between the
   serving core, the executor and the RPC service. The clock is read when a turn begins and when it wakes, so every decision
   of a turn sees one time. The thread that calls gb_driver_run owns the server, the Lua state and the sockets; the executor
   runs on the worker's thread. */
#ifndef GB_UV_DRIVER_H
#define GB_UV_DRIVER_H

#include "bindings/rpc/service.h"

typedef struct gb_driver gb_driver;

typedef struct gb_driver_options {
    gb_time shutdown_timeout;      /* how long a shutdown waits for open requests */
    gb_time stats_every;           /* a line of statistics while busy; GB_NEVER = none */
    const char *api_key;           /* as gb_rpc_service_options; borrowed */
    const char *admin_token;
    const char *executable;        /* the gimbal command, which checks policies in processes of their own; NULL = nobody does. Borrowed */
    bool checks_loads;             /* as gb_rpc_service_options */
    const char *watched_dir;       /* policies that are loaded anew when their file changes; NULL = none. Borrowed until gb_driver_new is back */
} gb_driver_options;

/* The instance is borrowed for the driver's life. SIGPIPE is ignored from now on. */
int  gb_driver_new(gb_driver **out, gb_instance *instance, const gb_driver_options *options, gb_error *err);
void gb_driver_free(gb_driver *driver);

int gb_driver_listen_unix(gb_driver *driver, const char *path, gb_error *err);
int gb_driver_listen_tcp(gb_driver *driver, const char *host, uint16_t port, uint16_t *bound, gb_error *err);

/* SIGTERM and SIGINT shut the driver down, a second one at once; SIGUSR2 is the red
   button: the built-in policy decides everything; SIGHUP is reserved and ignored. */
int gb_driver_catch_signals(gb_driver *driver, gb_error *err);

/* Serves until it is shut down. Returns 0, or the status of an executor that died. */
int gb_driver_run(gb_driver *driver);

/* Begins a shutdown: nothing new is accepted, clients get goaway, open requests may end within shutdown_timeout and are
   aborted then. The second call aborts them now. From callbacks of the loop; from another thread use gb_driver_wake. */
void gb_driver_shutdown(gb_driver *driver);

/* The one function for any thread: asks the loop to call gb_driver_shutdown. */
void gb_driver_wake(gb_driver *driver);

#endif
