"""The same seed gives the same tokens, and the same log probabilities to the last bit: alone, in a batch, in chunks of any
size, after preemption, with any number of threads, engines and expert ranks, under any policy, while experts move."""

import random
import unittest

from harness import SANITIZER, Server, main, need_msgpack

need_msgpack()
from gimbal_client import Client    # noqa: E402

CROWD = 8 if SANITIZER else 32
LENGTHS = (3, 17, 33, 120, 65, 16, 90, 140) if SANITIZER else (3, 17, 33, 120, 257, 511, 600, 900)    # of prompts, in tokens
GENERATED = 40                  # tokens of each request: more than two blocks
BLOCKS = 24 if SANITIZER else 64    # too few for all of them
BLOCK_BYTES = 32 * 1024


def request(i):
    """Token ids reach more experts than words do. Every rule of sampling has its turn."""
    n, rng = LENGTHS[i % len(LENGTHS)], random.Random(i)
    sampling = {"seed": 1000 + i, "temperature": (0, 0.7, 1.3)[i % 3], "top_p": 0.95 if i % 2 else 1.0, "ignore_eos": True,
                "max_tokens": GENERATED, "logprobs": 3}
    if i % 5 == 0:
        sampling.update(repetition_penalty=1.1, frequency_penalty=0.2, presence_penalty=0.1)
    if i % 7 == 0:
        sampling.update(top_k=20, min_p=0.01)
    return {"tokens": [rng.randrange(4000) for _ in range(n)], "sampling": sampling}


def answer(result):
    return result["tokens"], [(p["logprob"], [(t["token"], t["logprob"]) for t in p["top"]]) for p in result["logprobs"]]


def answers_together(client):
    """All are sent before the first is awaited."""
    calls = [client.send("generate", **request(i)) for i in range(CROWD)]
    return [answer(client.wait(call)) for call in calls]


class Determinism(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server("--threads", "1", "--max-num-seqs", "1") as server, Client(server.socket) as client:
            cls.alone = [answer(client.generate(**request(i))) for i in range(CROWD)]
            server.stop()

    def check(self, *args, preempts=False, look=lambda stats: None):
        with Server(*args) as server, Client(server.socket) as client:
            for i, (got, alone) in enumerate(zip(answers_together(client), self.alone)):
                self.assertEqual(got, alone, f"request {i} of {LENGTHS[i % len(LENGTHS)]} tokens with {args}")
            stats = client.server_stats()
            self.assertEqual((stats["finished"], stats["blocks_used"], stats["policy_faults"]), (CROWD, 0, 0))
            if preempts:
                self.assertGreater(stats["preempted"], 0)
            look(stats)
            server.stop()

    def test_in_a_batch_with_one_thread_and_with_two(self):
        self.check("--threads", "1")
        self.check("--threads", "2")

    def test_in_chunks_of_16_to_512_tokens(self):
        for chunk in (16, 17, 37, 64, 128, 512):
            self.check("--max-num-batched-tokens", chunk, "--max-num-seqs", "16")

    def test_after_preemption(self):
        tiny = ("--kv-cache-memory", BLOCKS * BLOCK_BYTES, "--max-model-len", BLOCKS * 16)
        self.check(*tiny, "--max-num-seqs", "16", preempts=True)
        self.check(*tiny, "--max-num-seqs", "16", "--max-num-batched-tokens", "48")

    def test_over_engines_and_expert_ranks(self):
        self.check("-dp", "2", "-ep", "4")
        self.check("-dp", "4", "-ep", "32")

    def test_while_experts_trade_ranks_every_3_rounds(self):
        for memory in ("shared", "private"):
            def moved(stats, memory=memory):
                self.assertGreater(stats["migrations_done"], 3)
                self.assertGreater(stats["experts_moved"], stats["migrations_done"])
                self.assertEqual(stats["bytes_moved"] > 0, memory == "private")

            move = ("--rank-memory", memory, "--force-migration-every", "3")
            self.check("-dp", "2", "-ep", "4", *move, look=moved)
            self.check("-dp", "2", "-ep", "8", *move, "--migration-bytes", "100000", "--max-num-batched-tokens", "64", look=moved)

    def test_while_experts_are_rearranged_and_copied_to_other_ranks(self):
        rearrange = ("-dp", "2", "-ep", "4", "--window-rounds", "2", "--rearrange-every", "1", "--placement-weights", "balanced")
        for memory, policy, spare in (("private", "builtin", 0), ("private", "gimbal", 2), ("shared", "builtin", 2)):
            def moved(stats):
                self.assertGreater(stats["rearrangements_accepted"], 0)
                self.assertGreater(stats["experts_moved"], 0)

            self.check(*rearrange, "--rank-memory", memory, "--policy-place", policy, "--spare-slots", spare, look=moved)

    def test_under_every_policy(self):
        for name in ("round_robin", "gimbal"):
            self.check("-dp", "2", "--policy-select", name)
        self.check("--policy-order", "fcfs", "--max-num-seqs", "3")


if __name__ == "__main__":
    main()
