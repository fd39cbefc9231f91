"""tools/device_check.sh without a GPU: the steps on the emulator, and what it makes of steps that fail, hang or cannot run."""

import glob
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GB_BUILD", ROOT / "build/release"))
TESTS = ["mma_test", "wgmma_test", "rows_test", "router_test", "dispatch_test", "experts_test", "exchange_test", "graph_test", "cublas_test"]


def check(*args, out=None, env=None):
    command = [ROOT / "tools/device_check.sh", *args] + (["--out", out] if out else [])
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env and dict(os.environ, **env))


def fake_build(folder, **programs):
    """A build whose programs are shell scripts: those that are not named end well."""
    (folder / "tests").mkdir()
    for name in TESTS:
        write(folder / "tests" / f"cuda_{name}", programs.get(name, "echo 1 passed, 0 failed"))
    write(folder / "gimbal_cuemu_bench", programs.get("bench", "exit 0"))


def fake_machine(folder, sanitizer):
    """Tools of a machine with a GPU, a build for it, and no library that gimbal itself needs: an environment for check."""
    (folder / "tests/device").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("mma_test", "rows_test"):
        write(folder / "tests/device" / name, "echo 2 passed, 0 failed")
    write(folder / "gimbal_cuda_bench", "exit 0")
    write(folder / "bin/nvidia-smi", "[ \"$1\" = -L ] && echo 'GPU 0: made up' || echo 'made up, 1.0'")
    write(folder / "bin/compute-sanitizer", sanitizer)
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PKG_CONFIG_LIBDIR": str(folder)}


