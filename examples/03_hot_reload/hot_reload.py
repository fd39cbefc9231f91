"""Swaps policies under load and counts that nothing is lost.      usage: hot_reload.py ADDRESS [SWAPS]

Clients stream without a pause while two policies take turns; before each swap the file is loaded again as a new version, and a broken
file is tried. Then everything is counted: tokens by sequence, requests and decisions by the server's own numbers."""
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bindings/clients/python"))
from gimbal_client import Client, ConnectionLost, GimbalError  # noqa: E402

CLIENTS = 8
TOKENS = 24
SWAPS = 100
PAUSE = 0.02         # seconds between swaps: some requests for each policy
PROMPTS = ("Once upon a time", "#include <stdio.h>\n", "Heute ist das Wetter", "local policy =")
FILES = ("emptiest.lua", "turns.lua")


class Load(threading.Thread):
    """One client: greedy streams, one after the other, until told to stop."""

    def __init__(self, address, prompt, stop):
        super().__init__()
        self.address, self.prompt, self.stop = address, prompt, stop
        self.finished = self.tokens = self.gaps = 0
        self.texts, self.error = set(), None

    def run(self):
        try:
            with Client(self.address) as client:
                while not self.stop.is_set():
                    self.one_stream(client)
        except (GimbalError, ConnectionLost, OSError) as error:
            self.error = error

    def one_stream(self, client):
        stream = client.generate(self.prompt, stream=True, max_tokens=TOKENS, temperature=0)
        events = list(stream)
        tokens = sum(len(e["tokens"]) for e in events)
        whole = [e["seq"] for e in events] == list(range(len(events))) and tokens == stream.done["usage"]["completion_tokens"]
        self.gaps += not whole
        self.tokens += tokens
        self.texts.add("".join(e["text"] for e in events))
        self.finished += 1


def load(client, file):
    return client.policy_load(name=file.removesuffix(".lua"), source=(HERE / file).read_text(encoding="utf-8"))["version"]


def broken_is_refused(client):
    try:
        load(client, "broken.lua")
    except GimbalError as error:
        return str(error)
    sys.exit("the broken file was loaded")


def swap(client, swaps):
    """Returns the slowest activation in ms and what the broken file was told."""
    slowest, refusal = 0, ""
    for i in range(swaps):
        refusal = broken_is_refused(client)
        version = load(client, FILES[i % len(FILES)])
        started = time.monotonic()
        client.policy_activate(version=version)
        slowest = max(slowest, (time.monotonic() - started) * 1e3)
        time.sleep(PAUSE)
    return slowest, refusal


def counters(client):
    stats = client.server_stats()
    selection = stats["hooks"]["select_engine"]
    return {**{key: stats[key] for key in ("accepted", "finished", "failed")}, "decisions": selection["calls"],
            "left": selection["nils"], "faults": stats["policy_faults"]}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    swaps = int(sys.argv[2]) if len(sys.argv) > 2 else SWAPS
    stop = threading.Event()
    with Client(sys.argv[1]) as client:
        client.policy_activate(version=load(client, FILES[-1]))    # from here on every selection is a script's
        before = counters(client)
        loads = [Load(sys.argv[1], PROMPTS[i % len(PROMPTS)], stop) for i in range(CLIENTS)]
        for each in loads:
            each.start()
        try:
            slowest, refusal = swap(client, swaps)
        finally:
            stop.set()
            for each in loads:
                each.join()
        after = counters(client)
        client.policy_activate(version=0)    # back to the built-in
    server = {key: after[key] - before[key] for key in after}
    report(loads, server)
    print(f"swaps:   {swaps}, the slowest answered after {slowest:.1f} ms; before each the broken file was refused:\n"
          f"         {refusal.splitlines()[0]}")
    check(loads, server)


def report(loads, server):
    print(f"clients: {sum(x.finished for x in loads)} streams, {sum(x.tokens for x in loads)} tokens, {sum(x.gaps for x in loads)} streams with a gap")
    print(f"server:  {server['accepted']} accepted, {server['finished']} finished, {server['failed']} failed")
    print(f"scripts: {server['decisions']} selections, {server['left']} left to the built-in, {server['faults']} faults")


def check(loads, server):
    streams = sum(x.finished for x in loads)
    for each in loads:
        if each.error:
            sys.exit(f"a client failed: {each.error}")
        if len(each.texts) != 1:
            sys.exit(f"{each.prompt!r} was continued in {len(each.texts)} ways: a policy changed what, not only where")
    if any(x.gaps for x in loads) or server["failed"] or server["faults"]:
        sys.exit("something was lost")
    if not streams == server["accepted"] == server["finished"] == server["decisions"]:
        sys.exit("the counts differ: something was lost or done twice, or somebody else uses the server")
    print("nothing lost")


if __name__ == "__main__":
    main()
