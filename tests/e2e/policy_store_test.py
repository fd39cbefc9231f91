"""What a server remembers of its policies over restarts and kills, and how it compares them."""

import json
import pathlib
import shutil
import signal
import tempfile
import unittest

from harness import Server, gimbal, main

TUNED = """local policy = { api = 1, name = "tuned", params = { weight = 1, bad = false } }
function policy.select_engine(request, engines)
    if policy.params.bad then error("turned bad") end
    return 0
end
function policy.order_queue(queue) for i = 0, queue.n - 1 do queue.key[i] = i end end
return policy
"""


class Store(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="gimbal_store_"))
        self.store = self.directory / "store"
        self.server = Server("-dp", "2", "--policy-store", self.store)
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(self.server.close)

    def load(self, source=TUNED):
        return self.server.rpc("policy_load", {"source": source})[0]["version"]

    def status(self):
        return self.server.rpc("policy_status")[0]

    def decider(self, hook="select_engine"):
        return next(h for h in self.status()["hooks"] if h["hook"] == hook)

    def kill(self):
        self.server.signal(signal.SIGKILL)
        self.server.wait()

    def ask_for_a_decision(self):
        self.server.rpc("generate", {"tokens": [1, 2, 3], "sampling": {"max_tokens": 1}})

    def test_a_killed_server_comes_back_with_what_decided_and_its_params(self):
        version = self.load()
        self.server.rpc("policy_activate", {"version": version})
        self.server.rpc("policy_set", {"version": version, "param": "weight", "number": 2.5})
        before = self.decider()
        for _ in range(2):
            self.kill()
            self.server.start()
            after = self.decider()
            self.assertEqual((after["name"], after["sha256"]), ("tuned", before["sha256"]))
            self.assertEqual(after["params"], {"weight": 2.5, "bad": False})
            self.assertEqual(self.decider("order_queue")["name"], "tuned")
            self.assertIn("decides select_engine and order_queue", self.server.log())
        self.ask_for_a_decision()
        self.assertEqual(self.status()["store"]["unrecorded"], 0)

    def test_a_kill_among_changes_leaves_one_of_them_whole(self):
        versions = [self.load(TUNED.replace('"tuned"', f'"tuned{i}"')) for i in range(2)]
        for i in range(6):
            self.server.rpc("policy_activate", {"version": versions[i % 2]})
            answered = f"tuned{i % 2}"
            self.kill()
            log = self.store / "policies.log"
            whole = log.read_bytes()
            log.write_bytes(whole + whole.splitlines(keepends=True)[-1][:40])    # as a kill within a write would leave it
            self.server.start()
            self.assertIn("ended in the middle of a record", self.server.log())
            self.assertEqual(self.decider()["name"], answered)
            self.assertEqual(log.read_bytes(), whole)
            versions = [next(p["version"] for p in self.server.rpc("policy_list")[0]["policies"] if p["name"] == f"tuned{n}") for n in range(2)]

    def test_a_quarantined_script_stays_out(self):
        version = self.load()
        self.server.rpc("policy_activate", {"version": version})
        self.server.rpc("policy_set", {"version": version, "param": "bad", "flag": True})
        for _ in range(3):
            self.ask_for_a_decision()
        self.assertEqual(self.decider()["name"], "builtin")
        self.kill()
        self.server.start()
        self.assertEqual(self.decider()["name"], "builtin")
        again = self.load()
        done = gimbal("policy", "activate", again, "--socket", self.server.socket)
        self.assertEqual(done.returncode, 1)
        self.assertIn("quarantined", done.stderr.decode())

    def test_one_change_is_one_line_of_the_servers_log(self):
        version = self.load()
        self.server.rpc("policy_activate", {"version": version})
        self.server.stop()    # then all of its log is read
        self.assertEqual(sum("decides select_engine and order_queue" in line for line in self.server.lines), 1)
        self.assertEqual(sum("policy tuned" in line and "decides" in line for line in self.server.lines), 1)

    def test_two_servers_do_not_share_a_store(self):
        with self.assertRaisesRegex(AssertionError, "in use by another gimbal"):
            Server("--policy-store", self.store)

    def test_a_bad_store_is_named_with_the_remedy(self):
        bad = self.directory / "file"
        bad.write_text("x")
        newer = self.directory / "newer"
        newer.mkdir()
        (newer / "policies.log").write_text("gimbal-policy-log 9\n")
        for path, says in ((bad, "is not a directory"), (newer, "written by a newer one"), (self.directory / "no/such", "cannot be made")):
            with self.assertRaisesRegex(AssertionError, f"{path}.*{says}.*"):
                Server("--policy-store", path)


