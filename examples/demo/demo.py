"""The demo: gimbal serves the bundled model over two engines and four expert ranks, and shows what it does.

usage: demo.py GIMBAL_BINARY MODEL_DIR        (./dev demo runs it)
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/clients/python"))
from gimbal_client import Client, ConnectionLost, GimbalError  # noqa: E402

USER = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
DOMAINS = {
    "story": ["Once upon a time", "Once upon a time, there was a little fox", "One day, Mia found"],
    "question": [USER.format(q) for q in ("What is the capital of France?", "What is 7 plus 8?", "Which day comes after Monday?", "What is the opposite of hot?")],
    "C": ["static int sum_", "#include <stdio.h>\n", "static int max_"],
    "Lua": ["local policy =", "local function ", "function policy."],
    "JSON": ['{"id": 17, "name": "', '{"time": "', '{"level": "'],
    "German": ["Heute ist", "Heute ist das Wetter", "Morgen fährt"],
    "Bible": ["And the LORD said", "In the beginning", "And it came to pass"],
}
STREAMS = 64
TOKENS = 48
SHADES = " ▁▂▃▄▅▆▇█"

ROTATE = """
local policy = { api = 1, name = "demo_rotate" }
function policy.select_engine(request, engines) return engines.next end
return policy
"""


class Stream(threading.Thread):
    """One streaming request on its own connection, with its times."""

    def __init__(self, path, domain, prompt, seed, leave_after=None):
        super().__init__(daemon=True)
        self.path, self.domain, self.prompt, self.seed, self.leave_after = path, domain, prompt, seed, leave_after
        self.text, self.seqs, self.times, self.tokens = "", [], [], 0
        self.finish = self.error = self.usage = None

    def run(self):
        try:
            with Client(self.path) as client:
                self.started = time.monotonic()
                with client.generate(self.prompt, stream=True, max_tokens=TOKENS, temperature=0.7, seed=self.seed) as stream:
                    self.read(stream)
        except (GimbalError, ConnectionLost) as error:
            self.error = error

    def read(self, stream):
        for event in stream:
            self.times.append(time.monotonic())
            self.seqs.append(event["seq"])
            self.text += event["text"]
            self.tokens += len(event["tokens"])
            if self.leave_after and self.tokens >= self.leave_after:
                self.finish = "aborted"
                return    # leaving the stream aborts the request
        self.finish, self.usage = stream.done["finish_reason"], stream.done["usage"]

    @property
    def whole(self):
        """Nothing lost: no gap in the numbers, and as many tokens as the server says it sent."""
        return self.seqs == list(range(len(self.seqs))) and (not self.usage or self.usage["completion_tokens"] == self.tokens)

    @property
    def ttft_ms(self):
        return (self.times[0] - self.started) * 1e3

    @property
    def tpot_ms(self):
        return (self.times[-1] - self.times[0]) * 1e3 / max(1, self.tokens - 1)


class Server:
    """gimbal serve on a private socket; its log goes to a file that is shown when it fails."""

    def __init__(self, binary, model, folder):
        self.path, self.log = f"{folder}/gimbal.sock", open(f"{folder}/log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [binary, "serve", model, "--data-parallel-size", "2", "--expert-parallel-size", "4", "--socket", self.path],
            stderr=self.log, stdout=self.log)

    def wait(self, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                with Client(self.path) as client:
                    client.ping()
                    return
            except (OSError, GimbalError, ConnectionLost):
                time.sleep(0.05)
        self.log.seek(0)
        sys.exit("the server did not start:\n" + self.log.read())

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)


def heading(text):
    print(f"\n\033[1m{text}\033[0m")


def show_answers(path):
    heading("Questions, answered by the bundled model (greedy)")
    with Client(path) as client:
        for question in ("What is the capital of France?", "What is 7 plus 8?", "Which day comes after Monday?"):
            answer = client.generate(messages=[{"role": "user", "content": question}],
                                     max_tokens=32, temperature=0)
            print(f"  {question:34} {answer['text'].strip()}")
            if "France" in question and "Paris" not in answer["text"]:
                sys.exit("the bundled model did not know the capital of France: its arithmetic is wrong")


def start_streams(path):
    streams = []
    for i in range(STREAMS):
        domain = list(DOMAINS)[i % len(DOMAINS)]
        prompts = DOMAINS[domain]
        leave = 6 if i % 16 == 15 else None
        streams.append(Stream(path, domain, prompts[i // len(DOMAINS) % len(prompts)], i, leave))
    for stream in streams:
        stream.start()
    return streams


def swap_policy(client, streams):
    while sum(s.tokens for s in streams) < STREAMS and any(s.is_alive() for s in streams):
        time.sleep(0.002)
    flowing = sum(1 for s in streams if s.times and s.is_alive())
    loaded = client.policy_load(name="demo_rotate", source=ROTATE)
    client.policy_activate(version=loaded["version"], hook="select_engine")
    print(f"  replaced select_engine by demo_rotate (version {loaded['version']}) while {flowing} streams were flowing")


def show_traces(client):
    columns = ("running", "waiting", "running_prefill_tokens", "waiting_prefill_tokens", "kv_used_ratio", "moe_pressure")
    print("  engine" + "".join(f"{c:>24}" for c in columns))
    for engine in client.engine_list()["engines"]:
        print(f"  {engine['id']:6}" + "".join(f"{engine[c]:24.2f}" if isinstance(engine[c], float) else f"{engine[c]:24}" for c in columns))


def show_matrix(client):
    heading("Which engine's tokens went to which expert: A[layer][source][expert], darker is more")
    matrix = client.expert_matrix()["A"]
    layers, sources, experts = matrix.shape
    for layer in range(layers):
        for source in range(sources):
            row = [matrix[layer, source, e] for e in range(experts)]
            top = max(row) or 1
            print(f"  layer {layer} source {source} |{''.join(SHADES[round(8 * x / top)] for x in row)}| {sum(row)} tokens")


def check(streams):
    lost = [s for s in streams if not s.whole]
    failed = [s for s in streams if s.error or not s.finish]
    for s in failed:
        print(f"  failed: {s.domain}: {s.error}")
    if lost or failed:
        sys.exit(f"demo failed: {len(lost)} streams lost tokens, {len(failed)} did not finish")


def show_samples(streams):
    heading("What came back (one of each domain)")
    for domain in DOMAINS:
        sample = next(s for s in streams if s.domain == domain and s.finish != "aborted")
        text = (sample.prompt + "→" + sample.text).replace("\n", "⏎")
        print(f"  {domain:9} {text[:110]}")


def show_table(streams, seconds):
    heading("Streams")
    print(f"  {'domain':10}{'requests':>9}{'aborted':>9}{'tokens':>8}{'TTFT ms p50':>13}{'TPOT ms p50':>13}")
    for domain in (*DOMAINS, "all"):
        chosen = [s for s in streams if domain in (s.domain, "all")]
        aborted = sum(s.finish == "aborted" for s in chosen)
        tokens = sum(s.tokens for s in chosen)
        ttft, tpot = (statistics.median(getattr(s, k) for s in chosen if s.times) for k in ("ttft_ms", "tpot_ms"))
        print(f"  {domain:10}{len(chosen):9}{aborted:9}{tokens:8}{ttft:13.1f}{tpot:13.2f}")
    total = sum(s.tokens for s in streams)
    print(f"  {total} tokens in {seconds:.2f} s = {total / seconds:.0f} tokens/s over {STREAMS} streams")


def main():
    binary, model = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="gimbal-") as folder:
        server = Server(binary, model, folder)
        try:
            server.wait()
            show_answers(server.path)
            heading(f"{STREAMS} concurrent streams from seven domains, two engines, four expert ranks")
            started = time.monotonic()
            streams = start_streams(server.path)
            with Client(server.path) as client:
                swap_policy(client, streams)
                show_traces(client)
                for s in streams:
                    s.join()
                seconds = time.monotonic() - started
                check(streams)
                show_samples(streams)
                show_matrix(client)
                show_table(streams, seconds)
                stats = client.server_stats()
        finally:
            code = server.stop()
    if code != 0:
        sys.exit(f"the server ended with {code}")
    aborted = sum(s.finish == "aborted" for s in streams)
    print(f"  server: {stats['accepted']} accepted, {stats['finished']} finished, {stats['aborted']} aborted, {stats['failed']} failed,"
          f" {stats['policy_faults']} policy faults; {aborted} streams were aborted by the demo")
    print("demo ok")


if __name__ == "__main__":
    main()
