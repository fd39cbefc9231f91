"""Ranks with an emulated GPU each, on threads and in processes: the text of one GPU and of the cpu, and what is said when a rank dies."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

from harness import GIMBAL, MODEL, PATIENCE, SKIPPED, Server, clean_environment, gimbal, main, need_msgpack

need_msgpack()
from gimbal_client import Client, GimbalError    # noqa: E402

PROMPT = "Once upon a time"
GREEDY = ["--prompt", PROMPT, "--temperature", "0", "--max-tokens", "12", "--kv-cache-memory", "64M"]
DEVICES = {"CUEMU_DEVICES": "4"}
SPREAD = ["--backend", "cuemu", "-dp", "2", "-ep", "4", "--distributed-executor-backend"]
PROCESSES = [*SPREAD, "processes"]
WAYS = ["agrs", "sendrecv", "lsa"]


def generate(*args, env=None):
    return gimbal("generate", MODEL, *GREEDY, *args, env=env)


def ranks_of(pid):
    """Processes of ranks that pid started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
            words = (stat.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(fields[1]) == pid and words[1:2] == [b"rank"]:
            found.append(int(stat.parent.name))
    return found


def is_alive(pid):
    """Zombies, which somebody else may be slow to bury, are dead."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = generate("--backend", "cpu").stdout

    def await_death(self, pids):
        end = time.monotonic() + PATIENCE
        while any(map(is_alive, pids)):
            self.assertLess(time.monotonic(), end, f"{pids} are still there")
            time.sleep(0.02)

    def test_four_gpus_give_the_text_wherever_ranks_are_and_whatever_way_tokens_travel(self):
        for layout in ("threads", "processes"):
            for way in WAYS:
                with self.subTest(layout=layout, way=way):
                    options = [layout, "--all2all-backend", way, "--force-migration-every", "3"]
                    done = generate(*SPREAD, *options, env={**DEVICES, "CUEMU_STREAMS": "lazy"})
                    self.assertEqual(done.returncode, 0, done.stderr.decode())
                    self.assertEqual(done.stdout, self.text)

    def test_experts_move_between_gpus_beside_the_rounds_of_a_server(self):
        with Server(*SPREAD, "threads", "--force-migration-every", "3", env=DEVICES) as server, Client(server.socket) as client:
            for _ in range(2):
                text = client.generate(prompt=PROMPT, temperature=0, max_tokens=12)["text"]
                self.assertEqual(text.encode(), self.text.rstrip(b"\n"))
            self.assertGreater(client.server_stats()["migrations_done"], 0)
            server.stop()

    def test_auto_spreads_ranks_where_there_are_gpus(self):
        done = generate(*SPREAD, "auto", "--log-level", "info", env=DEVICES)
        self.assertEqual(done.stdout, self.text)
        self.assertIn(b"4 ranks, threads", done.stderr)
        self.assertIn(b"rank_memory is private", done.stderr)

    def test_what_cannot_be_is_told_in_one_line(self):
        cases = [
            ([*SPREAD, "threads"], "4 ranks with a GPU each need 4 of them, but 1 can be seen", 65),
            (["--backend", "cpu", "--distributed-executor-backend", "processes"], "but the cpu runs the model", 64),
            (["--backend", "cpu", "--all2all-backend", "lsa"], "but the cpu runs the model", 64),
            (["--backend", "cuemu", "--all2all-backend", "lsa"], "all ranks are on one", 64),
        ]
        for args, sentence, code in cases:
            with self.subTest(sentence):
                done = generate(*args)
                self.assertEqual(done.returncode, code)
                self.assertEqual(len(done.stderr.decode().strip().splitlines()), 1, done.stderr.decode())
                self.assertIn(sentence, done.stderr.decode())

    def test_nobody_starts_a_rank_by_hand(self):
        for args in (["rank"], ["rank", "cuemu"]):
            done = gimbal(*args)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"gimbal: a rank ", done.stderr)

    def begin(self, *options):
        """A generation that has begun: its process and those of its ranks."""
        long = [GIMBAL, "generate", str(MODEL), *GREEDY, "--ignore-eos", *PROCESSES, *options]
        long[long.index("--max-tokens") + 1] = "1000"
        process = subprocess.Popen(long, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(DEVICES))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertTrue(process.stdout.read(1))
        ranks = ranks_of(process.pid)
        self.assertEqual(len(ranks), 4)
        return process, ranks

    def test_a_rank_that_is_killed_ends_the_generation_with_its_name(self):
        process, ranks = self.begin()
        os.kill(ranks[-1], signal.SIGKILL)
        errors = process.communicate(timeout=PATIENCE)[1].decode()
        self.assertEqual(process.returncode, 70)
        self.assertIn(f"(process {ranks[-1]}) was killed by signal 9 (Killed)", errors)
        self.assertIn("the engine is down", errors)
        self.await_death(ranks)

    def test_a_rank_that_stands_still_is_not_waited_for(self):
        process, ranks = self.begin("--collective-timeout-ms", "3000")
        os.kill(ranks[-1], signal.SIGSTOP)
        errors = process.communicate(timeout=PATIENCE)[1].decode()
        self.assertEqual(process.returncode, 70)
        self.assertRegex(errors, "rank [0-3] of 4 waited 3000 ms|rank [0-3] has given no sign for 5.0 s")
        self.await_death(ranks)

    def test_ranks_end_when_the_program_is_killed(self):
        process, ranks = self.begin()
        process.kill()
        process.wait(PATIENCE)
        self.await_death(ranks)

    def test_a_server_whose_rank_died_fails_its_requests_and_ends(self):
        with Server(*PROCESSES, env=DEVICES) as server, Client(server.socket) as client:
            text = client.generate(prompt=PROMPT, temperature=0, max_tokens=12)["text"]
            self.assertEqual(text.encode(), self.text.rstrip(b"\n"))
            ranks = ranks_of(server.process.pid)
            os.kill(ranks[0], signal.SIGKILL)
            server.await_log(r"was killed by signal 9")    # before anybody asks
            with self.assertRaisesRegex(GimbalError, "the engine is down"):
                client.generate(prompt=PROMPT, temperature=0, max_tokens=12)
            self.assertEqual(server.wait(), 70)
            self.await_death(ranks)


if __name__ == "__main__":
    if not (pathlib.Path(GIMBAL).parent / "libgimbal_cuemu.so").exists():
        print("skipped: this build has no libgimbal_cuemu.so beside the program")
        raise SystemExit(SKIPPED)
    main()
