"""The CUDA backend on the emulator, through the program: the same greedy text as the cpu, over several ranks and in a server."""

import pathlib
import unittest

from harness import GIMBAL, MODEL, SKIPPED, Server, gimbal, main, need_msgpack

need_msgpack()
from gimbal_client import Client    # noqa: E402

PROMPT = "Once upon a time"
GREEDY = ["--prompt", PROMPT, "--temperature", "0", "--max-tokens", "12", "--kv-cache-memory", "64M"]


def generate(*args, env=None):
    return gimbal("generate", MODEL, *GREEDY, *args, env=env)


class Emulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = generate("--backend", "cpu").stdout

    def test_generate_gives_the_text_of_the_cpu(self):
        done = generate("--backend", "cuemu", env={"CUEMU_STREAMS": "lazy"})
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(done.stdout, self.text)

    def test_two_engines_of_four_ranks_with_experts_on_the_move_give_it_too(self):
        done = generate("--backend", "cuemu", "-dp", "2", "-ep", "4", "--rank-memory", "private", "--force-migration-every", "3")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(done.stdout, self.text)

    def test_a_server_answers_while_experts_move(self):
        options = ["-dp", "2", "-ep", "4", "--rank-memory", "private", "--force-migration-every", "3"]
        with Server("--backend", "cuemu", *options) as server, Client(server.socket) as client:
            self.assertEqual(client.model_info()["backend"], "cuemu")
            for _ in range(2):
                text = client.generate(prompt=PROMPT, temperature=0, max_tokens=12)["text"]
                self.assertEqual(text.encode(), self.text.rstrip(b"\n"))
            self.assertGreater(client.server_stats()["migrations_done"], 0)

    def test_a_machine_without_a_gpu_is_told_in_one_line(self):
        done = generate("--backend", "cuemu", env={"CUEMU_DEVICES": "0"})
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"")
        lines = done.stderr.decode().strip().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("no GPU can be used", lines[0])
        self.assertIn("--backend cpu", lines[0])

    def test_auto_without_a_gpu_is_the_cpu(self):
        done = generate("--backend", "auto", "--log-level", "info")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        if b"the cpu runs the model" in done.stderr:
            self.assertEqual(done.stdout, self.text)


if __name__ == "__main__":
    if not (pathlib.Path(GIMBAL).parent / "libgimbal_cuemu.so").exists():
        print("skipped: this build has no libgimbal_cuemu.so beside the program")
        raise SystemExit(SKIPPED)
    main()
