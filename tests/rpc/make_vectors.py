"""Writes vectors.json: calls as JSON and as bytes, with the responses of the fixture server, and bytes that are no calls. Run it
with with_server.sh when the interface has changed (needs the package msgpack); look at the difference before committing.

    tests/rpc/with_server.sh build/release/tests/rpc_fixture_server python3 tests/rpc/make_vectors.py
"""

import json
import os
import pathlib
import socket

import msgpack

CALLS = [
    ("ping with an empty map", "ping", {}),
    ("text to tokens", "tokenize", {"text": "h\u00e9\U0001f600 <|end|>"}),
    ("no text, no tokens", "tokenize", {"text": ""}),
    ("tokens to text", "detokenize", {"tokens": [104, 195, 169, 240, 159, 152, 128]}),
    ("bytes that are no text", "detokenize", {"tokens": [240, 159, 97, 255]}),
    ("a chat to its prompt", "apply_template", {"messages": [{"role": "user", "content": "hi"}]}),
    ("a whole result", "generate", {"prompt": "Where is Paris?", "request_id": "whole", "sampling": {"temperature": 0, "max_tokens": 100}}),
    ("a prompt of ids, ended by length", "generate", {"tokens": [1, 2, 3], "request_id": "ids", "sampling": {"max_tokens": 4}}),
    ("ended by a stop text", "generate", {"prompt": "x", "request_id": "stop", "sampling": {"stop": [" of"]}}),
    ("log probabilities", "generate", {"prompt": "x", "request_id": "logprobs", "sampling": {"max_tokens": 2, "logprobs": 2}}),
    ("abort of nothing", "abort", {"request_id": "nobody"}),
    ("a call without parameters where one is required", "tokenize", {}),
    ("a wrong type", "tokenize", {"text": 5}),
    ("a value out of range", "generate", {"prompt": "x", "sampling": {"max_tokens": 0}}),
    ("a negative value", "generate", {"prompt": "x", "sampling": {"max_tokens": -1}}),
    ("a slip of a name", "generate", {"promt": "x"}),
    ("a name in the wrong map", "generate", {"prompt": "x", "max_tokens": 5}),
    ("an unknown name is ignored", "abort", {"request_id": "nobody", "unheard_of": [None, True, 1.5]}),
    ("nil is absent", "abort", {"request_id": "nobody", "all": None}),
    ("an empty prompt", "generate", {"prompt": ""}),
    ("a token out of range", "generate", {"tokens": [0, 257]}),
    ("a prompt longer than the context", "generate", {"tokens": [7] * 256}),
    ("an unknown method", "generat", {}),
    ("an unknown version of the placement", "placement_get", {"version": 99}),
    ("where the experts live", "placement_get", {}),
    ("an unknown policy", "policy_get", {"version": 4000000000}),
    ("a policy that does not compile", "policy_load", {"name": "bad", "source": "return {"}),
    ("an unknown topic", "subscribe", {"topics": ["weather"]}),
    ("a subscription that is not there", "unsubscribe", {"sub_id": 9007199254740992}),
]

# Bytes that end the connection, and the code of the error_event that says why.
REFUSED = [
    ("the byte that msgpack never uses", "c1", -32700),
    ("an array of 83 million", "dd04f27f80", -32700),
    ("a map of four billion", "dfffffffff", -32700),
    ("a string of two gigabytes", "db7fffffff", -32700),
    ("nesting a thousand deep", "91" * 1000, -32700),
    ("a number", "05", -32600),
    ("an empty array", "90", -32600),
    ("a request without a method", "940001c090", -32600),
    ("a response", "940101c0c0", -32600),
    ("a message of an unknown kind", "9303a470696e6790", -32600),
]

# Values of these keys differ between runs.
CHANGING = ["t_mono_ns", "queued_ms", "prefill_ms", "decode_ms", "total_ms"]


def matrix(code, data):
    n_dims = data[1]
    dims = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "little") for i in range(n_dims)]
    return memoryview(data)[4 + 4 * n_dims:].cast("IQfd"[data[0]], shape=dims).tolist()


def main():
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.environ["GIMBAL_SOCKET"])
    server.sendall(msgpack.packb([0, 0, "hello", [{}]]))
    server.recv(1 << 16)
    calls = []
    for msgid, (name, method, params) in enumerate(CALLS, 1):
        request = [0, msgid, method, [params]]
        data = msgpack.packb(request)
        server.sendall(data)
        answer, whole = b"", None
        while whole is None:
            answer += server.recv(1 << 16)
            try:
                whole = msgpack.unpackb(answer, ext_hook=matrix)
            except ValueError:
                pass
        calls.append({"name": name, "request": request, "request_hex": data.hex(), "response": whole, "response_hex": answer.hex()})
    refused = [{"name": name, "hex": data, "code": code} for name, data, code in REFUSED]
    server.sendall(msgpack.packb([0, 999, "shutdown", [{}]]))
    server.recv(1 << 16)
    lines = {name: ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors) for name, vectors in (("calls", calls), ("refused", refused))}
    path = pathlib.Path(__file__).with_name("vectors.json")
    path.write_text(f'{{"changing": {json.dumps(CHANGING)},\n"calls": [\n{lines["calls"]}\n],\n"refused": [\n{lines["refused"]}\n]}}\n')


if __name__ == "__main__":
    main()
