#!/usr/bin/env python3
"""test_bound.py BUILD [TEST...]: the bound beside which bench/tiers.sh puts a measured speed: by hand, and from what the program prints. Speaks TAP."""
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent / "bench"), str(HERE / "support")]
import bound
import tap

PROGRAM = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve() / "moraine"
MODEL = HERE.parent / "models/pebble.gguf"
GB = 10**9

# A core of 1 GB, and of experts with 8 GB a token reads 1: half of its 40 ms.
WHOLE = {"decode_best_tps": 25.0, "bytes_per_token": 2 * GB, "weight_bytes": 9 * GB}


def run_of(disk_bytes, **ahead):
    return {
        "tiers": {
            "expert_bytes": 8 * GB,
            "generation": {"disk_bytes": disk_bytes, "passes": 10},
            "read_ahead": {"experts": 0, "useful": 0, "late": 0, "bytes": 0, **ahead},
        }
    }


def near(a, b):
    assert abs(a - b) <= 1e-9 * abs(b), (a, b)


def test_the_slower_of_reads_and_products_counts():
    speed, missing, hits = bound.find(WHOLE, run_of(10 * GB // 2), 5.0 * GB)  # half of the experts' bytes, in 100 ms
    near(speed, 1 / (0.020 + 0.100))
    near(missing, 0.5 * GB)
    near(hits, 0.5)
    speed, missing, hits = bound.find(WHOLE, run_of(10 * GB // 2), 100.0 * GB)  # in 5 ms, behind the products
    near(speed, 25)


def test_nothing_read_is_as_fast_as_ram():
    speed, missing, hits = bound.find(WHOLE, run_of(0), 1.0 * GB)
    near(speed, 25)
    assert missing == 0 and hits == 1


def test_what_nobody_needed_does_not_count():
    """Reads ahead that came true had to be made, late or not; those in vain had not, so a prediction that reads twice as much has the same bound."""
    plain = bound.find(WHOLE, run_of(5 * GB), 5.0 * GB)
    right = bound.find(WHOLE, run_of(3 * GB, experts=40, useful=30, late=10, bytes=2 * GB), 5.0 * GB)
    half = bound.find(WHOLE, run_of(3 * GB, experts=80, useful=30, late=10, bytes=4 * GB), 5.0 * GB)
    for a, b in zip(plain * 2, right + half):
        near(a, b)


def bench(*options):
    command = [PROGRAM, "bench", MODEL, "--device", "none", "--ctx", "512", "--prefill", "0", "--decode", "64", "--rounds", "2", "--profile", "off", "--json", *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_what_the_program_prints():
    """The fields that the bound is made of are there, and a slow disk's bound is lower, in the line of the script too."""
    whole, run = bench(), bench("--ram", "30M")
    assert run["tiers"]["generation"]["disk_bytes"] + run["tiers"]["read_ahead"]["bytes"] > 0
    fast, slow = bound.find(whole, run, 1e12), bound.find(whole, run, 1e6)
    near(fast[0], whole["decode_best_tps"])
    assert slow[0] < fast[0] / 2 and slow[1] == fast[1] > 0 and 0 < slow[2] < 1
    environment = {**os.environ, "WHOLE": json.dumps(whole), "RUN": json.dumps(run), "DISK": "1e12"}
    line = subprocess.run([sys.executable, HERE.parent / "bench/bound.py", "3"], env=environment, capture_output=True, text=True, check=True).stdout
    assert line.startswith("  3 GiB: ") and f"bound {fast[0]:.1f}, " in line, line


sys.exit(tap.run(tap.named(globals()), sys.argv[2:]))
