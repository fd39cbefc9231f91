"""What the author of a policy has: checks, replays of faults, tests; against the real binary."""

import json
import os
import pathlib
import shutil
import tempfile
import unittest

from harness import MODEL, Server, gimbal, main

# Fails once its param is set and the hour is late, and then only for some throws of the dice.
MOODY = """local policy = { api = 1, name = "moody", params = { limit = 1e9, on = false } }
function policy.select_engine(request, engines)
    local dice = gimbal.random(1000000)
    if policy.params.on and request.prompt_tokens > policy.params.limit then
        error("threw " .. dice .. " at " .. gimbal.now())
    end
    return engines.next
end
return policy
"""


class Author(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def report(self, code, *args):
        done = gimbal("policy", "check", *args, "--json")
        self.assertEqual(done.returncode, code, done.stdout.decode() + done.stderr.decode())
        return json.loads(done.stdout)

    def record_fault(self, path):
        """A fault of the policy in path in a running server, as policy_log shows it: the answer's text, and the fault."""
        with Server("-dp", "2") as server:
            version = server.rpc("policy_load", {"name": "moody", "source": path.read_text()})[0]["version"]
            server.rpc("policy_activate", {"version": version})
            server.rpc("policy_set", {"version": version, "param": "limit", "number": 1})
            server.rpc("policy_set", {"version": version, "param": "on", "flag": True})
            server.rpc("generate", {"prompt": "one two three", "sampling": {"max_tokens": 1}, "stream": False})
            answer = server.rpc("policy_log", {"fault": 1})[0]
            server.stop()
        return json.dumps(answer), answer["faults"][0]

    def test_a_fault_of_a_server_comes_up_again_from_its_snapshot(self):
        path = self.write("moody.lua", MOODY)
        log, fault = self.record_fault(path)
        self.assertRegex(fault["message"], r":5: threw \d+ at [\d.e+]+")
        for snapshot in (self.write("log.json", log), self.write("snap.json", fault["snapshot"])):
            report = self.report(1, "--replay", snapshot, path)
            self.assertEqual((report["verdict"], report["kind"], report["same_source"]), ("fails as recorded", "error", True))
            self.assertTrue(report["fault"].startswith(f"{path}:5: threw "), report["fault"])
            self.assertEqual(report["fault"].splitlines()[0].partition(":5:")[2], fault["message"].splitlines()[0].partition(":5:")[2])
        text = gimbal("policy", "check", "--replay", self.directory / "snap.json", path).stdout.decode()
        self.assertIn("recorded: moody v", text)
        self.assertIn("fails as recorded", text)
        mended = self.write("mended.lua", MOODY.replace("policy.params.on and", "false and"))
        report = self.report(0, "--replay", self.directory / "snap.json", mended)
        self.assertEqual((report["verdict"], report["fault"], report["same_source"]), ("decides it", "", False))
        self.assertIn(report["engine"], (0, 1))
        other = self.write("other.lua", MOODY.replace("threw", "rolled"))
        self.assertEqual(self.report(1, "--replay", self.directory / "snap.json", other)["verdict"], "fails in another way")

    def refusal(self, server, method, source):
        done = gimbal("rpc", "--socket", server.socket, method, json.dumps({"name": "mine", "source": source}))
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.decode()

    def test_a_running_server_checks_a_policy_in_a_process_of_its_own(self):
        good = "return { api = 1, select_engine = function(request, engines) return engines.next end }"
        crowd = "return { api = 1, select_engine = function(request, engines) if engines.waiting[1] > 200 then error('crowd') end return 1 end }"
        typo = "return { api = 1, select_engine = function(request) if request.priority == 77 then return tonumbre('1') end end }"
        with Server("-dp", "2") as server:
            report = server.rpc("policy_check", {"source": good})[0]
            self.assertEqual((report["ok"], report["hooks"]), (True, ["select_engine"]))
            self.assertEqual([row["tables"] for row in report["tables"][:4]],
                             ["2 engines, idle", "2 engines, busy", "2 engines, skewed", "2 engines, stale traces"])
            self.assertFalse(server.rpc("policy_check", {"name": "mine", "source": crowd})[0]["ok"])
            self.assertIn("tonumbre is not defined", server.rpc("policy_check", {"name": "mine", "source": typo})[0]["globals"][0]["why"])
            self.assertIn("mine:1: ", server.rpc("policy_check", {"name": "mine", "source": "return {"})[0]["refusal"])
            loaded = server.rpc("policy_load", {"source": good})[0]
            self.assertEqual((loaded["checked"], loaded["warnings"]), (True, []))
            self.assertIn("mine:1: crowd", self.refusal(server, "policy_load", crowd))
            self.assertIn("mine:1: tonumbre is not defined", self.refusal(server, "policy_load", typo))
            server.stop()
        with Server("-dp", "2", "--no-policy-check") as server:
            self.assertFalse(server.rpc("policy_load", {"source": typo})[0]["checked"])
            self.assertTrue(server.rpc("policy_check", {"source": good})[0]["ok"])
            server.stop()

    def test_a_check_measures_with_the_budgets_of_the_server(self):
        source = "return { api = 1, select_engine = function(request, engines) return engines.next end }"
        with Server("-dp", "2", "--policy-select-ms", "9", env={"GIMBAL_POLICY_CARRY_MS": "30"}) as server:
            self.assertEqual(server.rpc("policy_check", {"source": source})[0]["tables"][0]["budget_us"], 9000)
            server.stop()
        path = self.write("turns.lua", source)
        report = json.loads(gimbal("policy", "check", path, "--json", env={"GIMBAL_POLICY_SELECT_MS": "7"}).stdout)
        self.assertEqual(report["tables"][0]["budget_us"], 7000)
        done = gimbal("policy", "check", path, env={"GIMBAL_POLICY_SELECT_MS": "many"})
        self.assertIn("policy_select_ms", done.stderr.decode())
        self.assertEqual(done.returncode, 64)

    def test_what_broke_a_policy_must_not_break_the_next(self):
        picky = """return { api = 1, name = "picky", select_engine = function(request, engines)
            if request.max_tokens == 1999 then error("%s") end
            return engines.next
        end }"""
        with Server("-dp", "2") as server:
            version = server.rpc("policy_load", {"source": picky % "no"})[0]["version"]
            server.rpc("policy_activate", {"version": version})
            server.rpc("generate", {"prompt": "one", "sampling": {"max_tokens": 1999, "stop": ["a", "e", " "]}, "stream": False})
            self.assertEqual(len(server.rpc("policy_log")[0]["faults"]), 1)
            self.assertIn("select_engine on 1 recorded snapshot: mine:2: still no", self.refusal(server, "policy_load", picky % "still no"))
            server.rpc("policy_load", {"source": picky.replace("1999", "12345") % "no"})
            server.stop()

    def test_a_snapshot_that_cannot_be_used_is_no_fault_of_the_policy(self):
        path = self.write("moody.lua", MOODY)
        for name, text, part in (("none.json", None, "gimbal policy log --fault"), ("empty.json", "", "a snapshot is one JSON object"),
                                 ("log.json", '{"faults": [{"seq": 1}]}', "ask for one fault"), ("old.json", "{}", "no snapshot of format 1")):
            snapshot = self.directory / name
            if text is not None:
                snapshot.write_text(text)
            done = gimbal("policy", "check", "--replay", snapshot, path)
            self.assertEqual((done.returncode, done.stdout), (65, b""))
            self.assertIn(part, done.stderr.decode())
            self.assertIn(name, done.stderr.decode())

    # name, contents (None = no file), part of the sentence, the remedy in it
    GOOD = "local policy = { api = 1 }\nfunction policy.select_engine(request, engines) return engines.next end\nreturn policy\n"
    BAD_FILES = (
        ("missing.lua", None, "does not exist", "check the path"),
        ("folder.lua", "directory", "is a directory", "a policy is one .lua file"),
        ("large.lua", b"-" * (10 << 20), "has 10485760 bytes", "at most 262144"),
        ("nul.lua", b"local x = 1\n\0", "nul.lua:2: a NUL byte", "save the file as plain UTF-8"),
        ("bom.lua", b"\xef\xbb\xbf" + GOOD.encode(), "byte order mark", "save it as UTF-8 without BOM"),
        ("crlf.lua", GOOD.replace("\n", "\r\n").encode(), "crlf.lua:1: a carriage return", "save the file with Unix line ends"),
        ("bytecode.lua", b"\x1bLJ\x02", "is Lua bytecode", "only source text"),
        ("silent.lua", b"local policy = { api = 1 }\n", "the file returned nil", "end it with `return policy`"),
        ("broken.lua", b"return {\nfoo bar\n}\n", "broken.lua:2:", "expected"),
        ("api.lua", GOOD.replace("api = 1", "api = 2").encode(), "is written for api 2", "set `api = 1`"),
        ("hook.lua", b"return { api = 1, select_engine = 5 }\n", "policy.select_engine is 5", "a hook must be a function"),
        ("params.lua", b"return { api = 1, params = { w = {} }, select_engine = function() end }\n", "policy.params.w", "must be a number, a string or a boolean"),
    )

    def make_bad_files(self):
        for name, contents, part, remedy in self.BAD_FILES:
            path = self.directory / name
            if contents == "directory":
                path.mkdir()
            elif contents is not None:
                path.write_bytes(contents)
            # The server knows the name that a policy was sent under, not its file.
            yield path, part.replace(name + ":", ":"), part, remedy

    def test_bad_files_are_refused_with_the_remedy_by_check_and_at_start(self):
        for path, _, part, remedy in self.make_bad_files():
            with self.subTest(path.name):
                refusal = self.report(1, path)["refusal"]
                start = gimbal("serve", MODEL, "--socket", self.directory / "s", "--log-level", "error", "--policy-select", path)
                self.assertNotEqual(start.returncode, 0)
                for text in (refusal, start.stderr.decode()):
                    self.assertIn(path.name, text)
                    self.assertIn(part, text)
                    self.assertIn(remedy, text)

    def test_bad_files_are_refused_by_a_server_whose_policy_goes_on(self):
        with Server("-dp", "2") as server:
            before = server.rpc("policy_list")[0]
            for path, part, _, remedy in self.make_bad_files():
                with self.subTest(path.name):
                    done = gimbal("policy", "load", "--activate", "--socket", server.socket, path)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(path.stem, done.stderr.decode())
                    self.assertIn(part, done.stderr.decode())
                    self.assertIn(remedy, done.stderr.decode())
            self.assertEqual(server.rpc("policy_list")[0], before)
            server.rpc("generate", {"prompt": "one", "sampling": {"max_tokens": 1}, "stream": False})
            server.stop()

    def test_bad_directories_are_refused_with_the_remedy(self):
        outside = self.write("outside.lua", self.GOOD)
        for name, fill, part, remedy in (
                ("twins", lambda d: [(d / n).write_text(self.GOOD.replace("api = 1", "api = 1, name = 'same'")) for n in ("a.lua", "b.lua")],
                 "both make a policy named same", "rename one"),
                ("links", lambda d: os.symlink(outside, d / "c.lua"), "c.lua is a link out of the policy directory", "copy the file into it"),
                ("none", lambda d: d.rmdir(), "cannot be read", "none")):
            with self.subTest(name):
                directory = self.directory / name
                directory.mkdir()
                fill(directory)
                done = gimbal("serve", MODEL, "--socket", self.directory / "s", "--log-level", "error", "--policy-dir", directory)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(part, done.stderr.decode())
                self.assertIn(remedy, done.stderr.decode())

    SPEC = """local testing = require("gimbal.testing")
describe("turns", function()
    it("takes the next", function()
        local policy = testing.load()
        assert.equal(%d, testing.select(policy, testing.request(), testing.engines({ {}, {} }, 1)))
    end)
end)
"""

    @unittest.skipUnless(shutil.which("busted") and shutil.which("luajit"), "busted and luajit are not installed")
    def test_policy_test_runs_the_spec_with_the_kit_of_the_binary(self):
        path = self.write("turns.lua", "return { api = 1, select_engine = function(request, engines) return engines.next end }\n")
        self.write("turns_spec.lua", self.SPEC % 1)
        wrong = self.write("wrong.lua", self.SPEC % 0)
        env = {"TMPDIR": str(self.directory)}
        done = gimbal("policy", "test", path, env=env, cwd="/")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1 success", done.stdout.decode())
        done = gimbal("policy", "test", path, "--spec", wrong, env=env, cwd="/")
        self.assertEqual(done.returncode, 1)
        self.assertIn("wrong.lua:5", done.stdout.decode())
        report = json.loads(gimbal("policy", "test", path, "--json", env=env).stdout)
        self.assertEqual(len(report["successes"]), 1)
        self.assertEqual(sorted(os.listdir(self.directory)), ["turns.lua", "turns_spec.lua", "wrong.lua"])    # the kit is gone again

    def test_policy_test_says_what_is_missing(self):
        path = self.write("turns.lua", "return {}\n")
        for args, env, code, parts in (((path,), {}, 65, ("turns.lua has no spec", "turns_spec.lua", "--spec")),
                                       ((path, "--spec", "/nowhere/x"), {}, 65, ("/nowhere/x is no file",)),
                                       (("/nowhere/y.lua",), {}, 65, ("/nowhere/y.lua is no file",)),
                                       ((path, "--spec", path), {"PATH": "/nowhere"}, 69, ("busted is not installed", "apt install lua-busted"))):
            done = gimbal("policy", "test", *args, env=env)
            self.assertEqual((done.returncode, done.stdout), (code, b""))
            for part in parts:
                self.assertIn(part, done.stderr.decode())

    def test_a_policy_without_the_hook_of_the_snapshot_is_refused(self):
        path = self.write("lazy.lua", "return { api = 1, order_queue = function() end }\n")
        snapshot = self.write("snap.json", '{"gimbal_snapshot": 1, "hook": "select_engine", "now_ns": 5, "request": {}, "engines": {"n": 2, "next": 0}}')
        self.assertIn("has no select_engine", self.report(1, "--replay", snapshot, path)["refusal"])


main()
