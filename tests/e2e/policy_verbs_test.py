"""gimbal policy VERB against a running server: what it prints, what it changes, and what it says when it may not."""

import json
import os
import pathlib
import shutil
import tempfile
import unittest

from harness import Server, gimbal, main

TUNED = """local policy = { api = 1, name = "tuned", params = { weight = 1, careful = false, label = "a", bad = false } }
function policy.select_engine(request, engines)
    if policy.params.bad then error("turned bad") end
    return 0
end
return policy
"""
OTHER = "return { api = 1, order_queue = function(queue) for i = 0, queue.n - 1 do queue.key[i] = 0 end end, params = { weight = 3 } }\n"


class Verbs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-dp", "2")
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="gimbal_verbs_"))
        for name, text in (("tuned", TUNED), ("other", OTHER), ("broken", "return {\n  x = = 1\n}\n")):
            (cls.directory / f"{name}.lua").write_text(text)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.server.close()
        shutil.rmtree(cls.directory)

    def setUp(self):
        self.good("builtin")

    def run_verb(self, *words):
        return gimbal("policy", *words, "--socket", self.server.socket)

    def good(self, *words):
        done = self.run_verb(*words)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def asked(self, *words):
        return json.loads(self.good(*words, "--json"))

    def refused(self, words, code, *parts):
        done = self.run_verb(*words)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, text)
        self.assertEqual(done.stdout, b"")
        self.assertEqual(len(text.strip().splitlines()), 1, text)
        for part in parts:
            self.assertIn(part, text)

    def load(self, name, *flags):
        return self.asked("load", self.directory / f"{name}.lua", *flags)

    def ask_for_a_decision(self):
        self.server.rpc("generate", {"tokens": [1, 2, 3], "sampling": {"max_tokens": 1}})

    def test_every_method_about_policies_has_a_verb(self):
        api = json.loads(gimbal("api-info").stdout)
        help_text = gimbal("policy", "--help").stdout.decode()
        methods = [name for name in api["methods"] if name.startswith("policy_")]
        self.assertIn("policy_set", methods)
        for verb in [m.removeprefix("policy_") for m in methods] + ["decisions"]:
            self.assertRegex(help_text, rf"(?m)^  {verb}\b")

    def test_status_shows_who_decides_and_json_is_the_answer_itself(self):
        loaded = self.load("tuned")
        self.good("activate", "tuned")
        text = self.good("status")
        self.assertRegex(text, rf"select_engine +{loaded['version']} +tuned +{loaded['sha256'][:12]} +0 .*weight=1")
        self.assertRegex(text, r"order_queue +0 +builtin +- +0")
        self.assertEqual(self.asked("status")["hooks"], self.server.rpc("policy_status")[0]["hooks"])
        self.assertEqual([p["name"] for p in self.asked("list")["policies"]], [p["name"] for p in self.server.rpc("policy_list")[0]["policies"]])

    def test_get_prints_the_source_that_was_loaded(self):
        version = self.load("tuned")["version"]
        self.assertEqual(self.good("get", "tuned"), TUNED)
        self.assertEqual(self.asked("get", version)["params"], {"weight": 1, "careful": False, "label": "a", "bad": False})

    def test_rollback_goes_back_and_forth(self):
        self.load("tuned", "--activate")
        self.assertRegex(self.good("rollback", "--hook", "select_engine"), r"select_engine +0 +builtin")
        self.assertRegex(self.good("rollback", "--hook", "select_engine"), r"select_engine +\d+ +tuned")
        self.assertRegex(self.good("builtin"), r"select_engine +0 +builtin")

    def test_set_takes_the_param_of_the_policy_that_decides_in_its_type(self):
        self.load("tuned", "--activate")
        for word, name, value in (("weight=2.5", "weight", 2.5), ("careful=true", "careful", True), ("label=12", "label", "12"), ("label=", "label", "")):
            self.good("set", word)
            self.assertEqual(self.asked("get", "tuned")["params"][name], value)
        self.refused(["set", "weight=much"], 64, "weight", "finite number")
        self.refused(["set", "weight=nan"], 64, "finite number")
        self.refused(["set", "careful=1"], 64, "true or false")
        self.refused(["set", "wieght=1"], 1, "did you mean weight?")
        self.refused(["set", "weight"], 64, "NAME=VALUE")
        self.refused(["set", "=1"], 64, "NAME=VALUE")

    def test_set_asks_which_policy_is_meant_when_two_have_the_param(self):
        self.load("tuned", "--activate")
        self.load("other", "--activate")
        self.refused(["set", "weight=2"], 64, "--policy or --hook")
        self.good("set", "weight=5", "--hook", "order_queue")
        self.good("set", "weight=7", "--policy", "tuned")
        self.assertEqual(self.asked("get", "other")["params"]["weight"], 5)
        self.assertEqual(self.asked("get", "tuned")["params"]["weight"], 7)

    def test_set_without_a_script_says_so(self):
        self.refused(["set", "weight=2"], 1, "no script decides")

    def test_an_old_generation_changes_nothing(self):
        self.load("tuned")
        generation = self.asked("status")["generation"]
        after = self.asked("activate", "tuned", "--expected-generation", generation)
        self.assertEqual(after["generation"], generation + 1)
        for words in (["activate", "tuned"], ["rollback"], ["builtin"], ["set", "weight=2"]):
            self.refused([*words, "--expected-generation", generation], 1, "VERSION_CONFLICT", f"at generation {generation + 1}")
        self.assertEqual(self.asked("status")["generation"], generation + 1)

    def test_log_says_who_changed_what_and_which_decisions_failed(self):
        (self.directory / "doomed.lua").write_text(TUNED.replace("tuned", "doomed"))    # a digest of its own: that goes into quarantine
        self.load("doomed", "--activate")
        seq = self.asked("status")["events"]
        self.good("set", "bad=true")
        for _ in range(3):
            self.ask_for_a_decision()
        events = self.asked("log", "--after", seq)["events"]
        self.assertEqual([e["kind"] for e in events], ["set", "quarantine", "builtin"])
        self.assertRegex(events[0]["who"], rf"^unix socket \(uid {os.getuid()}, pid \d+\)$")
        self.assertEqual(len(events[0]["sha256"]), 64)
        text = self.good("log")
        self.assertRegex(text, r"unix socket.* set .*params\.bad = true")
        self.assertRegex(text, r"select_engine +error +doomed v\d+: .*:3: turned bad")
        fault = self.asked("log")["faults"][-1]["seq"]
        self.assertIn("turned bad", self.good("log", "--fault", fault, "--output", self.directory / "snapshot.json"))
        self.assertIn('"gimbal_snapshot"', (self.directory / "snapshot.json").read_text())
        self.refused(["log", "--output", "x"], 64, "--fault")
        self.refused(["log", "--fault", 99999], 1, "no fault 99999")
        self.refused(["activate", "doomed"], 1, "quarantined", "force", "turned bad")
        self.good("activate", "doomed", "--force")

    def test_decisions_are_read_in_steps(self):
        other = (self.directory / "calm.lua")
        other.write_text(TUNED.replace('"tuned"', '"calm"'))
        self.load("calm", "--activate")
        before = self.asked("status")["decisions"]
        for _ in range(3):
            self.ask_for_a_decision()
        answer = self.asked("decisions", "--after", before, "--most", 2)
        self.assertEqual([d["seq"] for d in answer["decisions"]], [before + 1, before + 2])
        self.assertEqual([d["outcome"] for d in answer["decisions"]], ["ok", "ok"])
        self.assertRegex(self.good("decisions", "--after", before), rf"{before + 3} .*select_engine .*ok +0 .* [0-9a-f]{{16}}")

    def test_words_that_are_wrong_get_the_nearest_name(self):
        self.refused(["statsu"], 64, "did you mean status?")
        self.refused(["activate", "gimbla"], 1, "did you mean gimbal?")
        self.refused(["get", "nothing_like_it"], 1, "gimbal policy list")
        self.refused(["activate", 4000], 1, "4000")
        self.refused(["activate", "gimbal", "--hook", "select"], 1, "hooks are select_engine")
        self.refused(["activate"], 64, "takes VERSION|NAME|builtin")
        self.refused(["status", "x"], 64, "takes no argument")
        self.refused([], 64, "needs a verb")

    def test_a_broken_file_is_refused_with_its_line(self):
        before = self.asked("status")
        self.refused(["load", self.directory / "broken.lua"], 1, "broken:2:", "POLICY_REJECTED")
        self.assertEqual(self.asked("status")["hooks"], before["hooks"])
        self.refused(["load", self.directory], 64, "policy")
        self.refused(["load", self.directory / "none.lua"], 64, "none.lua does not exist")


class OverTcp(unittest.TestCase):
    def test_changes_need_the_admin_token_and_say_where_they_came_from(self):
        with tempfile.TemporaryDirectory() as directory:
            token = pathlib.Path(directory) / "token"
            token.write_text("open wide\n")
            with Server("--rpc-port", "0", "--admin-token-file", token) as server:
                tcp = ["--port", server.tcp_port()]
                for words in (["builtin"], ["rollback"], ["activate", "round_robin"], ["set", "w_kv=1"]):
                    done = gimbal("policy", *words, *tcp)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("FORBIDDEN", done.stderr.decode())
                self.assertEqual(gimbal("policy", "status", *tcp).returncode, 0)
                done = gimbal("policy", "activate", "round_robin", "--hook", "select_engine", *tcp, "--key-file", token)
                self.assertEqual(done.returncode, 0, done.stderr)
                change = server.rpc("policy_log")[0]["events"][-1]
                self.assertRegex(change["who"], r"^tcp \(127\.0\.0\.1 port \d+\)$")
                server.stop()    # then all of its log is read
                self.assertRegex(server.log(), rf"round_robin v\d+ decides select_engine \(by tcp \(127.*\), sha256 {change['sha256']}\)")


if __name__ == "__main__":
    main()
