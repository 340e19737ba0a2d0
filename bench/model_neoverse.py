#!/usr/bin/env python3
"""What llvm-mca expects of the aarch64 products on a Neoverse-V1: a MODEL, not a measurement.

Compiles them as the build does, finds the inner loop of each (the backward branch around most dot products) and
simulates it with every load hitting L1. Three columns: LLVM's tables as they are; cautious ones, in which sdot and
smmla issue two a cycle, the peaks once measured on such a machine, instead of four; and `tbl` as one operation, which
LLVM counts as two. `floor` is what the vector pipes alone need.

usage: model_neoverse.py [FORMAT ...] | --show FUNCTION    (that loop's code and mca's report)
For development: needs llvm-19, which tools/setup.sh does not install, and a compiler for aarch64."""

import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

GHZ, READ = 2.6, 27.0  # of one core: clock, GB/s
QUADS, PANELS = 8, 16  # fours of tokens that share an unpacked panel, panels that share laid out tokens
ROUNDS = 200
FORMATS = {  # values and bytes of a file block, fold
    "Q8_0": (32, 34, "PLAIN"), "MXFP4": (32, 17, "PLAIN"), "Q4_K": (256, 144, "MINIMUM"), "Q6_K": (256, 210, "HALVES"),
    "Q5_K": (256, 176, "MINIMUM"), "Q3_K": (256, 110, "HALVES"), "Q2_K": (256, 84, "Q2_K"), "Q4_0": (32, 18, "PLAIN"),
    "Q4_1": (32, 20, "MINIMUM"), "Q5_0": (32, 22, "PLAIN"), "Q5_1": (32, 24, "MINIMUM"), "IQ4_NL": (32, 18, "PLAIN"),
    "IQ4_XS": (256, 136, "SCALED"), "NVFP4": (64, 36, "PAIR"),
}  # fmt: skip
MCA = ["llvm-mca-19", "-mtriple=aarch64", "-mcpu=neoverse-v1", "-mattr=+i8mm,+dotprod,+fullfp16", "-dispatch=8"]
ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-model"
COMPILER = "cc" if platform.machine() == "aarch64" else "aarch64-linux-gnu-gcc"


