"""The Python client against the fixture behind sockets; with_server.sh starts it. Exit code 77: msgpack is not installed."""

import json
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings/clients/python"))
try:
    import msgpack
    from gimbal_client import Client, ConnectionLost, GimbalError, decode_ext
except ImportError:
    print("the Python package msgpack is not installed")
    sys.exit(77)

ANSWER = "The capital of France is Paris."


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.client = Client()  # $GIMBAL_SOCKET
        self.addCleanup(self.client.close)

    def test_a_call_returns_the_result(self):
        result = self.client.generate("Where is Paris?", request_id="mine")
        self.assertEqual((result["text"], result["request_id"], result["finish_reason"]), (ANSWER, "mine", "stop"))

    def test_sampling_values_may_be_given_by_name(self):
        self.assertEqual(self.client.generate("x", max_tokens=3, sampling={"temperature": 0})["text"], "The")

    def test_errors_have_code_name_and_data(self):
        with self.assertRaises(GimbalError) as raised:
            self.client.generate("x", max_tokens=0)
        self.assertEqual((raised.exception.code, raised.exception.name), (-32602, "INVALID_PARAMS"))
        self.assertEqual(raised.exception.data, {"path": "sampling.max_tokens"})

    def test_a_stream_yields_the_text_and_ends_with_done(self):
        for window in (0, 1, 2, 64):
            stream = self.client.generate("x", stream=True, window=window)
            self.assertEqual("".join(event["text"] for event in stream), ANSWER)
            self.assertEqual(stream.done["usage"]["completion_tokens"], 32)

    def test_streams_of_one_client_do_not_mix(self):
        streams = [self.client.generate("x", stream=True, window=3, max_tokens=n) for n in range(1, 20)]
        for n, stream in reversed(list(enumerate(streams, 1))):
            self.assertEqual(stream.read(), ANSWER[:n])

    def test_calls_may_be_sent_first_and_awaited_in_any_order(self):
        msgids = [self.client.send("generate", prompt="x", sampling={"max_tokens": n}) for n in range(1, 10)]
        for n, msgid in reversed(list(enumerate(msgids, 1))):
            self.assertEqual(self.client.wait(msgid)["text"], ANSWER[:n])

    def test_leaving_a_stream_aborts_its_request(self):
        for event in self.client.generate("x", stream=True, window=1, request_id="left"):
            break
        self.assertEqual(self.client.abort(request_id="left")["aborted"], 0)
        self.assertNotIn("left", [request.get("request_id") for request in self.client.request_list()["requests"]])
        with self.client.generate("x", stream=True, request_id="left"):
            pass  # its name is free again, and it is left unread
        self.assertEqual(self.client.generate("x", stream=True, request_id="left").read(), ANSWER)

    def test_an_abort_from_elsewhere_raises_in_the_stream(self):
        stream = self.client.generate("x", stream=True, window=1, request_id="cut")
        with Client() as other:
            self.assertEqual(other.abort(request_id="cut")["aborted"], 1)
        with self.assertRaises(GimbalError) as raised:
            stream.read()
        self.assertEqual(raised.exception.name, "ABORTED")

    def test_subscriptions_yield_snapshots(self):
        for event in self.client.subscribe(["stats"], min_interval_ms=10):
            self.assertEqual(event["topic"], "stats")
            if event["seq"] == 2:
                break
            self.client.generate("x")
        self.assertEqual(self.client.ping().keys(), {"t_mono_ns"})

    def test_matrices_are_views_with_a_shape(self):
        self.client.generate("x")
        result = self.client.expert_matrix()
        self.assertEqual((result["A"].shape, result["B"].shape), ((2, 2, 8), (2, 8)))
        self.assertEqual(result["A"][0, 0, 0] + result["A"][0, 1, 0], result["B"][0, 0])

    def test_tcp_needs_the_key_and_the_token_makes_an_admin(self):
        address = os.environ["GIMBAL_TCP"]
        for wrong in (None, "wrong"):
            with self.assertRaises(GimbalError) as raised:
                Client(address, auth=wrong)
            self.assertEqual(raised.exception.name, "UNAUTHENTICATED")
        with Client("tcp:" + address, auth="the key") as user:
            self.assertFalse(user.hello["admin"])
            self.assertEqual(user.generate("x")["text"], ANSWER)
            with self.assertRaises(GimbalError) as raised:
                user.policy_load(source="return {}")
            self.assertEqual(raised.exception.name, "FORBIDDEN")
        with Client(address, auth="the token") as admin:
            self.assertTrue(admin.hello["admin"])

    def test_nobody_there_is_an_error(self):
        with self.assertRaises(OSError):
            Client("/nonexistent/gimbal.sock")

    def test_a_connection_that_the_server_closes_is_lost(self):
        self.client._socket.sendall(b"\xc1")
        with self.assertRaises(GimbalError) as raised:
            self.client.ping()
        self.assertEqual(raised.exception.name, "PARSE")
        with self.assertRaises(ConnectionLost):
            self.client.ping()

    def test_the_codec_agrees_with_the_vectors(self):
        vectors = json.loads((ROOT / "tests/rpc/vectors.json").read_text())["calls"]
        for vector in vectors:
            request, response = bytes.fromhex(vector["request_hex"]), bytes.fromhex(vector["response_hex"])
            self.assertEqual(msgpack.packb(vector["request"]), request, vector["name"])
            decoded = msgpack.unpackb(response, ext_hook=lambda code, data: decode_ext(code, data).tolist())
            self.assertEqual(decoded, vector["response"], vector["name"])


class ZShutdown(unittest.TestCase):
    def test_shutdown_comes_last(self):
        with Client() as client:
            client.shutdown()


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    print(f"{result.testsRun - len(result.failures) - len(result.errors)} passed, {len(result.failures) + len(result.errors)} failed")
    sys.exit(not result.wasSuccessful())
