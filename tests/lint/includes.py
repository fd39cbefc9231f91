"""Checks the floors: an include may point down or stay in its room, and libraries appear in their rooms only."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# room -> rooms it may include from (itself always); the floors of docs/architecture.md
MAY = {
    "core/base": [],
    "core/flow": ["core/base"],
    "core/model": ["core/base", "core/flow"],
    "core/moe": ["core/base", "core/flow"],
    "core/serve": ["core/base", "core/flow", "core/moe", "core/model"],
    "core/forward": ["core/base", "core/flow", "core/moe", "core/model"],
    "core/cpu": ["core/base", "core/flow", "core/model", "core/forward"],
    "bindings/options": ["core/base"],
    "bindings/lua": ["core/base", "core/flow", "core/model", "core/moe", "core/serve", "bindings/options"],
    "bindings/c": ["core/base", "core/flow", "core/model", "core/moe", "core/serve", "core/forward", "core/cpu", "bindings/lua", "bindings/options"],
    "bindings/rpc": ["core/base", "core/flow", "core/model", "core/moe", "core/serve", "core/forward", "bindings/lua", "bindings/c", "bindings/options"],
    "bindings/uv": ["core/base", "core/flow", "core/serve", "core/forward", "bindings/lua", "bindings/c", "bindings/rpc", "bindings/options"],
}
LIBRARIES = {
    r"(lua|lauxlib|lualib|luajit)\.h(pp)?|luajit-2\.1/.*": ["bindings/lua"],
    r"uv\.h": ["bindings/uv", "bindings/cli"],
    r"msgpack(/.*)?\.h": ["bindings/rpc", "bindings/clients/c", "bindings/cli"],
    r"jansson\.h": ["core/model", "bindings/lua", "bindings/rpc", "bindings/cli"],
    r"pcre2\.h": ["core/model"],
    r"utf8proc\.h": ["core/model"],
    r"(cuda|nccl|cublas).*\.h": ["cuda/host", "cuda/kernels", "cuda/cuemu", "cuda/bench"],
    r"pthread\.h|stdatomic\.h|threads\.h": ["core/cpu", "cuda/host", "cuda/bench", "bindings/uv", "bindings/cli", "bindings/lua"],
}


def room_of(path):
    if path.startswith("bindings/c/options."):
        return "bindings/options"    # a library of its own, below Lua
    parts = path.split("/")
    return "/".join(parts[:3]) if parts[:2] == ["bindings", "clients"] else "/".join(parts[:2])


def faults_of(file):
    room = room_of(file.relative_to(ROOT).as_posix())
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{file.relative_to(ROOT)}:{number}"
        own = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        system = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if own and room in MAY:
            target = room_of(own.group(1))
            if "/" not in own.group(1):
                yield f'{where}: write includes from the root, not "{own.group(1)}"'
            elif target != room and target not in MAY[room]:
                yield f"{where}: {room} must not include from {target}"
        if system:
            for pattern, rooms in LIBRARIES.items():
                if re.fullmatch(pattern, system.group(1)) and room not in rooms and not room.startswith("tests"):
                    yield f"{where}: <{system.group(1)}> belongs to {', '.join(rooms)} only"


def main():
    files = [f for top in ("core", "bindings", "cuda") for f in sorted((ROOT / top).rglob("*.[ch]"))]
    faults = [fault for file in files for fault in faults_of(file)]
    print("\n".join(faults) if faults else f"includes: {len(files)} files point the right way")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
