/* A rank as its gang holds it: the gang's ends of the sockets, and the thread or the process that runs the rank. Owned by the thread that
   runs rounds; copies are sent and answered by another, and one at a time may ask for the end. */
#ifndef GB_CUDA_MEMBER_H
#define GB_CUDA_MEMBER_H

#include <pthread.h>
#include <sys/types.h>

#include "cuda/host/follower.h"

enum {
    GB_MEMBER_FAREWELL_MS = 5000,     /* for a rank to end by itself when it is asked to */
    GB_MEMBER_EXIT_MS = 1000,         /* for a process whose sockets are closed to be gone */
};

/* Questions and answers of one pair. */
typedef struct gb_member_line {
    gb_wire_reader in;
    bool awaited;                     /* an answer is */
    gb_time last_sign;
} gb_member_line;

typedef struct gb_member {
    gb_follower_start start;              /* a thread reads it */
    int sockets[GB_WIRE_PAIRS];       /* the gang's ends; -1 closed */
    gb_member_line lines[GB_WIRE_CONTROL];
    bool runs;                        /* thread or process has been started and is not over yet */
    pthread_t thread;
    pid_t pid;                        /* 0: a thread */
    int ended;                        /* of waitpid, once the process is over */
} gb_member;

/* start->sockets are for gb_member_start to fill. */
void gb_member_init(gb_member *m, const gb_follower_start *start);

/* A process reads m->start from a message, a thread in place. */
int gb_member_start(gb_member *m, bool process, gb_error *err);

/* Whether the process is over now, and whether that was not its own choice; threads never are. */
bool gb_member_is_over(gb_member *m);
bool gb_member_has_died(gb_member *m);

/* "rank 2 (process 71) was killed by signal 9": waits a moment for a process whose sockets are closed. */
void gb_member_epitaph(gb_member *m, char *out, size_t capacity);

/* Asks it to give up what it waits for. */
void gb_member_give_up(const gb_member *m, const char *why);

/* The end in three steps, so that all ranks end together. leave asks for it, or without grace shuts the sockets; end waits until the
   deadline, then kills a process and leaves a thread behind: false. close is for those that are over. */
void gb_member_leave(gb_member *m, bool grace);
bool gb_member_end(gb_member *m, gb_time deadline);
void gb_member_close(gb_member *m);

#endif
