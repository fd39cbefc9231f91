"""Sends two kinds of traffic, one after the other, and shows how far apart they lean in the expert matrix.

usage: expert_matrix.py SOCKET

against `gimbal serve examples/models/tiny-moe --socket SOCKET --window-rounds 1000000` (a window long enough for all of it)
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/clients/python"))
from gimbal_client import Client  # noqa: E402

TRAFFIC = {
    "German": ["Heute ist", "Heute ist das Wetter", "Morgen fährt"],
    "Bible": ["And the LORD said", "In the beginning", "And it came to pass"],
}
SHADES = " ▁▂▃▄▅▆▇█"


def counts(client):
    """B[layer][expert]: the matrix of the running window, summed over sources."""
    a = client.expert_matrix(window=0)["A"].tolist()
    return [[sum(column) for column in zip(*layer)] for layer in a]


def routed_by(client, prompts):
    """What these prompts add to the counts."""
    before = counts(client)
    for seed, prompt in enumerate(prompts * 4):
        client.generate(prompt, max_tokens=40, temperature=0.8, seed=seed)
    return [[b - a for a, b in zip(*rows)] for rows in zip(before, counts(client))]


def distance(p, q):
    """Total variation distance of two distributions given as counts: 0 = the same experts, 1 = no expert in common."""
    return sum(abs(x / sum(p) - y / sum(q)) for x, y in zip(p, q)) / 2


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with Client(sys.argv[1]) as client:
        routed = {name: routed_by(client, prompts) for name, prompts in TRAFFIC.items()}
    first, second = routed
    for layer, (p, q) in enumerate(zip(*routed.values())):
        for name, row in ((first, p), (second, q)):
            print(f"layer {layer} {name:8} |{''.join(SHADES[round(8 * x / max(row))] for x in row)}|")
        print(f"layer {layer} distance {distance(p, q):.2f}")


if __name__ == "__main__":
    main()
