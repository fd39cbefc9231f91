/* Another engine on the same weights, in a child process that a Python script drives (tests/bench/peer_llama.py): commands go
   in, seconds come out, so that its runs can be interleaved with ours. Needs a checkout, for the script lies there. */
#ifndef GB_CLI_BENCH_PEER_H
#define GB_CLI_BENCH_PEER_H

#include <stdio.h>
#include <sys/types.h>

#include "bindings/cli/synthetic.h"

typedef struct gb_bench_peer {
    pid_t child;
    FILE *to, *from;
    char name[128];      /* "llama-cpp-python 0.3.36" */
} gb_bench_peer;

/* python: "auto" tries .venv/bin/python3 and python3, "none" looks for nothing. GB_ENOTFOUND with the reason when there is no
   peer. Writes the model below build/bench, where it stays for the next run. */
int  gb_bench_peer_open(gb_bench_peer *peer, const char *python, const gb_synthetic *model, uint32_t threads, gb_error *err);
void gb_bench_peer_close(gb_bench_peer *peer);

/* Seconds for one prefill of n tokens, or for `steps` decode steps of `sequences` tokens each; GB_EDOWN when it is gone. */
int gb_bench_peer_prefill(gb_bench_peer *peer, uint32_t n, double *seconds, gb_error *err);
int gb_bench_peer_decode(gb_bench_peer *peer, uint32_t sequences, uint32_t steps, double *seconds, gb_error *err);

#endif
