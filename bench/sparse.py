#!/usr/bin/env python3
"""sparse.py [BUILD] [DIRECTORY]: GLM-5.2 (417 GiB) and DeepSeek-V4-Flash (145 GiB) whole, under ceilings of memory, 16 tokens each.

The files are made in DIRECTORY and removed. Routed experts are holes in them (moraine synth --holes), so they take some 10 and 8 GB of the disk, and
seconds spent reading say nothing; placement, hits, what is read and what memory is used are those of the whole model. Printed are what `plan` expects
on a disk of 7 GB/s, then what 16 tokens did. Exits with 1 if a model fails.

Environment: GPU_DEVICE (cuda; sim tries it without a GPU, MORAINE_SIM=memory=3G sets its memory), SPARSE_LIMITS ("--vram 24G --ram 96G"),
SPARSE_MODELS ("glm-5.2 deepseek-v4-flash"), SPARSE_TOKENS (16), SPARSE_SECONDS (170, for a model).
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
FOLDER = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "build/models").resolve()
DEVICE = os.environ.get("GPU_DEVICE", "cuda")
LIMITS = os.environ.get("SPARSE_LIMITS", "--vram 24G --ram 96G").split()
TOKENS = os.environ.get("SPARSE_TOKENS", "16")
SECONDS = float(os.environ.get("SPARSE_SECONDS", "170"))
MORAINE = str(BUILD / "moraine")


def run(*words, until):
    """What it printed; exits with the program's own words if it fails."""
    try:
        done = subprocess.run([MORAINE, *words], stdout=subprocess.PIPE, timeout=max(1.0, until - time.monotonic()),
                              env={**os.environ, "XDG_CACHE_HOME": str(FOLDER / "cache")})
    except subprocess.TimeoutExpired:
        raise RuntimeError("%s: not done after %.0f s" % (words[0], SECONDS)) from None
    if done.returncode:
        raise RuntimeError("%s: exit code %d" % (words[0], done.returncode))
    return done.stdout.decode()


def try_model(name, path):
    until = time.monotonic() + SECONDS
    begun = time.monotonic()
    run("synth", name, "--holes", "--force", "-o", str(path), until=until)
    held = path.stat()
    print("%s: %.0f GiB, %.1f of them on the disk, made in %.0f s" % (name, held.st_size / 2**30, held.st_blocks * 512 / 2**30,
                                                                     time.monotonic() - begun), flush=True)
    options = ["--device", DEVICE, *LIMITS, "--ctx", "512", "--batch", "64"]
    print(run("plan", str(path), *options, "--disk", "7GB/s", until=until), flush=True)
    begun = time.monotonic()
    told = json.loads(run("bench", str(path), *options, "--profile", "off", "--prefill", "0", "--decode", TOKENS, "--rounds", "1", "--json",
                          until=until))
    took = time.monotonic() - begun
    tiers = told.get("tiers") or {}
    work, ahead = tiers.get("generation") or {}, tiers.get("read_ahead") or {}
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print("%s: %s tokens at %.2f tokens/s, %.0f s with loading; mode %s" % (name, TOKENS, told["decode_tps"], took, tiers.get("mode")))
    print("  experts asked for %d, found in RAM %d, read for the tokens %.1f GiB" % (
        work.get("asked", 0), work.get("hits", 0), work.get("disk_bytes", 0) / 2**30))
    print("  read ahead %d, of them because the tokens name them %d; useful %d, late %d, never needed %d" % tuple(
        ahead.get(key, 0) for key in ("experts", "known", "useful", "late", "wasted")))
    print("  memory %.1f GiB at most, ceiling %.1f GiB" % (most / 2**30, tiers.get("ceiling_bytes", 0) / 2**30), flush=True)


def main():
    failed = 0
    FOLDER.joinpath("cache").mkdir(parents=True, exist_ok=True)
    for name in os.environ.get("SPARSE_MODELS", "glm-5.2 deepseek-v4-flash").split():
        path = FOLDER / ("sparse-%s.gguf" % name)
        try:
            try_model(name, path)
        except RuntimeError as failure:
            failed += 1
            print("%s: %s" % (name, failure), flush=True)
        finally:
            path.unlink(missing_ok=True)
    sys.exit(1 if failed else 0)


main()
