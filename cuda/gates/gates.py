"""What nvcc and the linker say about the CUDA backend, checked without a GPU and without nvdisasm.

    gates.py resources EXPECTATIONS CUBIN...           registers, shared memory and stack of each kernel against the table
    gates.py census EXPECTATIONS CALIBRATION CUBIN...  instructions that each kernel must have; local memory nowhere
    gates.py links PLUGIN|PROGRAM...                   what is needed and exported

Beside each CUBIN lies CUBIN.log, what `ptxas -v` said. EXPECTATIONS is cuda/gates/kernels.txt.
"""
import collections
import re
import struct
import subprocess
import sys

# Hopper's instructions are 16 bytes: the low 12 bits name the operation, bits 9-11 of the high word the width of a memory access.
# calibration.cu shows that the key is right.
OPERATIONS = {
    0x981: "LDG", 0x986: "STG", 0x984: "LDS", 0x388: "STS", 0x983: "LDL", 0x387: "STL", 0xF8C: "ATOMS.INC", 0x98C: "ATOMS", 0x38C: "ATOMS", 0x98E: "RED",
    0x9A8: "ATOMG", 0xF89: "SHFL", 0x389: "SHFL", 0x23C: "HMMA", 0x9F0: "HGMMA", 0xFAE: "LDGSTS", 0x83B: "LDSM", 0x844: "STSM", 0x3BA: "UBLKCP",
    0x5B4: "UTMALDG", 0x5A7: "SYNCS",
}
WIDTHS = {0: "8", 2: "16", 4: "32", 5: "64", 6: "128"}
WITH_WIDTH = {"LDG", "STG", "LDS", "STS", "LDGSTS"}

# Kernel of calibration.cu -> instructions of which it must have at least one.
CALIBRATION = {
    "has_ldg_128": ["LDG.128"], "has_stg_128": ["STG.128"], "has_lds_128": ["LDS.128"], "has_local": ["LDL", "STL"],
    "has_atoms_inc": ["ATOMS.INC"], "has_red": ["RED"], "has_shfl": ["SHFL"], "has_hmma": ["HMMA"], "has_ldsm": ["LDSM"],
    "has_ldgsts_128": ["LDGSTS.128"], "has_hgmma": ["HGMMA"], "has_utmaldg": ["UTMALDG"], "has_syncs": ["SYNCS"], "has_stsm": ["STSM"],
}


def kernels_of(cubin):
    """(mangled name, its instructions as pairs of 64-bit words) of each .text section of an ELF file."""
    data = open(cubin, "rb").read()
    if data[:4] != b"\x7fELF":
        sys.exit(f"{cubin}: not a cubin")
    offset, = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<H", data, 60)[0], struct.unpack_from("<H", data, 62)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * 64) for i in range(count)]
    for section in sections:
        start = sections[names][4] + section[0]
        name = data[start:data.index(b"\0", start)].decode()
        if name.startswith(".text."):
            body = data[section[4]:section[4] + section[5]]
            yield name[6:], [struct.unpack_from("<QQ", body, i) for i in range(0, len(body), 16)]


def census(instructions):
    counts = collections.Counter()
    for low, high in instructions:
        name = OPERATIONS.get(low & 0xFFF)
        if name:
            counts[name] += 1
            if name in WITH_WIDTH:
                counts[f"{name}.{WIDTHS.get(high >> 9 & 7, '?')}"] += 1
    return counts


def plain_name(mangled):
    """_Z13router_kernelILi32EEv16gb_k_router_args -> router_kernel<32>"""
    found = re.match(r"_Z(\d+)", mangled)
    if not found:
        return mangled
    length, start = int(found.group(1)), found.end()
    name, rest = mangled[start:start + length], mangled[start + length:]
    arguments = re.match(r"I((?:L[a-z]\d+E)+)E", rest)
    values = re.findall(r"L[a-z](\d+)E", arguments.group(1)) if arguments else []
    return f"{name}<{','.join(values)}>" if values else name


def expectations_of(path):
    """kernel -> (registers, shared bytes, {instruction: least number}); a line is `kernel registers shared [INSTRUCTION[=n]...]`."""
    table = {}
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) < 3:
            sys.exit(f"{path}:{number}: write `kernel registers shared [INSTRUCTION[=n]...]`")
        needs = {word.split("=")[0]: int((word.split("=") + ["1"])[1]) for word in words[3:]}
        table[words[0]] = (int(words[1]), int(words[2]), needs)
    return table


