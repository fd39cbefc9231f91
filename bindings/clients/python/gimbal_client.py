"""A client of gimbal's msgpack-RPC (docs/rpc.md). One file; needs only the package `msgpack`.

    from gimbal_client import Client

    with Client("/run/gimbal.sock") as gimbal:                       # or "127.0.0.1:7400", auth="the key"
        print(gimbal.generate("The capital of France is", max_tokens=16)["text"])
        for event in gimbal.generate("Once upon a time", stream=True, temperature=0.8):
            print(event["text"], end="", flush=True)
        print(gimbal.engine_list()["engines"])                       # every method by its name
        for event in gimbal.subscribe(["stats"], min_interval_ms=500):
            print(event["data"]["running"])

Calls block. Several streams may be open at once on one client and be read in any order: what arrives for another one is kept
for it. Leaving a stream before its end (break, close, an exception) aborts its request. Errors of the server are GimbalError
with code, name and data. A client belongs to one thread.
"""

import collections
import os
import socket
import struct

import msgpack

SAMPLING = {
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "max_tokens",
    "min_tokens", "stop", "stop_token_ids", "ignore_eos", "include_stop", "logprobs",
}
DEFAULT_WINDOW = 64
MATRIX_EXT = 1
MATRIX_FORMATS = "IQfd"  # by dtype: u32, u64, f32, f64


class GimbalError(Exception):
    """What the server said: code (docs/rpc.md, Errors), name ("INVALID_PARAMS"), message and data ({"path": ...} or None)."""

    def __init__(self, code, name, message, data=None):
        super().__init__(f"{name}: {message}")
        self.code, self.name, self.message, self.data = code, name, message, data

    @classmethod
    def of(cls, error):
        return cls(error["code"], error["name"], error["message"], error.get("data"))


class ConnectionLost(Exception):
    """The connection ended: closed by the server, or it timed out."""


def decode_ext(code, data):
    """Ext type 1 is a matrix: a memoryview with a shape (m[0, 1, 5], m.tolist(), numpy.asarray(m))."""
    if code != MATRIX_EXT:
        return msgpack.ExtType(code, data)
    dtype, n_dims, _ = struct.unpack_from("<BBH", data)
    dims = struct.unpack_from(f"<{n_dims}I", data, 4)
    return memoryview(data)[4 + 4 * n_dims:].cast(MATRIX_FORMATS[dtype], shape=list(dims))


