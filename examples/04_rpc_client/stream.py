"""One streaming request from Python.      usage: stream.py ADDRESS [PROMPT]"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/clients/python"))
from gimbal_client import Client  # noqa: E402


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    prompt = sys.argv[2] if len(sys.argv) > 2 else "Once upon a time"
    with Client(sys.argv[1]) as client:
        stream = client.generate(prompt, stream=True, max_tokens=60)
        print(f"engine {stream.engine}, {stream.prompt_tokens} prompt tokens\n{prompt}", end="")
        for event in stream:
            print(event["text"], end="", flush=True)
        print(f"\n{stream.done['finish_reason']}: {stream.done['usage']['completion_tokens']} tokens")


if __name__ == "__main__":
    main()
