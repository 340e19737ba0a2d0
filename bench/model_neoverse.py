#!/usr/bin/env python3
"""What llvm-mca expects of the aarch64 products on a Neoverse-V1: a MODEL, not a measurement. Compiles them as the build
does, finds the inner loop of each (the backward branch around most dot products) and simulates it with every load
hitting L1. Two columns: LLVM's tables as they are, and cautious ones in which sdot and smmla issue two a cycle, the
peaks once measured on such a machine, instead of four. Development only: needs llvm-19 and the cross compiler, which
tools/setup.sh does not install. Options: --show FUNCTION prints that loop's code and mca's report."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

GHZ, READ = 2.6, 27.0  # of one core: clock, GB/s
TOKENS = 32  # of a panel (MO_BATCH_QUADS quads)
FORMATS = {  # values and bytes of a file block, fold
    "Q8_0": (32, 34, "PLAIN"), "MXFP4": (32, 17, "PLAIN"), "Q4_K": (256, 144, "MINIMUM"), "Q6_K": (256, 210, "HALVES"),
    "Q5_K": (256, 176, "MINIMUM"), "Q3_K": (256, 110, "HALVES"), "Q2_K": (256, 84, "Q2_K"), "Q4_0": (32, 18, "PLAIN"),
    "Q4_1": (32, 20, "MINIMUM"), "Q5_0": (32, 22, "PLAIN"), "Q5_1": (32, 24, "MINIMUM"), "IQ4_NL": (32, 18, "PLAIN"),
    "IQ4_XS": (256, 136, "SCALED"), "NVFP4": (64, 36, "PAIR"),
}  # fmt: skip
MCA = ["llvm-mca-19", "-mtriple=aarch64", "-mcpu=neoverse-v1", "-mattr=+i8mm,+dotprod,+fullfp16", "-dispatch=8"]
ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-model"
DOT = re.compile(r"\s(sdot|smmla)\s")


def fail(text):
    sys.exit(f"model_neoverse: {text}")


def assembly(isa):
    """The compiler's text of one product file, with the build's own command line."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    entry = next(c for c in commands if c["file"].endswith(f"numeric/{isa}_product.c"))
    words = shlex.split(entry["command"])
    at = words.index("-o")
    import os
    words = [w for w in words[:at] + words[at + 2 :] if w not in ("-c", "-g")] + os.environ.get("XF","").split() + ["-S", "-o", "-"]
    return subprocess.run(words, cwd=entry["directory"], check=True, capture_output=True, text=True).stdout


def functions(text):
    """Instructions and labels of each function, without directives."""
    found = {}
    for match in re.finditer(r"^(\w+):\n(.*?)^\t\.size\t\1,", text, re.M | re.S):
        lines = (re.sub(r"//.*", "", line).rstrip() for line in match[2].splitlines())
        found[match[1]] = [s for s in lines if s and not re.match(r"\t\.|\.LF|\.LB|\.LV", s)]
    return found


def loops(lines):
    """Bodies of all backward branches, innermost only."""
    at = {line[:-1]: n for n, line in enumerate(lines) if line.endswith(":")}
    spans = []
    for n, line in enumerate(lines):
        target = re.search(r"\s(?:b|b\.?\w\w|cbn?z|tbn?z)\s.*?(\.L\w+)$", line)
        if target and at.get(target[1], n) < n:
            spans.append((at[target[1]], n + 1))
    inner = [s for s in spans if not any(t != s and s[0] <= t[0] and t[1] <= s[1] for t in spans)]
    return [[x for x in lines[a:b] if not x.endswith(":")] for a, b in inner]


def standin(line, cautious):
    """LLVM 19 lacks by-element mla, and the forwarding that lets an fmla follow another on the same accumulator after
    two cycles: an add of that latency takes its place. Cautiously, dot products share the two multiplying pipes."""
    line = re.sub(r"\b(mla\tv\d+\.4s, v\d+\.4s, v\d+)\.s\[\d\]", r"\1.4s", line)
    line = re.sub(r"\bfmla\t(v\d+\.4s), (v\d+\.4s), .*", r"fadd\t\1, \1, \2", line)
    line = re.sub(r"(movi\t.*) 0xf{14}(\w\w)$", r"\1 0x\2", line)
    if cautious:
        line = re.sub(r"\b(?:sdot|smmla)(\s+v\d+\.4s), v(\d+)\.16b, v(\d+)\.\d+b(\[\d\])?", r"mla\1, v\2.4s, v\3.4s", line)
    return line


def simulate(body, cautious, *options):
    text = "\n".join(standin(x, cautious) for x in body)
    text = re.sub(r"(\s)\.L\w+", r"\1.", re.sub(r"#?:\w+:[^\],\s]+", "#0", text))
    result = subprocess.run([*MCA, *options, "-iterations=400"], input=text, capture_output=True, text=True)
    if result.returncode:
        fail(f"llvm-mca: {result.stderr}")
    return result.stdout


def cycles(body, cautious):
    out = simulate(body, cautious, "-instruction-info=false", "-resource-pressure=false")
    return int(re.search(r"Total Cycles:\s+(\d+)", out)[1]) / 400


def main():
    if not shutil.which(MCA[0]) or not shutil.which("aarch64-linux-gnu-gcc"):
        fail("needs llvm-mca-19 (package llvm-19) and aarch64-linux-gnu-gcc, see tools/setup.sh --help")
    flags = subprocess.run([ROOT / "tools/cross.sh", "flags"], check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *flags], check=True, stdout=subprocess.DEVNULL)
    show = sys.argv[2] if sys.argv[1:2] == ["--show"] else None
    for isa in ("i8mm",):
        code = functions(assembly(isa))
        best = lambda name: max(loops(code[name]), key=lambda b: (sum(bool(DOT.search(x)) for x in b), len(b)))
        if show:
            print("\n".join(best(show)), simulate(best(show), False, "-bottleneck-analysis"), sep="\n")
            return
        for name in sys.argv[1:] or ("Q8_0", "MXFP4", "Q4_K", "Q6_K"):
            values, size, fold = FORMATS[name]
            for layout in ("FILED", "GROUPED"):
                body = best(f"vector_{name}_{layout}")
                read = 16 * sum(bool(DOT.search(x)) for x in body) * size / values
                row = f"{isa:8}{name:7}{layout:8}{len(body):5} ins {read:6.0f} B"
                tile = best(f"run_{fold}")
                work = sum(64 if "smmla" in x else 32 for x in tile if DOT.search(x))
                unpack = best(f"unpack_{name}_{layout}")
                for cautious in (False, True):
                    c = cycles(body, cautious)
                    t, u = cycles(tile, cautious), 2 * cycles(unpack, cautious) * 32 / values
                    rate = read / c * GHZ
                    row += f" | {c:6.1f} c {rate:5.1f} GB/s {100 * rate / READ:4.0f} %"
                    row += f"  tile {t:5.1f} c unpack {u:5.1f} c {work * GHZ * TOKENS / 4 / (TOKENS / 4 * t + u):4.0f} GOP/s"
                print(row, flush=True)


main()
