"""Streams through the real server: nothing is lost when clients, blocks or policies go."""

import unittest

from harness import SANITIZER, Server, main, need_msgpack

need_msgpack()
from gimbal_client import Client, GimbalError    # noqa: E402

PROMPTS = [
    "Once upon a time, there was a little fox", "The capital of France is", "In the beginning God created", "int main(void)",
    "local function select", '{"level": "info", "msg":', "Es war einmal ein kleiner Hund", "Question: What is 7 plus 8?",
]
LENGTH = 24 if SANITIZER else 48
CROWD = 8 if SANITIZER else 32


def sampling(i):
    return {"seed": 1000 + i, "temperature": 0.9 if i % 2 else 0, "top_p": 0.95, "ignore_eos": True, "max_tokens": LENGTH}


def tokens_alone(client, i):
    return client.generate(PROMPTS[i % len(PROMPTS)], **sampling(i))["tokens"]


class Loss(unittest.TestCase):
    def test_policies_replaced_while_tokens_flow_lose_nothing(self):
        with Server("-dp", "2", "-ep", "4") as server, Client(server.socket) as client, Client(server.socket) as admin:
            expected = [tokens_alone(client, i) for i in range(CROWD)]
            streams = [client.generate(PROMPTS[i % len(PROMPTS)], stream=True, **sampling(i)) for i in range(CROWD)]
            swaps = 0
            got = []
            for stream in streams:
                tokens = []
                for event in stream:
                    tokens += event["tokens"]
                    if len(tokens) % 8 == 0:
                        source = f"return {{ api = 1, name = 'swap', select_engine = function(r, e) return {swaps % 2} end }}"
                        admin.policy_activate(version=admin.policy_load(name="swap", source=source)["version"])
                        with self.assertRaises(GimbalError) as refused:
                            admin.policy_load(name="broken", source="return { api = 1, select_engine = ")
                        self.assertEqual(refused.exception.name, "POLICY_REJECTED")
                        swaps += 1
                got.append(tokens)
            self.assertEqual(got, expected)
            self.assertGreater(swaps, CROWD)
            server.stop()

    def test_a_disconnect_storm_frees_everything(self):
        n = 20 if SANITIZER else 200
        with Server("-dp", "2", "--max-num-seqs", "32") as server, Client(server.socket) as watcher:
            clients = [Client(server.socket) for _ in range(n)]
            for client in clients:    # the answers are not awaited: some are cut while they wait, some while they prefill
                client.send("generate", tokens=list(range(1, 40)), stream=True, window=0, sampling={"max_tokens": 1500, "ignore_eos": True})
            while watcher.server_stats()["accepted"] < n:
                pass
            for client in clients:
                client.close()
            stats = watcher.server_stats()
            while stats["live"] or stats["blocks_used"]:
                stats = watcher.server_stats()
            self.assertEqual(stats["accepted"], n)
            self.assertEqual(stats["aborted"] + stats["finished"] + stats["failed"], n)
            self.assertEqual(stats["failed"], 0)
            self.assertEqual(stats["running"] + stats["waiting"], 0)
            self.assertEqual(watcher.generate(PROMPTS[1], max_tokens=4, ignore_eos=True)["usage"]["completion_tokens"], 4)
            server.stop()

    def test_a_long_prefill_is_cancelled_and_its_blocks_are_free(self):
        with Server("--max-num-batched-tokens", "16", "--max-num-seqs", "16") as server, Client(server.socket) as client, Client(server.socket) as watcher:
            for how in ("abort", "close"):
                before = watcher.server_stats()["aborted"]
                victim = Client(server.socket)
                stream = victim.generate(tokens=[i % 4000 for i in range(2000)], stream=True, max_tokens=8)
                while watcher.server_stats()["blocks_used"] == 0:    # it has begun
                    pass
                live = watcher.request_list()["requests"]
                if how == "abort":
                    stream.close()
                else:
                    victim.close()
                stats = watcher.server_stats()
                while stats["live"] or stats["blocks_used"]:
                    stats = watcher.server_stats()
                self.assertEqual(stats["aborted"], before + 1)
                self.assertLess(live[0]["computed_tokens"], 2000)    # it was still prefilling
                victim.close()
            self.assertEqual(client.generate(PROMPTS[1], max_tokens=4, ignore_eos=True)["usage"]["completion_tokens"], 4)
            server.stop()

    def test_statistics_are_answered_while_prefilling(self):
        with Server("--max-num-batched-tokens", "64") as server, Client(server.socket) as client, Client(server.socket) as watcher:
            client.send("generate", tokens=[i % 4000 for i in range(2000)], sampling={"max_tokens": 1})
            seen = set()
            while not watcher.server_stats()["finished"]:
                seen.update(request["computed_tokens"] for request in watcher.request_list()["requests"])
            self.assertGreater(len([n for n in seen if 0 < n < 2000]), 0, seen)
            server.stop()

    @unittest.skipIf(SANITIZER, "sanitizers keep memory of their own")
    def test_memory_does_not_grow_over_ten_thousand_requests(self):
        with Server("-dp", "2") as server, Client(server.socket) as client:
            def run(n):
                open_calls = []
                for i in range(n):
                    open_calls.append(client.send("generate", tokens=[i % 4000, 7, i % 13], sampling={"max_tokens": 1 + i % 3}))
                    if len(open_calls) == 48:
                        client.wait(open_calls.pop(0))
                for call in open_calls:
                    client.wait(call)

            run(2000)    # arenas of the allocator and of Lua settle
            before = server.resident_bytes()
            run(10000)
            self.assertLess(server.resident_bytes() - before, 1 << 20)
            self.assertEqual(client.server_stats()["finished"], 12000)
            server.stop()

    def test_ten_bad_requests_leave_a_living_server(self):
        with Server("--max-model-len", "256") as server, Client(server.socket) as client:
            bad = [dict(tokens=[]), dict(tokens=[-1]), dict(tokens=[4096]), dict(tokens=[1] * 256), dict(prompt="x", max_tokens=0),
                   dict(prompt="x", max_tokens=-1), dict(prompt="x", max_tokens=2 ** 63), dict(prompt=7), dict(prompt="x", tokens=[1]),
                   dict(messages=[{"role": "nobody", "content": "x"}]), dict(prompt=b"\xff\xfe"), dict(prompt="x", temperature=float("nan"))]
            for params in bad:
                with self.subTest(params), self.assertRaises(GimbalError) as refused:
                    client.generate(**params)
                self.assertIn(refused.exception.name, ("INVALID_PARAMS", "CONTEXT_LENGTH"))
            self.assertEqual(client.generate("x", max_tokens=1)["usage"]["completion_tokens"], 1)
            server.stop()


if __name__ == "__main__":
    main()