def open_socket(address, timeout):
    """"/path" or "unix:/path"; "host:port" or "tcp:host:port"."""
    if address.startswith("unix:") or "/" in address:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(address.removeprefix("unix:"))
        except OSError:
            sock.close()
            raise
        return sock
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    sock = socket.create_connection((host.strip("[]"), int(port)), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Stream:
    """The token events of one request: {seq, text, tokens, logprobs?}. After the end, `done` holds finish_reason, usage and
    timings. Iterate it once; `close()` aborts what is not finished."""

    def __init__(self, client, accepted, window):
        self.request_id, self.prompt_tokens, self.engine = accepted["request_id"], accepted["prompt_tokens"], accepted["engine"]
        self.done = None
        self._client, self._events, self._ended = client, client._events[self.request_id], False
        self._window, self._unacked = window, 0

    def __iter__(self):
        try:
            while not self._ended:
                event = self._next()
                if event is not None:
                    yield event
        finally:
            self.close()

    def _next(self):
        while not self._events:
            self._client._receive()
        name, event = self._events.popleft()
        if name == "token":
            self._unacked += 1
            # At half the window, so that the server never waits for a reader that keeps up.
            if self._window and 2 * self._unacked >= self._window:
                self._client.notify("ack", request_id=self.request_id, n=self._unacked)
                self._unacked = 0
            return event
        self._ended = True
        self._client._events.pop(self.request_id, None)
        if name == "failed":
            raise GimbalError.of(event["error"])
        self.done = event
        return None

    def read(self):
        """The rest of the text."""
        return "".join(event["text"] for event in self)

    def close(self):
        if self._ended:
            return
        self._ended = True
        self._client._forget(self.request_id)
        self._client.notify("abort", request_id=self.request_id)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Subscription:
    """Snapshots of topics: {topic, seq, skipped, data}, acknowledged as they are read. Endless; `close()` unsubscribes."""

    def __init__(self, client, sub_id):
        self.sub_id, self._client, self._open = sub_id, client, True
        self._events = client._events[sub_id]

    def __iter__(self):
        try:
            while self._open:
                while not self._events:
                    self._client._receive()
                _, event = self._events.popleft()
                if not self._events:
                    self._client.notify("ack", sub_id=self.sub_id)
                yield event
        finally:
            self.close()

    def close(self):
        if not self._open:
            return
        self._open = False
        self._client._forget(self.sub_id)
        self._client.notify("unsubscribe", sub_id=self.sub_id)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Client:
    """One connection. `hello` holds what the server said of itself; `goaway` the reason once it takes no new requests."""

    def __init__(self, address=None, auth=None, timeout=None):
        address = address or os.environ.get("GIMBAL_SOCKET")
        if not address:
            raise ValueError("give the address of a server, or set GIMBAL_SOCKET")
        self._socket = open_socket(address, timeout)
        self._unpacker = msgpack.Unpacker(ext_hook=decode_ext, max_buffer_size=64 << 20)
        self._msgid = 0
        self._answers = {}                                      # msgid -> (error, result), not asked for yet
        self._events = collections.defaultdict(collections.deque)   # request_id or sub_id -> (name, map)
        self._forgotten = set()                                 # request ids whose last events nobody waits for
        self.goaway = None
        try:
            self.hello = self.call("hello", client="gimbal_client.py", auth=auth)
        except BaseException:
            self.close()
            raise

    # --- calls ---

    def call(self, method, /, **params):
        """Calls a method and returns its result; parameters that are None are left out."""
        return self.wait(self.send(method, **params))

    def send(self, method, /, **params):
        """Calls without waiting; `wait` takes what this returns."""
        self._msgid = (self._msgid + 1) & 0xFFFFFFFF
        self._write([0, self._msgid, method, [self._given(params)]])
        return self._msgid

    def wait(self, msgid):
        while msgid not in self._answers:
            self._receive()
        error, result = self._answers.pop(msgid)
        if error is not None:
            raise GimbalError.of(error)
        return result

    def notify(self, method, /, **params):
        self._write([2, method, [self._given(params)]])

    def __getattr__(self, method):
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda **params: self.call(method, **params)

    def generate(self, prompt=None, *, stream=False, window=DEFAULT_WINDOW, sampling=None, **params):
        """The whole result, or with stream=True a Stream. Sampling values may be given by name: max_tokens=16."""
        sampling = {**(sampling or {}), **{name: params.pop(name) for name in SAMPLING & params.keys()}}
        result = self.call("generate", prompt=prompt, stream=stream, window=window, sampling=self._given(sampling), **params)
        if not stream:
            return result
        return Stream(self, result, window)

    def subscribe(self, topics, min_interval_ms=None):
        result = self.call("subscribe", topics=list(topics), min_interval_ms=min_interval_ms, ack=True)
        return Subscription(self, result["sub_id"])

    def close(self):
        """Closing aborts what is still running, unless it was detached."""
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- the wire ---

    @staticmethod
    def _given(params):
        return {name: value for name, value in params.items() if value is not None}

    def _write(self, message):
        try:
            self._socket.sendall(msgpack.packb(message))
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def _receive(self):
        """Waits for bytes and sorts what they complete."""
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not data:
            raise ConnectionLost("the server closed the connection")
        self._unpacker.feed(data)
        for message in self._unpacker:
            self._sort(message)

    def _sort(self, message):
        if message[0] == 1:
            self._answers[message[1]] = (message[2], message[3])
            if isinstance(message[3], dict):
                self._forgotten.discard(message[3].get("request_id"))  # a new request of that name: its events come next
            return
        name, event = message[1], message[2][0]
        if name in ("token", "done", "failed"):
            self._keep(event["request_id"], name, event)
        elif name == "event":
            self._keep(event["sub_id"], name, event)
        elif name == "goaway":
            self.goaway = event["reason"]
        elif name == "error_event" and "method" not in event:  # the server closes the connection after it
            raise GimbalError(event["code"], event["name"], event["message"])

    def _keep(self, key, name, event):
        if key not in self._forgotten:
            self._events[key].append((name, event))
        elif name in ("done", "failed"):
            self._forgotten.discard(key)

    def _forget(self, key):
        self._events.pop(key, None)
        self._forgotten.add(key)
