#!/usr/bin/env bash
# planned.sh [BUILD] [DIRECTORY]: decoding as planned and as measured, for three models of true shape under four ceilings of the GPU's
# memory, with everything else in RAM. Who computes is compared as well: the share of the missing experts that crosses the link, and the rates of
# CPU and link. Every ratio (measured / planned) should be between 0.9 and 1.15; others are marked, and the script exits with 1.
# The machine is probed first. Models are made in DIRECTORY one after the other (at most 24 GB) and removed; PLANNED_KEEP=1 keeps
# them. About six minutes with 16 cores and an H200; cells that would begin after PLANNED_LIMIT seconds (520) are left out.
# PLANNED_MODELS ("gpt-oss-20b qwen3-next-80b-a3b:24", a name and its first layers) and PLANNED_VRAM ("4G 8G") narrow it down;
# GPU_DEVICE=sim tries the script without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "${1:-build}")/moraine
directory=${2:-build/models}
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory/cache
begin=$(date +%s)
limit=${PLANNED_LIMIT:-520}
wrong=0

"$moraine" probe --force --dir "$directory" --device "${GPU_DEVICE:-cuda}" --json >"$directory/probe.json"
# What experts of each size get, which the plans divide missing ones by; CPU and link below are the plan's rates of large copies, and the run's.
python3 - "$directory/probe.json" <<'END'
import json, sys
for e in json.load(open(sys.argv[1]))["device"]["experts"]:
    print("experts of %3d MiB: CPU %6.1f GB/s alone, %6.1f beside copies, link %5.1f" % (
        e["bytes"] >> 20, e["cpu_bytes_s"] / 1e9, e["both_cpu_bytes_s"] / 1e9, e["both_link_bytes_s"] / 1e9))
END
for model in ${PLANNED_MODELS:-qwen3.6-35b-a3b gpt-oss-20b qwen3-next-80b-a3b:24}; do
    name=${model%%:*}
    path=$directory/${model/:/-}.gguf
    layers=()
    [ "$name" = "$model" ] || layers=(--layers "${model##*:}")
    [ -f "$path" ] || "$moraine" synth "$name" "${layers[@]}" -o "$path" 2>"$directory/synth.log" ||
        { tail -1 "$directory/synth.log" >&2; exit 1; }
    # shellcheck disable=SC2086
    python3 bench/planned.py "$moraine" "$path" "${GPU_DEVICE:-cuda}" "$((begin + limit))" ${PLANNED_VRAM:-4G 8G 12G 16G} || wrong=1
    [ -n "${PLANNED_KEEP:-}" ] || rm -f "$path"
done
exit $wrong
