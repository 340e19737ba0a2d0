#!/usr/bin/env python3
"""memory_short.py [BUILD] [DIRECTORY]: Moraine and llama.cpp with the same VRAM, where that does not hold the model.

For each model of true shape and each number of layers whose experts llama.cpp leaves to the CPU (--n-cpu-moe), llama-bench runs first
and its largest use of VRAM is read from nvidia-smi. Moraine then gets that much less what the driver takes for any program. Both
are measured in turns, ROUNDS times; printed are medians of decoding and of a prompt, and the VRAM that each was seen to use.

Environment: LLAMA_BENCH names llama.cpp's llama-bench; without it Moraine runs alone under SHORT_VRAM (such as 8G). SHORT_MODELS is a
list such as "gpt-oss-20b:12,24 gpt-oss-120b/18:12,18" (NAME[/LAYERS]:N,N). SHORT_ROUNDS (2), SHORT_PROMPT (2048), SHORT_DECODE (96),
GPU_DEVICE (cuda; sim tries the script without a GPU). Models are made in DIRECTORY, which should be memory (/dev/shm), and kept.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
FOLDER = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "build/models").resolve()
MORAINE = str(BUILD / "moraine")
LLAMA = os.environ.get("LLAMA_BENCH")
DEVICE = os.environ.get("GPU_DEVICE", "cuda")
ROUNDS = int(os.environ.get("SHORT_ROUNDS", "2"))
PROMPT = os.environ.get("SHORT_PROMPT", "2048")
DECODE = os.environ.get("SHORT_DECODE", "96")
MODELS = os.environ.get("SHORT_MODELS", "gpt-oss-20b:12,24 qwen3-30b-a3b:24,48")
DRIVER_MIB = 600  # at most, of a process that has opened the device: not part of --vram
THREADS = str(len(os.sched_getaffinity(0)))


def vram_mib():
    """What is in use of all GPUs; 0 without nvidia-smi."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True).stdout
        return sum(int(line) for line in said.split())
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def watched(words):
    """(what the command prints, the most VRAM that it took in MiB)."""
    before, most, ended = vram_mib(), [0], threading.Event()

    def watch():
        while not ended.wait(0.2):
            most[0] = max(most[0], vram_mib() - before)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": str(FOLDER / "cache")})
    finally:
        ended.set()
        watcher.join()
    if done.returncode != 0:
        raise SystemExit("%s: %s" % (" ".join(words), done.stderr.strip().split("\n")[-1]))
    return done.stdout, most[0]


def llama(path, cpu_layers):
    printed, vram = watched([LLAMA, "-m", path, "-ngl", "99", "-ncmoe", cpu_layers, "-fa", "1", "-mmp", "0", "-t", THREADS, "-b", PROMPT, "-ub", PROMPT, "-p", PROMPT, "-n", DECODE,
                             "-r", "2", "-o", "json"])
    found = {"prompt" if row["n_prompt"] else "decode": row["avg_ts"] for row in json.loads(printed)}
    return {**found, "vram": vram}


def ours(path, vram):
    words = [MORAINE, "bench", path, "--device", DEVICE, "--profile", "off", "--rounds", "2", "--json", "--vram", vram]
    decode, used = watched(words + ["--prefill", "0", "--decode", DECODE, "--ctx", "2048"])
    prompt, more = watched(words + ["--prefill", PROMPT, "--decode", "0", "--ctx", "8192"])
    return {"decode": json.loads(decode)["decode_tps"], "prompt": json.loads(prompt)["prefill_tps"], "vram": max(used, more)}


def model(name, layers):
    path = FOLDER / ("%s%s.gguf" % (name, "-" + layers if layers else ""))
    if not path.exists():
        subprocess.run([MORAINE, "synth", name, *(["--layers", layers] if layers else []), "-o", str(path)], check=True, stdout=sys.stderr)
    return str(path)


def median(runs, what):
    return statistics.median(run[what] for run in runs) if runs else 0


def row(name, path, cpu_layers):
    theirs, own = [], []
    for number in range(ROUNDS):
        if LLAMA:
            theirs.append(llama(path, cpu_layers))
        given = max(run["vram"] for run in theirs) - DRIVER_MIB if LLAMA else 0
        if LLAMA and given <= 0:
            raise SystemExit("nvidia-smi saw llama.cpp use no VRAM: was llama-bench built with CUDA?")
        vram = "%dM" % given if LLAMA else os.environ.get("SHORT_VRAM", "8G")
        own.append(ours(path, vram))
        if LLAMA and number % 2:  # the other order in every second round
            theirs.append(llama(path, cpu_layers))
    cells = [name, "`--n-cpu-moe %s`" % cpu_layers, "%.1f / %.1f GB" % (median(theirs, "vram") * 1.048576e-3, median(own, "vram") * 1.048576e-3)]
    for what in ("decode", "prompt"):
        a, b = median(theirs, what), median(own, what)
        cells.append("%.1f / %.1f%s" % (a, b, " (%.2f)" % (b / a) if a else ""))
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    FOLDER.joinpath("cache").mkdir(parents=True, exist_ok=True)
    subprocess.run([MORAINE, "probe", "--device", DEVICE], env={**os.environ, "XDG_CACHE_HOME": str(FOLDER / "cache")}, cwd=FOLDER, check=True, stdout=sys.stderr)
    print("Random weights of true shape; llama.cpp / Moraine (ratio), tokens/s, medians of %d rounds in turns, %s threads." % (ROUNDS, THREADS))
    print("| model | llama.cpp's experts on the CPU | VRAM in use | decode of %s | prompt of %s |\n|---|---|---|---|---|" % (DECODE, PROMPT), flush=True)
    for entry in MODELS.split():
        found = re.fullmatch(r"([^/:]+)(?:/(\d+))?:([\d,]+)", entry)
        if not found:
            raise SystemExit("SHORT_MODELS: %s is not NAME[/LAYERS]:N,N" % entry)
        name, layers, numbers = found.groups()
        path = model(name, layers)
        for cpu_layers in numbers.split(","):
            row(name + (", %s layer%s" % (layers, "s" * (layers != "1")) if layers else ""), path, cpu_layers)


main()
