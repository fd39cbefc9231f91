"""What the end-to-end tests share: the binary, running servers, and copies of the bundled model to break.

Every wait has a bound (PATIENCE) that only says when to give up; no test measures speed."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIMBAL = os.environ.get("GIMBAL", str(ROOT / "build/release/gimbal"))
MODEL = ROOT / "examples/models/tiny-moe"
PATIENCE = 300
SANITIZER = os.environ.get("GIMBAL_SANITIZER", "")    # "address,undefined", "thread" or none
SKIPPED = 77    # ctest: the test cannot run here

sys.path.insert(0, str(ROOT / "bindings/clients/python"))


def clean_environment(extra=None):
    """The environment without GIMBAL_* options, so that a developer's own do not change a test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIMBAL_") and k != "GIMBAL"}
    env.update(extra or {})
    return env


def gimbal(*args, env=None, **options):
    """Runs the binary to its end."""
    options.setdefault("capture_output", "stdout" not in options)
    return subprocess.run([GIMBAL, *map(str, args)], env=clean_environment(env), timeout=PATIENCE, **options)


class Server:
    """A running `gimbal serve`. Use as a context manager; leaving it kills what is left."""

    def __init__(self, *args, model=MODEL, env=None, socket=True, preexec_fn=None):
        self.directory = tempfile.mkdtemp(prefix="gimbal_e2e_")
        self.socket = os.path.join(self.directory, "s")
        listen = ["--socket", self.socket] if socket else []
        memory = [] if "--kv-cache-memory" in args else ["--kv-cache-memory", "64M"]
        self.command = [GIMBAL, "serve", str(model), *listen, *memory, *map(str, args)]
        self.env, self.preexec_fn = env, preexec_fn
        self.start()

    def start(self):
        """Starts it (again) and waits until it is ready."""
        self.lines, self.ready, self.may_read = [], threading.Event(), threading.Event()
        self.may_read.set()
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, env=clean_environment(self.env), preexec_fn=self.preexec_fn)
        self.reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self.reader.start()
        self.ready.wait(PATIENCE)
        if not any(" ready: " in line or '"ready: ' in line for line in self.lines):
            self.close()
            raise AssertionError("the server did not get ready:\n" + self.log())

    def _read(self, stderr):
        with stderr:
            for line in stderr:
                self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                if "ready: " in self.lines[-1]:
                    self.ready.set()
                self.may_read.wait()
        self.ready.set()

    def pause_reading(self):
        self.may_read.clear()

    def resume_reading(self):
        self.may_read.set()

    def log(self):
        return "\n".join(self.lines)

    def await_log(self, pattern):
        """Lines come through a thread of the server and one of ours: an answer may be here before its line is."""
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.log()):
            if time.monotonic() > end:
                raise AssertionError(f"no {pattern} in the log:\n{self.log()}")
            time.sleep(0.02)

    def tcp_port(self):
        return int(re.search(r"ready: .*tcp:\S+:(\d+)", self.log()).group(1))

    def rpc(self, method, params=None):
        """A call through `gimbal rpc`; the parsed lines of its output."""
        done = gimbal("rpc", "--socket", self.socket, method, json.dumps(params or {}))
        if done.returncode:
            raise AssertionError(f"rpc {method}: exit {done.returncode}: {done.stderr.decode()}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        return code

    def stop(self):
        """Ends it as an operator would; a server that served must end with 0."""
        self.signal(signal.SIGTERM)
        code = self.wait()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n{self.log()}")

    def close(self):
        self.may_read.set()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()


class Model:
    """A copy of the bundled model in a temporary directory; files are links until they are written."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="gimbal_model_"))
        for file in MODEL.iterdir():
            if file.is_file():
                os.symlink(file, self.directory / file.name)

    def path(self, name):
        return self.directory / name

    def remove(self, name):
        self.path(name).unlink()

    def write(self, name, data):
        if self.path(name).is_symlink():
            self.remove(name)
        self.path(name).write_bytes(data)

    def edit_json(self, name, change):
        tree = json.loads(self.path(name).read_text())
        change(tree)
        self.write(name, json.dumps(tree).encode())

    def edit_data(self, name, change):
        """Rewrites the data of one tensor; its length stays."""
        data = bytearray(self.path("model.safetensors").read_bytes())
        (size,) = struct.unpack("<Q", data[:8])
        begin, end = (8 + size + offset for offset in json.loads(data[8:8 + size])[name]["data_offsets"])
        data[begin:end] = change(bytes(data[begin:end]))
        self.write("model.safetensors", bytes(data))

    def edit_tensors(self, change, cut=None):
        """Rewrites model.safetensors with its header changed, and the data cut after so many bytes."""
        data = self.path("model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        change(header)
        text = json.dumps(header).encode()
        self.write("model.safetensors", struct.pack("<Q", len(text)) + text + data[8 + size:][:cut])

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        shutil.rmtree(self.directory, ignore_errors=True)


def need_msgpack():
    try:
        import msgpack    # noqa: F401
    except ImportError:
        print("skipped: the Python package msgpack is not installed (./dev setup makes .venv with it)")
        sys.exit(SKIPPED)


def main():
    program = unittest.main(module="__main__", exit=False, verbosity=2, argv=[sys.argv[0], *sys.argv[1:]])
    result = program.result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
    sys.exit(1 if failed or result.testsRun == 0 else 0)
