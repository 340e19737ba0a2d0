#!/usr/bin/env python3
"""families.py [BUILD] [DIRECTORY]: the model families of 2026 beside llama.cpp on this machine's GPU, everything in its memory.

A row is a model of true shape, often with fewer layers, made in DIRECTORY (memory if there is enough, such as /dev/shm) and removed. Printed are
llama.cpp / Moraine (ratio) in tokens/s, and what is below the ratio asked. GLM-5.2 also runs a prompt after many positions, which may take
at most 2 times what it takes after few. Exits with 1 if Moraine misses something or fails; llama.cpp may fail.

Environment: LLAMA_BENCH names llama.cpp's llama-bench; without it Moraine runs alone. FAMILIES_MODELS is a list such as "hy3 glm-5.2:4" (NAME[:LAYERS]).
No run begins after FAMILIES_LIMIT seconds (540) or lasts longer than 40 seconds after them. The first four models and the others fit into ten
minutes each: FAMILIES_MODELS=first, FAMILIES_MODELS=rest. GPU_DEVICE=sim FAMILIES_LAYERS=2 tries the script without a GPU: few layers, lengths of 1/64.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
FOLDER = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "build/models").resolve()
MORAINE = str(BUILD / "moraine")
LLAMA = os.environ.get("LLAMA_BENCH")
DEVICE = os.environ.get("GPU_DEVICE", "cuda")
LAYERS = os.environ.get("FAMILIES_LAYERS")
UNTIL = time.monotonic() + float(os.environ.get("FAMILIES_LIMIT", "540"))
LONGEST = 200  # seconds of a run
LENGTHS = {n: n // 64 if LAYERS else n for n in (64, 2048, 8192, 32768, 65536)}
LONG = [2048, 32768]
NAMED = {  # layers (0: all), prompts, the ratio asked, depths; the most important first
    "glm-5.2": (8, LONG, 1.3, [8192, 65536]), "nemotron-3-nano-30b-a3b": (0, LONG, 1.3, []),
    "kimi-linear-48b-a3b": (0, LONG, 1.3, []), "deepseek-v4-flash": (8, LONG, 1.3, []),
    "deepseek-v3.2": (4, [2048], 1.1, []), "hy3": (4, [2048], 1.1, []), "qwen3-vl-30b-a3b": (20, [2048], 1.1, []),
    "mistral-small-4": (3, [2048], 1.1, []), "ministral-3-8b": (0, [2048], 1.1, []), "step-3.5-flash": (5, [2048], 1.1, []),
    "mimo-v2-flash": (3, [2048], 1.1, []), "k-exaone-236b-a23b": (4, [2048], 1.1, []), "laguna-xs.2": (16, [2048], 1.1, []),
    "trinity-mini": (16, [2048], 1.1, []), "north-mini-code": (20, [2048], 1.1, [])}
missed = 0


def run(words):
    """(exit code, what it printed, what it said); None: it would begin too late."""
    now = time.monotonic()
    if now > UNTIL:
        return None
    most = min(LONGEST, UNTIL + 40 - now)
    try:
        done = subprocess.run(words, capture_output=True, timeout=most, env={**os.environ, "XDG_CACHE_HOME": str(FOLDER / "cache")})
        return done.returncode, done.stdout.decode(), done.stderr.decode()
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(), "error: not done after %d s" % most


def last(said):
    """The line that names the error."""
    lines = [line for line in said.strip().split("\n") if line.strip()] or ["nothing said"]
    return next((line for line in lines if "error" in line.lower() or "GGML_ASSERT" in line), lines[-1])


def llama(path, prompts, decode, depths):
    """{(kind, length, depth): tokens/s} of one load, as far as it came."""
    words = [LLAMA, "-m", path, "-ngl", "99" if DEVICE == "cuda" else "0", "-fa", "1", "-b", "2048", "-ub", "2048"]
    done = run(words + ["-r", "2", "-o", "jsonl", "-p", ",".join(map(str, prompts)), "-n", str(decode), "-d", ",".join(map(str, depths or [0]))])
    if done is None:
        return print("    llama.cpp left out: no time", flush=True) or {}
    code, printed, said = done
    rows = [json.loads(line) for line in printed.split("\n") if line.startswith("{") and line.endswith("}")]
    if code:  # the reason is printed with -v alone
        again = run(words + ["-v", "-r", "1", "-p", "16", "-n", "0"]) if not rows else None
        print("    llama.cpp failed (%d): %s" % (code, last(again[2] if again and again[0] else said)), flush=True)
    return {("prompt" if r["n_prompt"] else "decode", r["n_prompt"] or r["n_gen"], r["n_depth"]): r["avg_ts"] for r in rows}


def moraine(path, prompt, decode, depth):
    global missed
    rounds = "2" if prompt > 8192 or depth > 8192 else "3"
    done = run([MORAINE, "bench", path, "--device", DEVICE, "--profile", "off", "--rounds", rounds, "--json", "--prefill", str(prompt), "--decode",
                str(decode), "--depth", str(depth)])
    if done is None or done[0]:
        missed += 1
        return print("    Moraine %s" % ("left out: no time" if done is None else "failed: " + last(done[2])), flush=True) or {}
    found = json.loads(done[1])
    return {("prompt", prompt, depth): found["prefill_tps"], ("decode", decode, depth): found["decode_tps"]}


def compare(theirs, own, asked):
    global missed
    for key, speed in own.items():
        kind, length, depth = key
        if not length:
            continue
        other = theirs.get(key, 0)
        ratio = speed / other if other else 0
        bad = other and ratio < asked
        missed += bool(bad)
        print("    %-28s %s" % ("%s of %d%s" % (kind, length, " after %d" % depth if depth else ""),
                                "%9.1f / %9.1f (%.2f)%s" % (other, speed, ratio, "  BELOW %.1f" % asked if bad else "") if other
                                else "%9s / %9.1f" % ("-", speed)), flush=True)


def row(name, path, prompts, asked, depths):
    global missed
    decode = LENGTHS[64]
    prompts, depths = [LENGTHS[n] for n in prompts], [LENGTHS[n] for n in depths]
    theirs = llama(path, prompts, decode, []) if LLAMA else {}
    for number, prompt in enumerate(prompts):
        compare(theirs, moraine(path, prompt, 0 if number else decode, 0), asked)
    after = {}
    for depth in depths:
        after.update(moraine(path, prompts[0], 0, depth))
    seconds = [prompts[0] / after["prompt", prompts[0], depth] for depth in depths if ("prompt", prompts[0], depth) in after]
    if len(seconds) == 2:
        missed += seconds[1] > 2 * seconds[0]
        print("    %d tokens take %.2f times as long after %d positions as after %d%s" % (
            prompts[0], seconds[1] / seconds[0], depths[1], depths[0], "  ABOVE 2" if seconds[1] > 2 * seconds[0] else ""), flush=True)
    if depths:
        compare(llama(path, prompts[:1], 0, depths) if LLAMA else {}, after, 0)


def main():
    global missed
    FOLDER.joinpath("cache").mkdir(parents=True, exist_ok=True)
    if DEVICE == "cuda":
        run([MORAINE, "probe", "--device", DEVICE])
    print("Random weights of true shape; %stokens/s" % ("llama.cpp / Moraine (ratio), " if LLAMA else ""), flush=True)
    parts = {"": list(NAMED), "first": list(NAMED)[:4], "rest": list(NAMED)[4:]}
    asked = os.environ.get("FAMILIES_MODELS", "")
    for entry in parts.get(asked) or asked.split():
        name, _, layers = entry.partition(":")
        usual, prompts, asked, depths = NAMED.get(name, (0, [2048], 1.1, []))
        layers = layers or LAYERS or str(usual)
        path = FOLDER / ("families-%s.gguf" % name)
        title = name + (", %s layer%s" % (layers, "s" * (layers != "1")) if layers != "0" else "")
        begun = time.monotonic()
        made = run([MORAINE, "synth", name, "--force", *(["--layers", layers] if layers != "0" else []), "-o", str(path)])
        if made is None or made[0]:
            missed += 1
            print("%s: %s" % (title, "left out: no time" if made is None else last(made[2])), flush=True)
            continue
        print("%s, %.1f GiB, made in %.0f s" % (title, path.stat().st_size / 2**30, time.monotonic() - begun), flush=True)
        try:
            row(name, str(path), prompts, asked, depths)
        finally:
            path.unlink()
        print("    %.0f s in all" % (time.monotonic() - begun), flush=True)
    sys.exit(1 if missed else 0)


main()
