#!/usr/bin/env python3
"""planned.py MORAINE MODEL DEVICE UNTIL VRAM...: one model's rows of planned.sh; UNTIL: seconds since 1970."""
import json
import os
import subprocess
import sys
import time

LEAST, MOST = 0.9, 1.15
PREFILL, DECODE, ROUNDS = 256, 128, 3


def asked(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print("%s: %s" % (" ".join(command[1:]), done.stderr.strip().split("\n")[-1]))
        return None
    return json.loads(done.stdout)


def percent(part, whole):
    return 100.0 * part / whole if whole else 0.0


def measure(moraine, model, device, vram):
    """A row's figures; None: there is no plan, or no run."""
    options = [model, "--device", device, "--vram", vram]
    plan = asked([moraine, "plan", *options, "--json"])
    if not plan or not plan["device"]:
        return None
    run = asked([moraine, "bench", *options, "--profile", "off", "--prefill", str(PREFILL), "--decode", str(DECODE), "--rounds", str(ROUNDS),
                 "--json"])
    if not run or not run["device"]:
        return None
    d, p = run["device"], plan["device"]
    missing = d["asked"] - d["hits"]
    return {"planned": plan["tokens_per_second"], "measured": run["decode_tps"], "ratio": run["decode_tps"] / plan["tokens_per_second"],
            "hits": (100 * p["token"]["hit_rate"], percent(d["hits"], d["asked"])),
            "crossing": (100 * p["fetch_share"], percent(missing - d["by_cpu"], missing)),
            "cpu": (plan["rates"]["ram_bytes_s"] * plan["rates"]["compute_share"] / 1e9, d["cpu_bytes_s"] / 1e9),
            "link": (p["rates"]["link_bytes_s"] / 1e9, d["link_bytes_s"] / 1e9), "batch": plan["batch"]}


def main():
    moraine, model, device, until = sys.argv[1:4] + [float(sys.argv[4])]
    wrong = 0
    print("\n%-26s %5s %9s %9s %6s   %13s   %15s   %13s   %13s" % (
        os.path.basename(model)[:26], "VRAM", "planned", "measured", "ratio", "hits, %", "missing sent, %", "CPU, GB/s", "link, GB/s"), flush=True)
    for vram in sys.argv[5:]:
        if time.time() > until:
            print("%-26s %5s  left out: no time" % ("", vram), flush=True)
            wrong += 1
            continue
        r = measure(moraine, model, device, vram)
        if not r:
            wrong += 1
            continue
        bad = not LEAST <= r["ratio"] <= MOST
        wrong += bad
        print("%-26s %5s %7.1f/s %7.1f/s %6.2f   %5.1f / %5.1f   %6.1f / %6.1f   %5.1f / %5.1f   %5.1f / %5.1f%s" % (
            "", vram, r["planned"], r["measured"], r["ratio"], *r["hits"], *r["crossing"], *r["cpu"], *r["link"],
            "  outside %.2f to %.2f" % (LEAST, MOST) if bad else ""), flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
