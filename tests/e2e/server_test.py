"""A running server as operators and clients meet it: start, shutdown, addresses, limits, disk full."""

import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import GIMBAL, MODEL, PATIENCE, SANITIZER, Server, clean_environment, gimbal, main, need_msgpack

need_msgpack()
from gimbal_client import Client, ConnectionLost, GimbalError    # noqa: E402

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
ENDLESS = {"stream": True, "window": 0, "ignore_eos": True, "temperature": 0, "max_tokens": 2000}


def refused_start(*args):
    """A `gimbal serve` that must end by itself."""
    return gimbal("serve", MODEL, "--log-level", "error", "--kv-cache-memory", "64M", *args)


class Start(unittest.TestCase):
    def test_the_log_says_what_runs_and_ends_with_ready(self):
        with Server("-dp", "2", "-ep", "4", "--rpc-port", "0") as server:
            log = server.log()
            for part in (" gimbal ", "model tiny-moe: Qwen3MoeForCausalLM", "32 experts", "bfloat16 weights", "backend cpu", "kernels", "thread",
                         "2 engines, 4 expert ranks (2 an engine)", "KV cache:", "maximum concurrency for 2048-token requests",
                         "option data_parallel_size = 2 (command line)", "decides select_engine", "decides order_queue", "sha256",
                         f"listening on unix:{server.socket} (mode 0600, admin)", "listening on tcp:127.0.0.1:"):
                self.assertIn(part, log)
            self.assertIn(f"ready: unix:{server.socket} tcp:127.0.0.1:{server.tcp_port()} in ", server.lines[-1])
            server.stop()

    def test_json_log_lines_are_objects(self):
        import json
        with Server("--log-format", "json") as server:
            for line in server.lines:
                self.assertEqual(json.loads(line)["level"], "info")

    def test_a_port_in_use_is_exit_code_69(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = refused_start("--rpc-port", port)
        self.assertEqual(done.returncode, 69)
        self.assertIn(f"port {port} is in use", done.stderr.decode())

    def test_a_live_socket_is_left_to_its_server(self):
        with Server() as server:
            done = refused_start("--socket", server.socket)
            self.assertEqual(done.returncode, 69)
            self.assertIn("listening there already", done.stderr.decode())
            self.assertIn("t_mono_ns", server.rpc("ping")[0])
            server.stop()

    def test_paths_that_no_socket_can_have(self):
        done = refused_start("--socket", "/tmp/" + "x" * 103)
        self.assertEqual(done.returncode, 64)
        self.assertIn("at most 107", done.stderr.decode())
        done = refused_start("--socket", "/nonexistent/s")
        self.assertEqual(done.returncode, 69)
        with tempfile.NamedTemporaryFile() as file:
            done = refused_start("--socket", file.name)
            self.assertEqual(done.returncode, 69)
            self.assertIn("no socket", done.stderr.decode())

    def test_after_kill_9_the_next_server_takes_the_socket_over(self):
        with Server() as first:
            for _ in range(3):
                first.signal(signal.SIGKILL)
                first.wait()
                self.assertTrue(os.path.exists(first.socket))
                first.start()
                with Client(first.socket) as client:
                    self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
            first.stop()
            self.assertFalse(os.path.exists(first.socket))

    @unittest.skipIf(SANITIZER, "sanitizers keep memory of their own")
    def test_resident_memory_is_weights_and_kv_and_a_little(self):
        with Server("--kv-cache-memory", "128M") as server, Client(server.socket) as client:
            info = client.model_info()
            limit = 1.15 * info["weight_bytes"] + info["kv_bytes"] + 50e6
            self.assertLess(server.resident_bytes(), limit)
            server.stop()


class Shutdown(unittest.TestCase):
    def test_sigterm_lets_streams_end_and_exits_with_0(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server("--shutdown-timeout-s", "86400") as server, Client(server.socket) as client:
                stream = client.generate(tokens=[1, 2, 3], **dict(ENDLESS, max_tokens=300))
                events = iter(stream)
                count = len(next(events)["tokens"])
                server.signal(number)
                count += sum(len(event["tokens"]) for event in events)
                self.assertEqual(count, 300)
                self.assertEqual(stream.done["finish_reason"], "length")
                self.assertEqual(client.goaway, "shutdown")
                self.assertEqual(server.wait(), 0, server.log())
                self.assertFalse(os.path.exists(server.socket))

    def test_new_requests_and_connections_are_refused_while_streams_end(self):
        with Server("--shutdown-timeout-s", "86400") as server, Client(server.socket) as client, Client(server.socket) as other:
            events = iter(client.generate(tokens=[1, 2, 3], **ENDLESS))
            next(events)
            server.signal(signal.SIGTERM)
            while other.goaway is None:
                other.ping()
            with self.assertRaises(GimbalError) as refused:
                other.generate(tokens=[1, 2, 3])
            self.assertEqual(refused.exception.name, "DRAINING")
            with self.assertRaises(OSError):
                Client(server.socket)
            server.signal(signal.SIGTERM)    # the second one does not wait
            with self.assertRaises((GimbalError, ConnectionLost)):
                list(events)
            self.assertEqual(server.wait(), 0, server.log())

    def test_time_up_aborts_what_is_open(self):
        with Server("--shutdown-timeout-s", "0") as server, Client(server.socket) as client:
            events = iter(client.generate(tokens=[1, 2, 3], **ENDLESS))
            next(events)
            server.signal(signal.SIGTERM)
            with self.assertRaises(GimbalError) as ended:
                list(events)
            self.assertEqual(ended.exception.name, "ABORTED")
            self.assertEqual(server.wait(), 0, server.log())

    def test_the_shutdown_method_does_what_sigterm_does(self):
        with Server() as server, Client(server.socket) as client:
            self.assertEqual(client.shutdown()["live"], 0)
            self.assertEqual(server.wait(), 0, server.log())

    def test_sighup_is_reserved_and_a_closed_pipe_is_no_reason_to_die(self):
        with Server() as server, Client(server.socket) as client:
            server.signal(signal.SIGHUP)
            server.signal(signal.SIGPIPE)
            self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
            server.stop()


class Addresses(unittest.TestCase):
    def test_tcp_serves_but_admin_is_for_the_unix_socket(self):
        with Server("--rpc-port", "0") as server, Client(f"127.0.0.1:{server.tcp_port()}") as client:
            self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
            for call in (lambda: client.policy_load(name="x", source="return { api = 1 }"), lambda: client.policy_activate(version=1),
                         client.drain, client.shutdown):
                with self.assertRaises(GimbalError) as refused:
                    call()
                self.assertEqual(refused.exception.name, "FORBIDDEN")

    def test_keys_open_tcp_and_the_admin_token_opens_admin(self):
        with tempfile.TemporaryDirectory() as directory:
            for name, text in (("key", "sesame\n"), ("token", "open wide")):
                with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
                    file.write(text)
            with Server("--rpc-port", "0", "--api-key-file", f"{directory}/key", "--admin-token-file", f"{directory}/token") as server:
                address = f"127.0.0.1:{server.tcp_port()}"
                for wrong in (None, "", "Sesame", "sesame "):
                    with self.assertRaises(GimbalError) as refused:
                        Client(address, auth=wrong)
                    self.assertIn(refused.exception.name, ("UNAUTHENTICATED", "INVALID_PARAMS"))
                with Client(address, auth="sesame") as client:
                    self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
                    self.assertFalse(client.hello["admin"])
                with Client(address, auth="open wide") as client:
                    self.assertTrue(client.hello["admin"])
                done = gimbal("rpc", "--port", server.tcp_port(), "--key-file", f"{directory}/key", "ping")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("sesame", server.log())
            self.assertEqual(refused_start("--api-key-file", f"{directory}/none").returncode, 64)

    def test_the_default_socket_is_found_by_both_sides(self):
        with tempfile.TemporaryDirectory() as directory:
            env = {"XDG_RUNTIME_DIR": directory}
            with Server(env=env, socket=False) as server:
                self.assertIn(f"unix:{directory}/gimbal.sock", server.log())
                self.assertEqual(gimbal("rpc", "ping", env=env).returncode, 0)
                server.stop()

    def test_one_address_of_two_that_fails_is_an_error(self):
        with socket.socket() as taken, tempfile.TemporaryDirectory() as directory:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = refused_start("--socket", directory + "/s", "--rpc-port", taken.getsockname()[1])
            self.assertEqual(done.returncode, 69)
            self.assertFalse(os.path.exists(directory + "/s"))


class Limits(unittest.TestCase):
    def test_out_of_descriptors_refuses_newcomers_and_serves_on(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        with Server(preexec_fn=limit) as server, Client(server.socket) as client:
            crowd = []
            for _ in range(60):
                c = socket.socket(socket.AF_UNIX)
                c.connect(server.socket)
                crowd.append(c)
            self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
            before = server.cpu_seconds()
            client.ping()
            time.sleep(0.5)    # a server that spins on accept would use this time
            client.ping()
            self.assertLess(server.cpu_seconds() - before, 0.4)
            for c in crowd:
                c.close()
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                try:
                    with Client(server.socket) as late:
                        late.ping()
                    break
                except (ConnectionLost, OSError):
                    continue
            self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
            server.stop()

    def test_a_full_disk_under_the_log_does_not_stop_serving(self):
        def file_size_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        with tempfile.TemporaryDirectory() as directory:
            for stderr, limit in ((open("/dev/full", "wb"), None), (open(f"{directory}/log", "wb"), file_size_limit)):
                path = f"{directory}/s"
                with stderr:
                    process = subprocess.Popen([GIMBAL, "serve", str(MODEL), "--socket", path, "--kv-cache-memory", "64M"], stderr=stderr,
                                               env=clean_environment(), preexec_fn=limit)
                try:
                    deadline = time.monotonic() + PATIENCE
                    while not os.path.exists(path) and time.monotonic() < deadline and process.poll() is None:
                        time.sleep(0.01)
                    with Client(path) as client:
                        self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
                    process.send_signal(signal.SIGTERM)
                    self.assertEqual(process.wait(PATIENCE), 0)
                finally:
                    process.kill()
                    process.wait()

    def test_generate_into_a_file_that_may_not_grow_says_so(self):
        with tempfile.TemporaryDirectory() as directory, open(f"{directory}/out", "wb") as out:
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
            done = gimbal("generate", MODEL, "--chat", "--prompt", "What is the capital of France?", stdout=out, stderr=subprocess.PIPE,
                          preexec_fn=limit)
            self.assertEqual(done.returncode, 74)
            self.assertIn("File too large", done.stderr.decode())

    def test_a_log_reader_that_stops_does_not_stop_the_server(self):
        with Server("--log-level", "debug") as server:
            server.pause_reading()
            with Client(server.socket) as client:
                for i in range(500):    # each load is a line of log; a pipe holds a few hundred
                    client.policy_load(name=f"p{i % 7}", source="return { api = 1, name = 'p', select_engine = function() return 0 end }")
                self.assertEqual(client.generate(messages=QUESTION, temperature=0)["text"], ANSWER)
            server.resume_reading()
            server.stop()


class Commands(unittest.TestCase):
    def test_rpc_prints_answers_and_events_as_lines_of_json(self):
        with Server() as server:
            whole = server.rpc("generate", {"messages": QUESTION, "sampling": {"temperature": 0}})
            self.assertEqual([line["text"] for line in whole], [ANSWER])
            lines = server.rpc("generate", {"messages": QUESTION, "sampling": {"temperature": 0}, "stream": True})
            self.assertIn("request_id", lines[0])
            self.assertEqual(lines[-1]["event"], "done")
            self.assertEqual("".join(line["params"]["text"] for line in lines[1:-1]), ANSWER)
            done = gimbal("rpc", "--socket", server.socket, "generat")
            self.assertEqual(done.returncode, 1)
            self.assertIn("generate", done.stderr.decode())

    def test_rpc_reads_parameters_from_standard_input(self):
        with Server() as server:
            done = gimbal("rpc", "--socket", server.socket, "tokenize", "-", input=b'{"text": "a b"}')
            self.assertIn(b'"tokens"', done.stdout)

    def test_policies_are_listed_loaded_and_activated(self):
        with Server() as server, tempfile.TemporaryDirectory() as directory:
            policy = lambda *args: gimbal("policy", *args, "--socket", server.socket)
            self.assertIn("gimbal", policy("list").stdout.decode())
            path = f"{directory}/mine.lua"
            with open(path, "w", encoding="utf-8") as file:
                file.write("return { api = 1, name = 'mine', select_engine = function(request, engines) return 0 end }\n")
            self.assertIn("loaded as version", policy("load", path).stdout.decode())
            self.assertEqual(policy("activate", "mine").returncode, 0)
            self.assertRegex(policy("list").stdout.decode(), r"mine +active .* select_engine\*")
            self.assertEqual(policy("activate", "builtin", "--hook", "select_engine").returncode, 0)
            self.assertNotRegex(policy("list").stdout.decode(), r"mine +active")
            self.assertEqual(policy("load", path, "--activate", "--name", "yours").returncode, 0)
            self.assertRegex(policy("list").stdout.decode(), r"yours +active .* select_engine\*")
            with open(path, "w", encoding="utf-8") as file:
                file.write("return {\n")
            done = policy("load", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn("mine", done.stderr.decode())
            self.assertEqual(policy("activate", "nobody").returncode, 1)
            self.assertEqual(policy("load", f"{directory}/none.lua").returncode, 64)

    def test_api_info_needs_no_server_and_says_what_the_server_says(self):
        import json
        offline = json.loads(gimbal("api-info").stdout)
        with Server() as server:
            self.assertEqual(server.rpc("api_info")[0], offline)
        self.assertIn("## ", gimbal("api-info", "--markdown").stdout.decode())


if __name__ == "__main__":
    main()
