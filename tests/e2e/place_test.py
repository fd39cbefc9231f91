"""gimbal place: dumps, policies on them, and what it says about files and flags that are wrong."""

import json
import math
import pathlib
import re
import shutil
import struct
import tempfile
import unittest
import xml.etree.ElementTree as tree
import zlib

from harness import ROOT, Server, gimbal, main

SMALL = ["--layers", 4, "--experts", 32, "--top-k", 4, "--windows", 4]
LINKS_AT = 56    # of a dump of SMALL: links of 2 sources and 4 ranks, slots of 4 layers and 32 experts, the head of the first window
SLOTS_AT = LINKS_AT + 2 * 4 * 8
COUNTS_AT = SLOTS_AT + 4 * 32 * 4 + 32


class Place(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="gimbal_place_"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.dump = self.directory / "dump"

    def gen(self, *flags, name="dump"):
        done = gimbal("place", "gen", self.directory / name, *flags)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return self.directory / name

    def good(self, *args):
        done = gimbal("place", *args)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def refused(self, args, code, *parts):
        done = gimbal("place", *args)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, text)
        for part in parts:
            self.assertIn(part, text)
        self.assertEqual(len(text.strip().splitlines()), 1, text)

    def damage(self, at, form, value):
        """A copy of the dump with one number changed and the whole signed anew: its checksum is right."""
        data = bytearray(self.dump.read_bytes())
        struct.pack_into(form, data, at, value)
        data[-4:] = zlib.crc32(data[:-4]).to_bytes(4, "little")
        return bytes(data)

    def test_windows_come_out_of_a_server_and_placements_go_into_it(self):
        with Server("-dp", "2", "-ep", "4", "--window-rounds", "4", "--rearrange-every", "0", "--rank-memory", "private") as server:
            at = ("--socket", server.socket)
            for i in range(4):
                server.rpc("generate", {"prompt": f"Tell me {i} stories", "sampling": {"max_tokens": 12, "ignore_eos": True}})
            self.good("dump", self.dump, *at)
            (matrix,) = server.rpc("expert_matrix")
            row = json.loads(self.good("show", self.dump, "--json"))[0]
            self.assertEqual(row["assignments"], sum(map(sum, matrix["B"])))
            better = self.directory / "better"
            self.good("solve", self.dump, "--raw", "--weights", "balanced", "--output", better)
            moves = int(self.good("load", better, *at).split()[0])
            self.assertGreater(moves, 0)
            for i in range(8):
                server.rpc("generate", {"prompt": f"And {i} more", "sampling": {"max_tokens": 12, "ignore_eos": True}})
            (stats,) = server.rpc("server_stats")
            self.assertEqual((stats["migrations_done"], stats["experts_moved"]), (1, moves))
            self.assertGreater(stats["bytes_moved"], 0)
            self.good("dump", self.dump, *at)
            slots = slice(SLOTS_AT, SLOTS_AT + 4 * 32 * 4)
            self.assertEqual(self.dump.read_bytes()[slots], better.read_bytes()[slots])
            self.refused(["load", self.gen("--layers", 4, "--experts", 16, "--top-k", 4, name="other"), *at], 1, "slots has 64 entries")
            self.refused(["load", self.dump, "--socket", self.directory / "nobody"], 69, "nobody")
            server.stop()

    def test_the_same_seed_gives_the_same_file(self):
        one, two, three = self.gen(*SMALL), self.gen(*SMALL, name="two"), self.gen(*SMALL, "--seed", 2, name="three")
        self.assertEqual(one.read_bytes(), two.read_bytes())
        self.assertNotEqual(one.read_bytes(), three.read_bytes())
        self.assertEqual(zlib.crc32(one.read_bytes()[:-4]), int.from_bytes(one.read_bytes()[-4:], "little"))

    def test_show_tells_skew_and_persistence_of_each_window(self):
        rows = json.loads(self.good("show", self.gen(*SMALL), "--json"))
        self.assertEqual([row["window"] for row in rows], [0, 1, 2, 3])
        self.assertEqual(rows[0]["persistence"], 0)
        self.assertGreater(rows[1]["persistence"], 0.5)
        self.assertIn("persists", self.good("show", self.dump))

    def test_compare_runs_every_policy(self):
        self.gen(*SMALL, "--spare", 2)
        rows = {row["policy"]: row for row in json.loads(self.good("compare", self.dump, "--weights", "balanced", "--json"))}
        in_c = {"stay", "linear", "eplb", "moetuner", "topology", "paper", "swap", "grouped", "max", "budget", "replicas"}
        in_lua = {"eplb.lua", "gimbal.lua", "linear.lua", "moetuner.lua", "semmoe_oracle.lua"}
        self.assertEqual(set(rows), in_c | in_lua)
        for name in in_lua:
            self.assertEqual(rows[name]["script"], {"asked": 3, "nils": 0, "faults": 0, "fault": ""})
        for lua, c in (("eplb.lua", "eplb"), ("linear.lua", "linear"), ("gimbal.lua", "paper")):
            for figure in ("max_over_mean", "worst_max_over_mean", "remote_ratio", "objective", "moves", "bytes"):
                self.assertEqual(rows[lua][figure], rows[c][figure])
        self.assertIsNone(rows["eplb.lua"]["gap"])
        self.assertEqual(rows["stay"]["moves"], 0)
        self.assertLess(rows["swap"]["objective"], rows["stay"]["objective"])
        self.assertLess(rows["replicas"]["remote_ratio"], rows["swap"]["remote_ratio"])
        for row in rows.values():
            self.assertGreaterEqual(row["max_over_mean"], 1)
            self.assertEqual(row["bytes"], row["moves"] * 9437184)
            if row["gap"] is not None:
                self.assertGreaterEqual(row["gap"], -1e-9)
        text = self.good("compare", self.dump)
        self.assertIn("max/mean", text)
        self.assertIn("replicas", text)
        self.assertIn("eplb.lua", text)

    def test_caps_hold_for_every_policy(self):
        self.gen(*SMALL, "--spare", 1)
        for policy in ("eplb", "linear", "moetuner", "topology", "paper", "swap", "max", "budget", "replicas"):
            with self.subTest(policy):
                answer = json.loads(self.good("solve", self.dump, "--policy", policy, "--weights", "balanced", "--max-moves", 5, "--json"))
                self.assertLessEqual(sum(move["expert"] >= 0 for move in answer["moves"]), 5)
                if policy not in ("eplb", "linear", "moetuner", "topology"):
                    self.assertLessEqual(answer["objective"], answer["stay"] + 1e-9)

    def test_a_solved_dump_has_nothing_left_to_gain(self):
        self.gen(*SMALL, "--windows", 1)
        solved = self.directory / "solved"
        first = json.loads(self.good("solve", self.dump, "--raw", "--weights", "balanced", "--output", solved, "--json"))
        self.assertEqual(first["verdict"], "accepted")
        again = json.loads(self.good("solve", solved, "--raw", "--weights", "balanced", "--json"))
        self.assertLess(len(again["moves"]), len(first["moves"]) / 4)
        self.assertIn("rank", self.good("solve", self.dump, "--weights", "balanced", "--moves"))

    def test_calibrate_prints_price_and_the_papers_criteria(self):
        self.gen("--layers", 2, "--experts", 16, "--top-k", 2, "--windows", 3)
        text = self.good("calibrate", self.dump, "--policy", "paper")
        for part in ("price", "agreement", "comm above", "best"):
            self.assertIn(part, text)
        self.gen("--layers", 2, "--experts", 16, "--top-k", 2, "--windows", 2)
        self.refused(["calibrate", self.dump], 64, "at least 3 windows")

    def test_the_picture_is_well_formed_and_shows_every_slot(self):
        self.gen(*SMALL)
        svg = self.directory / "p.svg"
        self.good("picture", self.dump, svg, "--weights", "balanced", "--layer", 1)
        root = tree.parse(svg).getroot()
        cells = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("fill-opacity") and e.get("height") == "17"]
        self.assertEqual(len(cells), 2 * 2 * 32)    # before and after, sources, experts

    def test_exact_agrees_or_says_what_to_install(self):
        self.gen("--layers", 2, "--experts", 12, "--ranks", 3, "--top-k", 2, "--windows", 1)
        done = gimbal("place", "solve", self.dump, "--exact", env={"PATH": "/nonexistent"})
        self.assertEqual(done.returncode, 65)
        self.assertIn("coinor-cbc", done.stderr.decode())
        if shutil.which("cbc") is None:
            self.skipTest("cbc is not installed")
        for weights in ("paper", "balanced", "latency"):
            last = self.good("solve", self.dump, "--exact", "--raw", "--weights", weights).strip().splitlines()[-1].split()
            self.assertEqual(last[0], "all")
            self.assertLess(abs(float(last[3].rstrip("%"))), 0.5)

    def test_damaged_dumps_are_named_by_every_verb_and_nothing_is_written(self):
        self.gen(*SMALL)
        data = self.dump.read_bytes()
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 4
        cases = [(data[:size], "truncated") for size in (8, 40, 200, len(data) - 1)] + [
            (b"", "not a window dump"), (data[:7], "not a window dump"), (data + b"x", "1 bytes after its end"),
            (bytes(flipped), "the file is damaged"),
            (self.damage(8, "<I", 9), "format version 9"), (self.damage(12, "<I", 5), "truncated"),
            (self.damage(20, "<I", 0), "0 layers"), (self.damage(24, "<I", 3), "truncated"),
            (self.damage(28, "<I", 2**32 - 1), "4294967295 experts"),
            (self.damage(32, "<I", 5), "32 experts cannot be split evenly over 5 ranks"),
            (self.damage(32, "<I", 64), "64 ranks for 32 experts"), (self.damage(36, "<I", 3), "3 slots per rank"),
            (self.damage(40, "<Q", 0), "an expert of 0 bytes"),
            (self.damage(LINKS_AT, "<d", math.nan), "is nan"), (self.damage(LINKS_AT + 8, "<d", -0.5), "is -0.5"),
            (self.damage(LINKS_AT + 8, "<d", math.inf), "is inf"),
            (self.damage(SLOTS_AT, "<i", 32), "expert 0 of layer 0 nowhere"), (self.damage(SLOTS_AT + 4, "<i", 0), "expert 1 of layer 0 nowhere"),
            (self.damage(COUNTS_AT, "<q", -1), "window 0 layer 0 source 0 expert 0: count 18446744073709551615 is negative or above 2^53"),
            (self.damage(COUNTS_AT, "<Q", 2**53 + 1), "count 9007199254740993 is negative or above 2^53"),
            (self.damage(COUNTS_AT, "<Q", 2**53), "the counts add up to more than 2^53"),
        ]
        broken, output = self.directory / "broken", self.directory / "output"
        output.write_text("kept")
        verbs = [["show", broken], ["solve", broken, "--output", output], ["compare", broken], ["calibrate", broken], ["picture", broken, output]]
        for i, (content, part) in enumerate(cases):
            with self.subTest(part):
                broken.write_bytes(content)
                for verb in verbs if i < len(verbs) else [verbs[1]]:
                    self.refused(verb, 65, str(broken), part)
                self.assertEqual(output.read_text(), "kept")
                self.assertEqual(broken.read_bytes(), content)
        self.refused(["solve", self.directory, "--output", output], 65, "not a plain file")
        self.refused(["solve", self.directory / "none", "--output", output], 65, "gimbal place dump")
        self.assertEqual(output.read_text(), "kept")

    def test_flags_that_cannot_be_are_named(self):
        self.gen(*SMALL)
        self.refused(["solve", self.dump, "--beta", "nan"], 64, "beta")
        self.refused(["solve", self.dump, "--gamma", "-1"], 64, "gamma")
        self.refused(["compare", self.dump, "--alpha", "inf"], 64, "alpha")
        self.refused(["calibrate", self.dump, "--move-weight", "nan"], 64, "move-weight")
        self.refused(["solve", self.dump, "--weights", "heavy"], 64, "paper|balanced|latency")
        self.refused(["solve", self.dump, "--imbalance", "min"], 64, "squares|max")
        self.refused(["solve", self.dump, "--policy", "swp"], 65, "did you mean swap?")
        self.refused(["solve", self.dump, "--window", 4], 64, "windows 0 to 3")
        self.refused(["picture", self.dump, self.directory / "x.svg", "--layer", 4], 64, "layers 0 to 3")
        self.refused(["slove", self.dump], 64, "did you mean solve?")
        self.refused(["solve"], 64, "takes one file")
        self.refused([], 64, "needs a verb")
        self.refused(["solve", self.dump, "--policy", "eplb", "--groups", 5], 64, "32 experts cannot be split evenly over 5 groups")
        self.refused(["gen", self.directory / "x", "--experts", 10, "--ranks", 4], 64, "10 experts cannot be split evenly over 4 ranks")
        self.refused(["gen", self.directory / "x", "--experts", 4, "--ranks", 8, "--top-k", 2], 64, "8 ranks for 4 experts")
        self.refused(["gen", self.directory / "x", "--experts", 8, "--ranks", 4, "--top-k", 8], 64, "top-k is 8")
        self.refused(["gen", self.directory / "none" / "x", *SMALL], 65, "cannot be written")
        self.assertFalse((self.directory / "x").exists())

    def test_the_document_names_every_flag(self):
        document = (ROOT / "docs/placement.md").read_text(encoding="utf-8")
        flags = re.findall(r"^  (--[a-z-]+)", gimbal("place", "--help").stdout.decode(), re.MULTILINE)
        self.assertGreater(len(flags), 30)
        for flag in flags:
            if flag != "--help":
                self.assertRegex(document, f"`{flag}[ `]", f"{flag} is missing in docs/placement.md")

    def script(self, text):
        path = self.directory / "mine.lua"
        path.write_text(text)
        return path

    def test_the_shipped_policy_in_lua_places_as_the_papers_rule_in_c(self):
        dump = self.gen(*SMALL, "--block", 0.5)
        for weights in ("paper", "balanced"):
            in_c, in_lua = (json.loads(self.good("solve", dump, "--json", "--weights", weights, "--policy", policy)) for policy in ("paper", "gimbal"))
            self.assertEqual(in_c["moves"], in_lua["moves"])
            self.assertEqual(in_c["after"], in_lua["after"])
            self.assertEqual(in_lua["script"], {"asked": 1, "nils": 0, "faults": 0, "fault": ""})
        rows = {row["policy"]: row for row in json.loads(self.good("compare", dump, "--json", "--policy", "gimbal", "--weights", "balanced"))}
        for figure in ("max_over_mean", "remote_ratio", "objective", "moves", "gap"):
            self.assertEqual(rows["gimbal"][figure], rows["paper"][figure])

    def test_costs_from_a_script_reach_the_search(self):
        """Expert e wants rank e % 4, whatever the traffic: that is where it goes when nothing else counts."""
        path = self.script("""return { api = 1, placement_cost = function(layer, window, out)
            for e = 0, out.experts - 1 do
                out.load[e] = 1
                for r = 0, out.ranks - 1 do out.cost[r * out.experts + e] = e % out.ranks == r and 0 or 1 end
            end
        end }""")
        solved = json.loads(self.good("solve", self.gen(*SMALL), "--policy", path, "--even-if-worse", "--json"))
        self.assertEqual(solved["verdict"], "accepted")
        self.assertEqual(len(solved["moves"]), 4 * 24)    # of 32 experts a layer, 8 are there already
        for move in solved["moves"]:
            self.assertEqual(move["expert"] % 4, move["to"] // 8)
        stays = json.loads(self.good("solve", self.dump, "--policy", path, "--json", "--gamma", 100))
        self.assertEqual((stays["verdict"], stays["moves"]), ("no gain", []))

    def test_a_script_that_fails_is_told_and_the_search_decides(self):
        path = self.script("return { api = 1, score_expert = function(layer, expert, ranks)\n"
                           "    for r = 0, ranks.n - 1 do ranks.score[r] = ranks.n == 4 and ranks.window.experts == 32 and 0 / 0 or 0 end\nend }\n")
        dump = self.gen(*SMALL)
        failed = gimbal("place", "solve", dump, "--policy", path, "--json")
        self.assertEqual(failed.returncode, 0)
        solved, search = json.loads(failed.stdout), json.loads(self.good("solve", dump, "--policy", "swap", "--json"))
        self.assertEqual(solved["script"]["faults"], 1)
        self.assertIn("mine.lua:2: ranks.score[0] =", solved["script"]["fault"])
        self.assertEqual(solved["moves"], search["moves"])
        text = gimbal("place", "compare", dump, "--policy", path).stdout.decode()
        self.assertIn("mine.lua was asked about 3 windows: 0 without an opinion, 3 failed", text)

    def test_scripts_that_cannot_place_are_refused(self):
        dump = self.gen(*SMALL)
        self.refused(["solve", dump, "--policy", "fcfs"], 64, "policy fcfs places no experts: give it score_expert or placement_cost")
        self.refused(["solve", dump, "--policy", "gimbla"], 65, 'no placement policy is called "gimbla"')
        self.refused(["solve", dump, "--policy", self.directory / "none.lua"], 65, "none.lua does not exist")
        self.refused(["solve", dump, "--policy", self.script("return 7")], 65, "mine.lua: the file returned 7")


if __name__ == "__main__":
    main()
