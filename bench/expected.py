#!/usr/bin/env python3
"""expected.py MORAINE MODEL...: plan and run of each model at several ceilings; see expected.sh."""
import json
import os
import subprocess
import sys

CONTEXT, BATCH, DECODE = 512, 256, 48
MIB = 1 << 20


def plan(moraine, model, ram):
    command = [moraine, "plan", model, "--json", "--device", "none", "--ctx", str(CONTEXT), "--batch", str(BATCH)]
    done = subprocess.run(command + (["--ram", str(ram)] if ram else []), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout) if done.returncode == 0 else None


def run(moraine, model, ram, prefill, decode):
    """The JSON of bench, and the peak of the process in bytes."""
    command = [moraine, "bench", model, "--json", "--device", "none", "--ctx", str(CONTEXT), "--batch", str(BATCH), "--profile",
               "off", "--prefill", str(prefill), "--decode", str(decode), "--rounds", "3"]
    child = subprocess.Popen(command + (["--ram", str(ram)] if ram else []), stdout=subprocess.PIPE)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit("%s: bench failed" % model)
    return json.loads(text), usage.ru_maxrss * 1024


def main():
    moraine, models = sys.argv[1], sys.argv[2:]
    bad = 0
    print("%-22s %9s %9s %9s %6s %9s %9s %6s" % ("model", "ceiling", "mode", "expected", "ratio", "planned", "peak", "share"))
    for model in models:
        whole = plan(moraine, model, 0)
        least, most = whole["least_bytes"], whole["whole_bytes"]
        for share in (None, 0.75, 0.5, 0.25):
            ram = int(least + share * (most - least)) if share else 0
            p = plan(moraine, model, ram)
            if not p:
                continue
            # The second run is for memory: a context and a batch that are used to their ends.
            speed, _ = run(moraine, model, ram, 0, DECODE)
            _, peak = run(moraine, model, ram, CONTEXT - 1, 1)
            ratio, used = speed["decode_tps"] / p["tokens_per_second"], peak / p["used_bytes"]
            wrong = ratio < 0.9 or used > 1.0 or used < 0.85
            bad += wrong
            print("%-22s %7.0f M %9s %7.1f/s %6.2f %7.0f M %7.0f M %6.2f%s" %
                  (os.path.basename(model)[:22], p["ceiling_bytes"] / MIB, p["mode"], p["tokens_per_second"], ratio,
                   p["used_bytes"] / MIB, peak / MIB, used, "  <-" if wrong else ""), flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
