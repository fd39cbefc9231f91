"""Makes core/model/unicode_tables.h: what the reference tokenizer believes about Unicode.

usage: make_unicode_tables.py > core/model/unicode_tables.h        needs tokenizers, unicodedata2

The split regex of the reference sees letters, numbers and marks as its regex library does (Unicode 16 in tokenizers 0.23),
and its NFC is that of an old Unicode. Both are asked, character by character, so that our tokens do not depend on the
Unicode versions of the PCRE2 and utf8proc at hand.
"""
import unicodedata2
from tokenizers import NormalizedString, Regex, normalizers

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHUNK = 8192


def members(pattern):
    """The characters that match one-character pattern, found by deleting them."""
    found = []
    for i in range(0, len(CHARACTERS), CHUNK):
        part = CHARACTERS[i : i + CHUNK]
        text = NormalizedString("".join(map(chr, part)))
        text.replace(Regex(pattern), "")
        left = set(map(ord, text.normalized))
        found += [c for c in part if c not in left]
    return found


def inert():
    """Characters that NFC of today moves, composes or decomposes and the reference leaves alone."""
    nfc = normalizers.NFC().normalize_str
    today = lambda text: unicodedata2.normalize("NFC", text)
    found = set()
    for c in CHARACTERS:
        if not (unicodedata2.combining(chr(c)) or unicodedata2.decomposition(chr(c))[:1] not in ("", "<")):
            continue
        whole = unicodedata2.normalize("NFD", chr(c))
        probes = [chr(c), whole, "a" + chr(c) + "\u05b0", "a\u0301" + chr(c), "a\u0323" + chr(c), "a" + chr(c) + "\u0301"]
        if any(nfc(p) != today(p) for p in probes):
            found |= {c, *map(ord, whole)} if len(whole) > 1 else {c}
    moved = {c for c in found if any(nfc(p) != p for p in ("q" + chr(c) + "\u05b0", "q\u0301" + chr(c)))}
    return sorted(found - moved)


def ranges(characters, tag):
    out = []
    for c in characters:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c, tag])
    return out


def table(name, rows):
    print(f"static const range {name}[] = {{")
    line = "   "
    for row in rows:
        if len(line) + len(row) > 130:
            print(line)
            line = "   "
        line += " " + row
    print(line + "\n};")


def main():
    print("/* Made by tests/model/make_unicode_tables.py from what tokenizers 0.23 answers, character by character. */\n")
    print("/* Letters, numbers and marks outside ASCII, as the split regex of the reference sees them (Unicode 16). */")
    classes = sorted(sum((ranges([c for c in members(rf"\p{{{k}}}") if c >= 0x80], k) for k in "LNM"), []))
    table("CLASSES", [f"{{0x{a:x}, 0x{b:x}, {k}}}," for a, b, k in classes])
    print("\n/* Characters newer than the NFC of the reference, which leaves them alone: they neither move nor compose. */")
    table("INERT", [f"{{0x{a:x}, 0x{b:x}, 1}}," for a, b, _ in ranges(inert(), 0)])


if __name__ == "__main__":
    main()