def write(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


class DeviceCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name)

    def results(self):
        return json.loads((self.out / "device_check.json").read_text(encoding="utf-8"))

    def test_every_step_works_on_the_emulator_and_no_time_is_called_a_measurement(self):
        done = check("--emulated", "--built", "--build", BUILD, "--seed", "1", out=self.out)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("no time is a measurement", done.stdout.splitlines()[0])
        results = self.results()
        self.assertTrue(results["emulated"])
        self.assertEqual([s["step"] for s in results["steps"] if s["status"] == "skipped"], ["sanitizer"])
        self.assertEqual({s["status"] for s in results["steps"]}, {"ok", "skipped"})
        timed = [r for r in results["rows"] if r["unit"] in ("us", "GB/s", "TFLOP/s", "ms")]
        self.assertGreater(len(timed), 40)
        self.assertEqual({r["verdict"] for r in timed}, {"emulated: not a measurement"})
        self.assertEqual({r["fraction"] for r in timed}, {None})
        self.assertEqual({r["verdict"] for r in results["rows"] if r not in timed}, {"ok"})

    def test_a_wrong_kernel_fails_its_step_and_the_others_go_on(self):
        fake_build(self.out, router_test="echo 'FAIL the_router_takes_the_best'; echo 0 passed, 1 failed; exit 1", bench="echo ran $1; exit 0")
        done = check("--emulated", "--built", "--build", self.out, "--only", "correctness,kernels", out=self.out)
        self.assertEqual(done.returncode, 1, done.stdout)
        results = self.results()
        self.assertEqual([(s["step"], s["status"]) for s in results["steps"]], [("correctness", "failed"), ("kernels", "ok")])
        self.assertEqual([r["item"] for r in results["rows"] if r["verdict"] == "FAILED"], ["router_test"])
        self.assertEqual(len([r for r in results["rows"] if r["verdict"] == "ok"]), len(TESTS) - 1)
        self.assertIn("FAIL the_router_takes_the_best", done.stdout)

    def test_a_missed_bound_is_told_and_is_no_failure(self):
        line = "kernels\\trouter\\t8192 tokens\\t20.0\\tus\\t1.0\\t-\\t-\\t<= 12 us\\tmissed\\n"
        fake_build(self.out, bench=f"printf '{line}' >>$3")
        done = check("--emulated", "--built", "--build", self.out, "--only", "kernels", out=self.out)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("0 of 1 bounds met", done.stdout)
        self.assertIn("missed: router, 8192 tokens: 20.0 us", done.stdout)
        self.assertEqual(self.results()["rows"][0]["value"], 20.0)

    def test_a_step_that_hangs_is_ended_and_what_comes_after_the_limit_is_skipped(self):
        fake_build(self.out, bench="sleep 60")
        done = check("--emulated", "--built", "--build", self.out, "--limit", "2", "--only", "kernels,counting", out=self.out)
        self.assertEqual(done.returncode, 1, done.stdout)
        steps = {s["step"]: s for s in self.results()["steps"]}
        self.assertEqual(steps["kernels"]["status"], "timed out")
        self.assertEqual(steps["counting"]["status"], "skipped")
        self.assertIn("the 2 seconds are over", steps["counting"]["reason"])

    def test_a_build_without_tests_is_not_right(self):
        done = check("--emulated", "--built", "--build", self.out, "--only", "correctness", out=self.out)
        self.assertEqual(done.returncode, 1, done.stdout)

    def test_without_a_gpu_it_ends_at_once_and_says_what_to_do(self):
        if glob.glob("/dev/nvidia[0-9]*"):
            self.skipTest("there is a GPU here")
        done = check()
        self.assertEqual(done.returncode, 77)
        self.assertEqual(done.stdout, "device_check: there is no GPU here; --emulated runs the same steps on the emulator\n")

    def test_on_a_gpu_tests_run_alone_and_under_the_sanitizer_and_what_cannot_be_built_is_skipped(self):
        env = fake_machine(self.out, "for program; do :; done; \"$program\" && echo 'ERROR SUMMARY: 0 errors'")
        done = check("--built", "--build", self.out, out=self.out, env=env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = self.results()
        self.assertEqual((results["emulated"], results["device"]), (False, "made up, 1.0"))
        steps = {s["step"]: s for s in results["steps"]}
        self.assertEqual([name for name, step in steps.items() if step["status"] != "ok"], ["e2e"])
        self.assertIn("there is no luajit libuv jansson", steps["e2e"]["reason"])
        self.assertEqual([r["size"] for r in results["rows"] if r["item"] == "racecheck"], ["mma_test", "rows_test"])

    def test_a_sanitizer_that_finds_something_fails_and_one_that_cannot_work_is_skipped(self):
        env = fake_machine(self.out, "case $2 in racecheck) echo 'ERROR SUMMARY: 1 error'; exit 9;; esac; echo 'ERROR SUMMARY: 0 errors'")
        done = check("--built", "--build", self.out, "--only", "sanitizer", out=self.out, env=env)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual({r["item"] for r in self.results()["rows"] if r["verdict"] == "FAILED"}, {"racecheck"})
        write(self.out / "bin/compute-sanitizer", "echo 'Error: Device not supported'; exit 1")
        done = check("--built", "--build", self.out, "--only", "sanitizer", out=self.out, env=env)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("cannot work on this device", self.results()["steps"][0]["reason"])

    def test_the_docs_have_the_bounds_that_are_applied(self):
        listed = subprocess.run([BUILD / "gimbal_cuemu_bench", "--bounds"], capture_output=True, text=True, check=True).stdout
        bounds = {tuple(line.split("\t")[1:]) for line in listed.splitlines()}
        text = (ROOT / "docs/speed.md").read_text(encoding="utf-8").split("## Kernels on a GPU: predictions")[1].split("\n## ")[0]
        rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")][1:]
        self.assertEqual({tuple(cell.strip() for cell in row[:3]) for row in rows}, bounds)

    def test_what_it_does_not_know_is_refused(self):
        for args, word in ((["--only", "sleep"], "no step sleep"), (["--fast"], "no option --fast"), (["--seed", "x"], "not x"),
                           (["--out"], "--out needs a value"), (["--limit", "soon"], "not soon")):
            done = check(*args)
            self.assertEqual(done.returncode, 64)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