def assembly():
    """The compiler's text of the i8mm products, by the build's own command (dotprod's vector loops are the same)."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    entry = next(c for c in commands if c["file"].endswith("numeric/arm/i8mm_product.c"))
    words = shlex.split(entry["command"])
    at = words.index("-o")
    words = [w for w in words[:at] + words[at + 2 :] if w not in ("-c", "-g")] + ["-S", "-o", "-"]
    return subprocess.run(words, cwd=entry["directory"], check=True, capture_output=True, text=True).stdout


def functions(text):
    """Instructions and labels of each function, without directives."""
    found = {}
    for match in re.finditer(r"^([\w.]+):\n(.*?)^\t\.size\t\1,", text, re.M | re.S):
        lines = (re.sub(r"//.*", "", line).rstrip() for line in match[2].splitlines())
        found[match[1].split(".")[0]] = [s for s in lines if s and not re.match(r"\t\.|\.LF|\.LB|\.LV", s)]
    return found


def innermost(lines, mark):
    """The innermost loop with most lines that match the mark; forward branches in it count as not taken."""
    at = {line[:-1]: n for n, line in enumerate(lines) if line.endswith(":")}
    spans = []
    for n, line in enumerate(lines):
        target = re.search(r"\s(?:b|b\.?\w\w|cbn?z|tbn?z)\s.*?(\.L\w+)$", line)
        if target and at.get(target[1], n) < n:
            spans.append((at[target[1]], n + 1))
    inner = [s for s in spans if not any(t != s and s[0] <= t[0] and t[1] <= s[1] for t in spans)]
    bodies = [[x for x in lines[a:b] if not x.endswith(":")] for a, b in inner]
    return max(bodies, key=lambda body: (len([x for x in body if re.search(mark, x)]), len(body)))


def standin(line, column):
    """LLVM 19 lacks by-element mla, and the forwarding that lets an fmla follow another on the same accumulator after
    two cycles: an add of that latency takes its place. Then what the column wants: multiplications that share two
    pipes for dot products, a polynomial product on the same two pipes for tbl."""
    line = re.sub(r"\b(mla\tv\d+\.4s, v\d+\.4s, v\d+)\.s\[\d\]", r"\1.4s", line)
    line = re.sub(r"\bfmla\t(v\d+\.4s), (v\d+\.4s), .*", r"fadd\t\1, \1, \2", line)
    line = re.sub(r"(movi\t.*) 0xf{14}(\w\w)$", r"\1 0x\2", line)
    if column == "cautious":
        line = re.sub(r"\b(?:sdot|smmla)(\s+v\d+\.4s), v(\d+)\.16b, v(\d+)\.\d+b.*", r"mla\1, v\2.4s, v\3.4s", line)
    if column == "tbl":
        line = re.sub(r"\btbl\t(v\d+\.16b), {(v\d+\.16b)}, (v\d+\.16b)", r"pmul\t\1, \2, \3", line)
    return line


def simulate(body, column, *options):
    text = "\n".join(standin(x, column) for x in body)
    text = re.sub(r"(\s)\.L\w+", r"\1.", re.sub(r"#?:\w+:[^\],\s]+", "#0", text))
    result = subprocess.run([*MCA, *options, f"-iterations={ROUNDS}"], input=text, capture_output=True, text=True)
    return result.stdout if result.returncode == 0 else sys.exit(f"model_neoverse: llvm-mca: {result.stderr}")


def cycles(body, column):
    out = simulate(body, column, "-instruction-info=false", "-resource-pressure=false")
    return int(re.search(r"Total Cycles:\s+(\d+)", out)[1]) / ROUNDS


def floor(body):
    out = simulate(body, "LLVM", "-instruction-info=false")
    used = re.search(r"Resource pressure per iteration:\n.*\n(.*)\n", out)[1].split()
    return sum(float(x) for x in used[-4:] if x != "-") / 4


def vector_row(code, name, layout):
    values, size, _ = FORMATS[name]
    body = innermost(code[f"vector_{name}_{layout}"], r"\ssdot\s")
    read = 16 * sum("\tsdot\t" in x for x in body) * size / values
    text = f"{len(body):4} {read:5.0f} {floor(body):6.1f}"
    for column in ("LLVM", "cautious", "tbl"):
        c = cycles(body, column)
        text += f" | {c:6.1f} {read / c * GHZ:6.1f} {100 * read / c * GHZ / READ:4.0f} %"
    return text


def matrix_row(code, name, layout):
    values, _, fold = FORMATS[name]
    tile = innermost(code[f"run_{fold}"], r"\s(sdot|smmla)\s")
    work = sum(64 if "\tsmmla\t" in x else 32 if "\tsdot\t" in x else 0 for x in tile)
    text = ""
    for column in ("LLVM", "cautious", "tbl"):
        t = cycles(tile, column)
        unpack = 2 * cycles(innermost(code[f"unpack_{name}_{layout}"], r"\sstp?\sq"), column) * 32 / values
        lay = cycles(innermost(code["mo_matrix_rows"], r"\s(ldr|ldp|str|stp)\sq"), column)
        text += f" | {t:5.1f} {unpack:5.1f} {lay:5.1f} {work * GHZ / (t + unpack / QUADS + lay / PANELS):5.0f}"
    return text


def main():
    if not shutil.which(MCA[0]) or not shutil.which(COMPILER):
        sys.exit(f"model_neoverse: needs {MCA[0]} (package llvm-19, not part of tools/setup.sh) and {COMPILER}")
    cross = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", "-DMO_STATIC_DEPENDENCIES=ON"]
    flags = [] if COMPILER == "cc" else cross
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *flags], check=True, stdout=subprocess.DEVNULL)
    code = functions(assembly())
    if sys.argv[1:2] == ["--show"] and sys.argv[2:] and sys.argv[2] in code:
        body = innermost(code[sys.argv[2]], r"\s(sdot|smmla)\s")
        print("\n".join(body), simulate(body, "LLVM", "-bottleneck-analysis"), sep="\n")
        return
    if not set(sys.argv[1:]) <= set(FORMATS):
        sys.exit(f"model_neoverse: formats are {' '.join(FORMATS)}; functions such as vector_Q4_K_FILED")
    print(f"A MODEL, not a measurement: a Neoverse-V1 core at {GHZ} GHz that reads {READ:.0f} GB/s; loads hit L1")
    for title, row in (
        ("vector: instructions, bytes, floor | cycles, GB/s, share", vector_row),
        ("matrix: cycles of a tile's block, a panel's block, four tokens' block; GOP/s", matrix_row),
    ):
        print(f"{title}; each as LLVM has it | cautious | tbl as one")
        for name in sys.argv[1:] or ("Q8_0", "MXFP4", "Q4_K", "Q6_K"):
            for layout in ("FILED", "GROUPED"):
                print(f"{name:7}{layout.lower():8}{row(code, name, layout)}", flush=True)


main()
