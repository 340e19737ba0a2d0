"""One line of bench/tiers.sh: a measured speed beside its serial bound. Reads JSON from WHOLE, RUN and DISK."""

import json
import os
import sys


def find(whole, run, disk):
    """What a disk of that rate allows of `run`, of a model larger than its RAM, which `whole` is all of: tokens/s, the bytes that a token has to read,
    and the share of its experts' bytes that is in RAM. Both are as `moraine bench --json` prints them."""
    tiers = run["tiers"]
    token_s = 1 / whole["decode_best_tps"]
    per_token = whole["bytes_per_token"]
    core_bytes = whole["weight_bytes"] - tiers["expert_bytes"]
    expert_share = 1 - core_bytes / per_token  # a routed model: a token reads the core and some experts
    # What had to be read: not what was read ahead and never needed.
    ahead = tiers["read_ahead"]
    right = (ahead["useful"] + ahead["late"]) / ahead["experts"] if ahead["experts"] else 0
    generation = tiers["generation"]
    missing = (generation["disk_bytes"] + ahead["bytes"] * right) / generation["passes"]
    core_s, expert_s = token_s * (1 - expert_share), token_s * expert_share
    return 1 / (core_s + max(expert_s, missing / disk)), missing, 1 - missing / (per_token * expert_share)


def main():
    whole, run, disk = json.loads(os.environ["WHOLE"]), json.loads(os.environ["RUN"]), float(os.environ["DISK"])
    bound, missing, hits = find(whole, run, disk)
    print(
        f"  {sys.argv[1]} GiB: {run['decode_tps']:.1f} tokens/s (best {run['decode_best_tps']:.1f}), bound {bound:.1f}, "
        f"{100 * run['decode_tps'] / bound:.0f} % ({100 * run['decode_best_tps'] / bound:.0f} %) of it; "
        f"{missing / 1e6:.0f} MB a token from disk, {100 * hits:.0f} % of the bytes in RAM; "
        f"resident {run['resident_bytes'] / 2**30:.2f} GiB; {run['tiers']['disk']['method']}"
    )


if __name__ == "__main__":
    main()