def resources_of(log):
    """kernel -> (registers, shared bytes, stack bytes) from ptxas -v."""
    found, name, stack = {}, None, 0
    for line in open(log, encoding="utf-8"):
        if entry := re.search(r"Compiling entry function '(\w+)'", line):
            name = plain_name(entry.group(1))
        elif frame := re.search(r"(\d+) bytes stack frame", line):
            stack = int(frame.group(1))
        elif used := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[name] = (int(used.group(1)), int(shared.group(1)) if shared else 0, stack)
    return found


def serialized_in(log):
    """wgmma products that ptxas lets run one by one only: it found an accumulator in use between them."""
    said = re.findall(r"wgmma.mma_async instructions are serialized.*function '(\w+)'", open(log, encoding="utf-8").read())
    return [f"{plain_name(name)}: its wgmma products are serialized; see {log}" for name in said]


def check_resources(expectations, cubins):
    table, faults, found = expectations_of(expectations), [], {}
    for cubin in cubins:
        found.update(resources_of(cubin + ".log"))
        faults += serialized_in(cubin + ".log")
    for kernel, (registers, shared, stack) in sorted(found.items()):
        if kernel not in table:
            faults.append(f"{kernel}: no line in {expectations}; it takes {registers} registers and {shared} bytes of shared memory")
            continue
        most_registers, most_shared, _ = table[kernel]
        mark = " OVER" if registers > most_registers or shared > most_shared or stack else ""
        print(f"{kernel:40} registers {registers:3} of {most_registers:3}   shared {shared:6} of {most_shared:6}   stack {stack}{mark}")
        if mark:
            faults.append(f"{kernel}: over its budget")
    faults += [f"{kernel}: has a line in {expectations}, but no such kernel was built" for kernel in table if kernel not in found]
    return faults


def check_calibration(cubin):
    faults, kernels = [], {name: census(body) for name, body in kernels_of(cubin)}
    wanted = {instruction for each in CALIBRATION.values() for instruction in each}
    for kernel, instructions in CALIBRATION.items():
        faults += [f"calibration: {kernel} shows no {i}: this toolkit encodes it otherwise" for i in instructions if not kernels[kernel][i]]
    return faults + [f"calibration: the plain kernel shows {i}" for i in sorted(wanted) if kernels["plain"][i]]


def check_census(expectations, calibration, cubins):
    table, faults = expectations_of(expectations), check_calibration(calibration)
    for cubin in cubins:
        for mangled, body in kernels_of(cubin):
            kernel, counts = plain_name(mangled), census(body)
            print(f"{kernel:40} {len(body):5} instructions  {' '.join(f'{k}:{v}' for k, v in sorted(counts.items()))}")
            if counts["LDL"] or counts["STL"]:
                faults.append(f"{kernel}: uses local memory")
            for instruction, least in table.get(kernel, (0, 0, {}))[2].items():
                if counts[instruction] < least:
                    faults.append(f"{kernel}: {counts[instruction]} {instruction}, wanted at least {least}")
    return faults


def needed_by(binary):
    dynamic = subprocess.run(["readelf", "-d", binary], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic)


def exported_by(plugin):
    names = subprocess.run(["nm", "-D", "--defined-only", plugin], capture_output=True, text=True, check=True).stdout
    return sorted(line.split()[-1] for line in names.splitlines())


def check_links(binaries):
    faults = []
    for binary in binaries:
        needed, is_plugin = needed_by(binary), "libgimbal_" in binary
        print(f"{binary}: needs {' '.join(needed)}")
        if any(name.startswith("libcuda.so") for name in needed):
            faults.append(f"{binary}: needs libcuda, so it cannot be loaded where there is no driver")
        if not is_plugin and any(re.match(r"lib(cuda|cublas|nccl|gimbal_)", name) for name in needed):
            faults.append(f"{binary}: needs a CUDA library; only the plugin may")
        if is_plugin and exported_by(binary) != ["gimbal_backend_open"]:
            faults.append(f"{binary}: exports {' '.join(exported_by(binary))}, wanted gimbal_backend_open only")
    return faults


def main(arguments):
    if arguments[:1] == ["resources"] and len(arguments) > 2:
        faults = check_resources(arguments[1], arguments[2:])
    elif arguments[:1] == ["census"] and len(arguments) > 3:
        faults = check_census(arguments[1], arguments[2], arguments[3:])
    elif arguments[:1] == ["links"] and len(arguments) > 1:
        faults = check_links(arguments[1:])
    else:
        sys.exit(__doc__)
    for fault in faults:
        print("FAULT:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
