"""Policies that change under load: swaps and reloads over RPC, and files of a watched directory. Nothing is lost, fails or happens
twice: every request is one decision of one version, counted by their numbers."""

import os
import pathlib
import tempfile
import threading
import time
import unittest

from harness import PATIENCE, Server, gimbal, main, need_msgpack

need_msgpack()
from gimbal_client import Client, GimbalError    # noqa: E402

SWAPS, RELOADS, CLIENTS, TOKENS = 200, 100, 3, 8


def always(engine):
    return f"return {{ api = 1, name = 'always', select_engine = function() return {engine} end }}\n"


class Load:
    """Clients that stream until they are told to stop, and check each stream."""

    def __init__(self, server):
        self.server, self.lock, self.stopped = server, threading.Lock(), threading.Event()
        self.done, self.problems = 0, []
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _run(self, number):
        try:
            with Client(self.server.socket) as client:
                while not self.stopped.is_set():
                    tokens = [t for event in client.generate(tokens=[1, 2, 3 + number], stream=True, max_tokens=TOKENS, ignore_eos=True)
                              for t in event["tokens"]]
                    with self.lock:
                        self.done += 1
                        if len(tokens) != TOKENS:
                            self.problems.append(f"a stream had {len(tokens)} tokens")
        except Exception as error:    # whatever it is, the test reports it
            self.problems.append(repr(error))

    def await_more(self, n=1):
        """Until n more requests are through."""
        goal, end = self.done + n, time.monotonic() + PATIENCE
        while self.done < goal and not self.problems and time.monotonic() < end:
            time.sleep(0.002)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(PATIENCE)


class Decisions:
    """Reads decision_log in steps before its ring forgets."""

    def __init__(self, client):
        self.client, self.after, self.all, self.lost = client, 0, [], 0

    def read(self):
        while True:
            answer = self.client.call("decision_log", after=self.after, most=1024)
            self.lost += answer["lost"]
            self.all += answer["decisions"]
            if not answer["decisions"]:
                return
            self.after = answer["decisions"][-1]["seq"]


class Swaps(unittest.TestCase):
    def check(self, server, client, load, decisions, engine_of):
        load.stop()
        decisions.read()
        stats = client.server_stats()
        self.assertEqual(load.problems, [])
        self.assertEqual((stats["failed"], stats["aborted"], stats["refused"], stats["policy_faults"]), (0, 0, 0, 0), stats)
        self.assertEqual((stats["accepted"], stats["finished"]), (load.done, load.done))
        self.assertEqual([d["seq"] for d in decisions.all], list(range(1, len(decisions.all) + 1)))
        self.assertEqual(decisions.lost, 0)
        selects = [d for d in decisions.all if d["hook"] == "select_engine"]
        self.assertEqual(len(selects), load.done)
        for decision in selects:
            self.assertEqual((decision["outcome"], decision["engine"]), ("ok", engine_of(decision["version"])), decision)

    def test_swaps_and_reloads_lose_and_repeat_no_decision(self):
        with Server("-dp", "2", "--no-policy-check") as server, Client(server.socket) as client:
            sources = [always(0), always(1)]
            engines = {client.policy_load(source=source)["version"]: i for i, source in enumerate(sources)}
            pair = list(engines)
            client.policy_activate(version=pair[0])
            load, decisions, broken = Load(server), Decisions(client), 0
            for swap in range(SWAPS):
                client.policy_activate(version=pair[swap % 2])
                load.await_more()
                if swap % (SWAPS // RELOADS) == 0:
                    try:
                        odd = swap // (SWAPS // RELOADS) % 2
                        version = client.policy_load(source=sources[0] + (" end" if odd else f"-- {swap}\n"))["version"]
                        engines[version] = 0
                        client.policy_activate(version=version)
                        load.await_more()
                    except GimbalError as refused:
                        self.assertEqual(refused.name, "POLICY_REJECTED")
                        broken += 1
                decisions.read()
            self.assertEqual(broken, RELOADS // 2)
            self.check(server, client, load, decisions, engines.get)
            server.stop()

    def test_files_of_a_watched_directory_are_swapped_the_same_way(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "always.lua"
            path.write_text(always(0))

            def replace(text):    # as editors do it
                (path.parent / "4913").write_text(text)
                os.rename(path.parent / "4913", path)

            def await_event(client, seq, kind):
                end = time.monotonic() + PATIENCE
                while time.monotonic() < end:
                    events = client.call("policy_log", after=seq)["events"]
                    if any(event["kind"] == kind for event in events):
                        return events[-1]
                    time.sleep(0.02)
                raise AssertionError(f"no event {kind} after {seq}: {events}")

            with Server("-dp", "2", "--policy-dir", directory, "--policy-watch", "--policy-select", "always") as server, Client(server.socket) as client:
                engines = {client.call("policy_status")["hooks"][0]["version"]: 0}
                load, decisions = Load(server), Decisions(client)
                for edit in range(1, 7):
                    seq = client.call("policy_status")["events"]
                    replace(always(edit % 2) + f"-- {edit}\n" if edit % 3 else "return {\n  x = = 1 }\n")
                    event = await_event(client, seq, "activate" if edit % 3 else "refused")
                    self.assertEqual(event["who"], "directory")
                    if edit % 3:
                        engines[event["version"]] = edit % 2
                        self.assertEqual(len(event["sha256"]), 64)
                    else:
                        self.assertIn("always.lua:2:", event["text"])
                        server.await_log(r"always\.lua:2:")
                    load.await_more()
                    decisions.read()
                self.check(server, client, load, decisions, engines.get)
                server.stop()

    def test_watching_needs_a_directory(self):
        done = gimbal("serve", "--policy-watch", "examples/models/tiny-moe")
        self.assertEqual(done.returncode, 64)
        self.assertIn("--policy-dir", done.stderr.decode())


if __name__ == "__main__":
    main()