class Shadow(unittest.TestCase):
    def test_a_candidate_is_compared_on_live_decisions_and_promoted(self):
        with Server("-dp", "2") as server, tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "tuned.lua"
            file.write_text(TUNED)

            def verb(*words):
                done = gimbal("policy", *words, "--socket", server.socket)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                return done.stdout.decode()

            def tokens():
                return server.rpc("generate", {"tokens": [1, 2, 3], "sampling": {"max_tokens": 8, "seed": 7}})[-1]["tokens"]

            before = tokens()
            verb("load", file)
            self.assertIn("tuned", verb("shadow", "tuned", "--ratio", "1"))
            self.assertRegex(verb("list"), r"tuned.*shadow")
            after = [tokens() for _ in range(4)]
            self.assertEqual(after, [before] * 4)
            self.assertRegex(verb("shadow", "status"), r"(?s)select_engine: \d+ decisions.*active.*candidate")
            self.assertIn("ended: it decides now", verb("shadow", "promote"))
            self.assertRegex(verb("status"), r"select_engine +\d+ +tuned")


class Journal(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="gimbal_journal_"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.journal = self.directory / "journal"
        self.file = self.directory / "tuned.lua"
        self.file.write_text(TUNED)

    def diff(self, *words, code=0):
        done = gimbal("policy", "diff", *words)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return (done.stderr if code else done.stdout).decode()

    def test_decisions_of_a_killed_server_are_decided_again_offline(self):
        with Server("-dp", "2", "--journal", self.journal) as server:
            for _ in range(6):
                server.rpc("generate", {"tokens": [1, 2, 3], "sampling": {"max_tokens": 2}})
            live = json.loads(gimbal("policy", "diff", "gimbal", "builtin", "--json", "--socket", server.socket).stdout)
            self.assertEqual(live["decisions"], 6)
            self.assertEqual(server.rpc("policy_status")[0]["journal"]["dropped"], 0)
            server.signal(signal.SIGKILL)
            server.wait()
        same = json.loads(self.diff("gimbal", "builtin", "--on", self.journal, "--json"))
        self.assertEqual((same["decisions"], same["cut"]), (6, False))
        self.assertEqual(same["hooks"][0]["agreed"], 6)
        other = json.loads(self.diff(self.file, "gimbal", "--on", self.journal, "--json"))
        self.assertEqual(other["hooks"][0]["hook"], "select_engine")
        self.assertEqual(len(other["differences"]), 6 - other["hooks"][0]["agreed"])
        self.assertTrue(all(d["a"] == 0 and d["b"] == 1 for d in other["differences"]))
        self.assertRegex(self.diff(self.file, "gimbal", "--on", self.journal), r"select_engine: 6 decisions, \d agreed")
        whole = self.journal.read_bytes()
        self.journal.write_bytes(whole[:-40])
        self.assertIn("the journal's last line is cut off", self.diff("gimbal", "builtin", "--on", self.journal))

    def test_what_cannot_be_compared_is_refused_with_the_reason(self):
        for text, says in (("hello\n", "is no journal of gimbal"), ('{"gimbal_journal": 9}\n', "written by a newer one"),
                           ('{"gimbal_journal": 1, "engines": 2}\n{"gimbal_snapshot":1}\n', ":2: this decision is damaged")):
            self.journal.write_text(text)
            self.assertIn(says, self.diff("gimbal", "builtin", "--on", self.journal, code=65))
        self.assertIn("--journal FILE", self.diff("gimbal", "builtin", "--on", self.directory / "none", code=65))
        self.journal.write_text('{"gimbal_journal": 1, "engines": 2, "stale_after_ns": 1e9, "aging_ns": 5e9}\n')
        self.assertEqual(gimbal("policy", "diff", "gimbla", "builtin", "--on", self.journal).returncode, 65)
        self.assertIn("0 decisions", self.diff("gimbal", "builtin", "--on", self.journal))
        with Server() as server:
            done = gimbal("policy", "diff", "gimbal", "builtin", "--socket", server.socket)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--journal FILE", done.stderr.decode())
        self.journal.write_text("my diary\n")
        with self.assertRaisesRegex(AssertionError, "left alone"):
            Server("--journal", self.journal)
        self.assertEqual(self.journal.read_text(), "my diary\n")


if __name__ == "__main__":
    main()
