"""What a server remembers of its policies over restarts and kills, and how it compares them."""

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


if __name__ == "__main__":
    main()
