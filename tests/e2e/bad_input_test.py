"""Bytes that no client should send, to the real server over a real socket: each gets one clear error, and the server lives."""

import socket
import unittest

from harness import PATIENCE, Server, main, need_msgpack

need_msgpack()
import msgpack    # noqa: E402

from gimbal_client import Client, GimbalError    # noqa: E402

HELLO = msgpack.packb([0, 1, "hello", [{}]])
PARSE, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, TOO_LARGE, CONTEXT_LENGTH = -32700, -32600, -32601, -32602, 1011, 1006


def call(method, *params):
    return msgpack.packb([0, 2, method, list(params)])


class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", "256")

    @classmethod
    def tearDownClass(cls):
        try:
            with Client(cls.server.socket) as client:
                assert client.generate("x", max_tokens=1)["usage"]["completion_tokens"] == 1
                stats = client.server_stats()
                assert stats["live"] == 0 and stats["blocks_used"] == 0, stats
            cls.server.stop()
        finally:
            cls.server.close()

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(PATIENCE)
        s.connect(self.server.socket)
        return s

    def replies(self, data):
        """What comes back behind the answer to hello until the server closes, once nothing more is sent."""
        unpacker = msgpack.Unpacker()
        with self.connect() as s:
            try:
                s.sendall(HELLO + data)
                s.shutdown(socket.SHUT_WR)
            except BrokenPipeError:    # it closed while there was more to send
                pass
            try:
                while part := s.recv(1 << 16):
                    unpacker.feed(part)
            except ConnectionResetError:
                pass
        return list(unpacker)[1:]

    def check_closes(self, data, code, part):
        """An error event ends the connection: what comes behind such bytes cannot be understood."""
        (kind, name, (error,)), = self.replies(data + call("ping", {}))
        self.assertEqual((kind, name, error["code"]), (2, "error_event", code), error)
        self.assertIn(part, error["message"])

    def check_answered(self, data, code, part):
        """An error answers the call, and the next call is heard."""
        bad, good = self.replies(data + msgpack.packb([0, 3, "ping", [{}]]))
        self.assertEqual((bad[0], bad[1], bad[2]["code"]), (1, 2, code), bad)
        self.assertIn(part, bad[2]["message"])
        self.assertIsNone(good[2])

    def test_five_bytes_that_announce_millions_of_elements(self):
        for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
            self.check_closes(head + (83_000_000).to_bytes(4, "big"), PARSE, "more than the limit of 8388608")
        self.check_closes(b"\x94\x00\x02\xa4ping\xdd\xff\xff\xff\xff", PARSE, "more than the limit")

    def test_nesting_a_thousand_deep(self):
        for level in (b"\x91", b"\x81\xa1a"):
            self.check_closes(level * 1000 + b"\xc0", PARSE, "deeper than 16 levels")
            self.check_closes(b"\x94\x00\x02\xa4ping" + level * 1000 + b"\xc0", PARSE, "deeper than 16 levels")

    def test_bytes_that_are_no_message(self):
        self.check_closes(b"\xc1", PARSE, "0xc1")
        for value in (5, None, [], "text", {}, [0], [0, 1, "ping"], [7, 1, "ping", [{}]], [1, 5, None, {}], [0, -1, "ping", [{}]], [0, 2 ** 32, "ping", [{}]],
                      [0, "1", "ping", [{}]], [0, 1.0, "ping", [{}]], [0, 2, 7, [{}]], [0, 2, b"ping", [{}]], [2, "ping", [{}], 1]):
            self.check_closes(msgpack.packb(value), INVALID_REQUEST, "a message must be")

    def test_a_message_beyond_the_limit_is_refused_by_its_head(self):
        self.check_closes(call("tokenize", {"text": "a" * 9_000_000}), PARSE, "announces at least")

    def test_frames_cut_at_every_byte(self):
        frame = HELLO + call("generate", {"prompt": "Once upon a time", "stream": True, "sampling": {"max_tokens": 2, "seed": 2 ** 63 - 1, "stop": ["a", "b"]}})
        for cut in range(len(frame)):
            with self.connect() as s:
                s.sendall(frame[:cut])
        unpacker, events = msgpack.Unpacker(), []
        with self.connect() as s:
            for byte in frame:
                s.send(bytes([byte]))
            while not any(event[1] in ("done", "failed") for event in events):
                unpacker.feed(s.recv(1 << 16))
                events += unpacker
        self.assertEqual(events[-1][1], "done")

    def test_methods_and_parameters_that_do_not_exist(self):
        self.check_answered(call("generat", {}), NO_METHOD, "did you mean generate?")
        self.check_answered(call("", {}), NO_METHOD, "there is no method")
        self.check_answered(call("x" * 100_000, {}), NO_METHOD, "there is no method xxx")
        self.check_answered(call("\x1b[31m\0\n", {}), NO_METHOD, "there is no method ?[31m")
        self.check_answered(msgpack.packb([0, 2, "ping", {}]), INVALID_PARAMS, "an array of one map")
        self.check_answered(call("ping", {}, {}), INVALID_PARAMS, "an array of one map")
        self.check_answered(call("generate", {1: 2}), INVALID_PARAMS, "names of parameters are strings")
        self.check_answered(b"\x94\x00\x02\xa8tokenize\x91\x82\xa4text\xa1a\xa4text\xa1b", INVALID_PARAMS, "given twice")
        self.check_answered(call("generate", {"prompt": "x", "max_tokens": 1}), INVALID_PARAMS, "sampling")
        self.check_answered(call("generate", {"prompt": "x", "sampling": {"max_token": 1}}), INVALID_PARAMS, "did you mean max_tokens?")

    def test_values_of_wrong_type_or_range_are_named(self):
        for value in (0, -1, 2 ** 31, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1, -2 ** 63, 1.0, "1", True, [1], {}):
            self.check_answered(call("generate", {"prompt": "x", "sampling": {"max_tokens": value}}), INVALID_PARAMS, "sampling.max_tokens")
        for value in (float("nan"), float("inf"), -1, 101, "hot", True):
            self.check_answered(call("generate", {"prompt": "x", "sampling": {"temperature": value}}), INVALID_PARAMS, "sampling.temperature")
        for value in ([], [-1], [4096], [2 ** 31], [2 ** 63], ["a"], [1.0], "abc", {}):
            self.check_answered(call("generate", {"tokens": value}), INVALID_PARAMS, "tokens")
        for value in ("", 5, [], b"x"):
            self.check_answered(call("generate", {"prompt": value}), INVALID_PARAMS, "prompt")
        for value in ([], [{}], "x", [["user", "x"]], [{"role": "user"}], [{"role": "nobody", "content": "x"}]):
            self.check_answered(call("generate", {"messages": value}), INVALID_PARAMS, "")

    def test_prompts_beyond_the_context_are_told_both_figures(self):
        self.check_answered(call("generate", {"tokens": [1] * 256}), CONTEXT_LENGTH, "256 tokens, but the context holds 256")
        self.check_answered(call("generate", {"prompt": "a " * 500}), CONTEXT_LENGTH, "but the context holds 256")
        with Client(self.server.socket) as client:    # the last place is left to generate
            self.assertEqual(client.generate(tokens=[1] * 255, max_tokens=2 ** 31 - 1)["usage"]["completion_tokens"], 1)

    def test_a_text_of_eight_megabytes_is_counted_and_refused(self):
        for text in (" " * 8_000_000, "th" * 4_000_000):
            self.check_answered(call("tokenize", {"text": text}), TOO_LARGE, "at most")
        with Client(self.server.socket) as client, self.assertRaises(GimbalError) as refused:
            client.generate("word " * 1_000_000)
        self.assertEqual(refused.exception.name, "CONTEXT_LENGTH")


if __name__ == "__main__":
    main()
