"""Compares our tokenizer with Hugging Face `tokenizers` on random and adversarial texts, and on random ids.

usage: tokenizer_diff.py TOKENIZER_TOOL TOKENIZER_JSON [TEXTS [SEED]]

Runs the given tokenizer.json and variants of it (other split patterns, added tokens with options, ignore_merges). Exits 0
when every text and every id sequence agrees, 1 with the first that does not, 77 where `tokenizers` is not installed.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

try:
    import tokenizers
except ImportError:
    print("skipped: the Python package tokenizers is not installed (pip install tokenizers)")
    sys.exit(77)

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCabc 's't're", "0123456789 .,", " \t\n\r\u00a0\u3000\x85\u2028\u180e", "àéîõüßøåçñ",
    "\u0300\u0301\u0308\u0323\u0345\u093c\u05b0", "가각힣\u1100\u1161\u11a8", "中文字日本語", "Ωωσςάέ", "אבגד", "😀👍🏽\u200d\ufe0f🇫🇷",
    "{}[]()<>|=+-*/\\\"'`~!@#$%^&_;:?", "\u200b\u200c\u200e\ufeff\u00ad", "\x00\x07\x1b\x1c\x1f", "𝟘𝒜𐍈\U0001f9ff\U00020000",
    "'ſsStTrRvVeEmMlLdDKkİı", "ﬁﬂﬀﬆßŉǰ", "\u0958\u2126\u212a\u212b\u0340\u0341\u1f71\u0dda\u0ddc\u0dcf\u0dca",
]
WORDS = ["the", "and", " king", "policy", "local", "function", "return", "Haus", "Wetter", "isn't", "I'LL", "we'Ve", "'s", "<|im_start|>",
         "<|im_end|>", "<|endoftext|>", "<|im_end", "|>", "<tool>", "kingly", "é", "e\u0301", "naïve", "naı\u0308ve", "\n\n", "  ", "\r\n", "{\"id\": 17}"]


def any_character(r):
    while True:
        c = r.choice((r.randrange(0x110000), r.randrange(0x3000), r.randrange(0x20000)))
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def newer_letters():
    """Characters near the borders of scripts, where tables of different Unicode versions disagree."""
    return [chr(c) for c in range(0x80, 0x32400) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) == "Cn"]


NEWER = newer_letters()


def random_text(r):
    kind = r.randrange(8)
    if kind == 0:
        return "".join(r.choice(r.choice(ALPHABETS)) for _ in range(r.randrange(1, 60)))
    if kind == 1:
        a, b = r.choice(ALPHABETS), r.choice(ALPHABETS)
        return "".join(r.choice(a if r.random() < 0.7 else b) for _ in range(r.randrange(1, 50)))
    if kind == 2:
        return r.choice(["", " ", "\n"]).join(r.choice(WORDS) for _ in range(r.randrange(1, 20)))
    if kind == 3:
        return "".join(any_character(r) for _ in range(r.randrange(1, 30)))
    if kind == 4:
        return "".join(r.choice(NEWER) if r.random() < 0.4 else r.choice("aé1 \u0301'") for _ in range(r.randrange(1, 20)))
    if kind == 5:    # marks in disorder
        return "".join(chr(r.randrange(0x300, 0x370)) if r.random() < 0.8 else r.choice("aeo가\u0915") for _ in range(r.randrange(1, 60)))
    if kind == 6:    # long runs
        return r.choice(WORDS + ["a", " ", "\u0301", "1", "!", "ab", "\n", "中"]) * r.randrange(1, 300)
    return unicodedata.normalize(r.choice(["NFD", "NFKD"]), "".join(any_character(r) for _ in range(r.randrange(1, 20))))


def every_character(step):
    """Each character that Unicode has given a meaning, and a sample of the rest, beside letters, spaces, marks and an
    apostrophe; step characters a text."""
    characters = [c for c in range(0x110000) if (c < 0x33000 and not 0xD800 <= c < 0xE000) or 0xE0000 <= c < 0xE0200 or (c >= 0x33000 and c % 97 == 0)]
    for i in range(0, len(characters), step):
        yield " ".join(f"a{chr(c)}b {chr(c)}\u0323'{chr(c)}" for c in characters[i : i + step])


def added(id, content, **options):
    return dict(dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False), **options)


def variants(base):
    """Names and changed copies of a tokenizer.json."""
    def copy(change):
        tokenizer = json.loads(json.dumps(base))
        change(tokenizer)
        return tokenizer

    def split(pattern):
        def change(t):
            t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
        return change

    def stages(t):
        first = dict(type="Split", pattern=dict(Regex=r"\p{N}{1,3}"), behavior="Isolated", invert=False)
        t["pre_tokenizer"]["pretokenizers"].insert(0, first)

    def byte_level(t):
        t["pre_tokenizer"] = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)

    def options(t):
        next_id = max(t["model"]["vocab"].values()) + 4
        t["added_tokens"] += [
            added(next_id, "<tool>", lstrip=True), added(next_id + 1, "|>", rstrip=True), added(next_id + 2, "na\u0131\u0308", normalized=True),
            added(next_id + 3, "e\u0301", normalized=True), added(next_id + 4, "<|im", special=True), added(next_id + 5, "kingly", lstrip=True, rstrip=True),
            added(next_id + 6, "\u00e9\u00e9", normalized=True), added(next_id + 7, "a b"),
        ]

    def plain(t):
        t["normalizer"] = None
        t["model"]["ignore_merges"] = True
        t["model"]["merges"] = t["model"]["merges"][: len(t["model"]["merges"]) // 2]

    def pairs(t):
        t["model"]["merges"] = [m.split(" ") if isinstance(m, str) else m for m in t["model"]["merges"]]
        t["pre_tokenizer"] = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)

    return {
        "with marks in words": copy(split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")),
        "with numbers of three": copy(split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s")),
        "in two stages": copy(stages), "of ByteLevel alone": copy(byte_level), "with options of added tokens": copy(options),
        "without NFC, merges ignored": copy(plain), "of whole texts, merges as pairs": copy(pairs),
    }


class Tool:
    def __init__(self, program, path, vocab):
        self.process = subprocess.Popen([program, path, str(vocab)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, letter, n, data, size):
        self.process.stdin.write(letter + struct.pack("=I", n) + data)
        self.process.stdin.flush()
        (n,) = struct.unpack("=I", self.process.stdout.read(4))
        return None if n == 0xFFFFFFFF else (n, self.process.stdout.read(n * size))

    def encode(self, text):
        data = text.encode()
        answer = self.ask(b"e", len(data), data, 4)
        return list(struct.unpack(f"={answer[0]}i", answer[1])) if answer else None

    def decode(self, ids):
        return self.ask(b"d", len(ids), struct.pack(f"={len(ids)}i", *ids), 1)[1].decode()

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def differ(what, given, ours, theirs):
    print(f"differs: {what} of {given!r}\n  ours   {ours!r}\n  theirs {theirs!r}")
    sys.exit(1)


def compare(name, tokenizer, program, texts, r):
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as f:
        json.dump(tokenizer, f)
    reference = tokenizers.Tokenizer.from_file(f.name)
    size = reference.get_vocab_size()
    tool = Tool(program, f.name, size + 1)
    count = 0
    for text in texts:
        theirs = reference.encode(text, add_special_tokens=False).ids
        ours = tool.encode(text)
        if ours != theirs:
            differ(f"tokens ({name})", text, ours, theirs)
        count += 1
        if count % 4 == 0:
            ids = [r.randrange(size) for _ in range(r.randrange(1, 24))] if count % 8 else theirs
            if tool.decode(ids) != reference.decode(ids, skip_special_tokens=False):
                differ(f"text ({name})", ids, tool.decode(ids), reference.decode(ids, skip_special_tokens=False))
    if tool.close():
        sys.exit(f"tokenizer_tool ended badly ({name})")
    os.unlink(f.name)
    print(f"{count} texts agree: {name}")


def main():
    program, path = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100000
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 7
    print(f"tokenizers {tokenizers.__version__}, seed {seed}")
    base = json.load(open(path))
    r = random.Random(seed)
    compare("tokenizer.json", base, program, (random_text(r) for _ in range(count)), r)
    compare("every character", base, program, every_character(128), r)
    long_texts = ["a" * 200000, "ab " * 50000, " " * 100000 + "x", "\u0301\u0323" * 50000, "中" * 50000, "<|im_end|>" * 20000, "1" * 50000]
    compare("long texts", base, program, long_texts, r)
    for name, tokenizer in variants(base).items():
        compare(name, tokenizer, program, (random_text(r) for _ in range(count // 10)), r)


if __name__ == "__main__":
    main()
