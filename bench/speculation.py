#!/usr/bin/env python3
"""speculation.py PROGRAM MODEL [--ram SIZE,...] [--clients N,...] [--accepted P,...] [--depth K] [--rounds N] [--decode N] [--prefill N] [--json FILE] [-- more options of bench]

Speculative decoding against none, over how often guesses are right, tiers (ceilings of memory; "all": no ceiling) and clients: one run
of `moraine bench` for each cell, which decodes with and without guesses in turn. Every client guesses, and in a second run only the
first one, where the time between tokens of the others counts. Prints every cell, and the worst: answers must not fall below 0.97 of
those without guesses, prompts not below 0.96, and the median time between tokens of clients without guesses may be 1.03 times that without. Exits with 1
if a cell misses one of these. Nothing else should run meanwhile.
"""
import argparse
import json
import subprocess
import sys

LIMITS = {"ratio": 0.97, "prompt_ratio": 0.96, "between_tokens_ratio": 1.03}


def measure(options, ram, clients, accepted, drafting):
    command = [options.program, "bench", options.model, "--speculate", "auto", "--draft", str(options.depth), "--accepted", str(accepted), "--json",
               "--rounds", str(options.rounds), "--decode", str(options.decode), "--prefill", str(options.prefill), *options.extra]
    command += ["--ram", ram] if ram != "all" else []
    command += ["--parallel", str(clients), "--drafting", str(drafting)] if clients > 1 else []
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit("%s: %s" % (" ".join(command), ended.stderr.strip()))
    return json.loads(ended.stdout)


def main():
    def numbers(text):
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--ram", default="all", help="ceilings, such as all,4G,2G (default: all)")
    parser.add_argument("--clients", type=numbers, default=[1, 2, 4, 8, 16])
    parser.add_argument("--accepted", type=numbers, default=[0, 20, 40, 60, 80, 100])
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--prefill", type=int, default=256)
    parser.add_argument("--json", help="file for all cells")
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    options.extra = sys.argv[len(own) + 2:]
    cells, worst = [], {}
    print("%-6s %-7s %7s %8s  %8s %8s %8s %8s %8s" % ("ram", "tier", "clients", "guessing", "right", "answers", "prompts", "between", "guessed"))
    for ram in options.ram.split(","):
        for clients in options.clients:
            for drafting in sorted({1, clients}):
                for accepted in options.accepted:
                    cell = measure(options, ram, clients, accepted, drafting)
                    cell["ram"] = ram
                    cells.append(cell)
                    print("%-6s %-7s %7d %8d  %6d %% %8.3f %8.3f %8.3f %8d" % (ram, cell["tier"], clients, drafting, accepted, cell["ratio"], cell["prompt_ratio"],
                                                                               cell["between_tokens_ratio"], cell["drafted"]), flush=True)
                    for name in LIMITS:
                        if name == "between_tokens_ratio":
                            counts, worse = drafting < clients, lambda a, b: a > b
                        else:
                            counts, worse = True, lambda a, b: a < b
                        if counts and (name not in worst or worse(cell[name], worst[name][name])):
                            worst[name] = cell
    failed = False
    for name, limit in LIMITS.items():
        if name not in worst:
            continue
        cell = worst[name]
        missed = cell[name] > limit if name == "between_tokens_ratio" else cell[name] < limit
        failed = failed or missed
        print("worst %-20s %.3f (limit %.2f%s): ram %s, %d clients, %d guessing, %d %% right" % (name, cell[name], limit, ", MISSED" if missed else "", cell["ram"], cell["sequences"],
                                                                                                cell["drafting"], cell["accepted"]))
    if options.json:
        with open(options.json, "w") as f:
            json.dump(cells, f, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
