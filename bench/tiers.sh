#!/usr/bin/env bash
# tiers.sh [BUILD] [DIRECTORY] [CASE...]: models larger than the RAM they are given, on this machine: decode speed at ceilings, beside
# what the disk allows. Models of true shape are made in DIRECTORY (about 15 GB, kept for next time). Where a memory cgroup
# can be made, every run is inside one with the same limit. Cases are qwen3-30b, qwen3-next and dense; without any, all.
#
# The bound of a ceiling is serial: output + sum over layers of (core + max(expert compute, missing bytes / disk rate)),
# with the compute times of the whole model in RAM, split by the bytes read, and the disk rate of `moraine probe`.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "${1:-build}")/moraine
directory=${2:-build/models}
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory
. bench/cgroup.sh

field() { python3 -c "import json,sys; d=json.load(sys.stdin); print(eval('d'+sys.argv[1]))" "$1"; }

model() { # NAME LAYERS: path
    local path=$directory/$1-$2.gguf
    [ -f "$path" ] || { "$moraine" synth "$1" --layers "$2" -o "$path" >&2 && sync "$path"; } # a disk that still writes reads slowly
    echo "$path"
}

probe() { "$moraine" probe "$1" --json 2>/dev/null | field '["disk_bytes_s"]'; }

routed() { # PATH, ceilings in GiB...
    local path=$1 disk whole
    shift
    disk=$(probe "$path")
    whole=$("$moraine" bench "$path" --ctx 512 --prefill 0 --decode 64 --rounds 5 --profile off --json)
    printf '%s: all in RAM %.1f tokens/s, disk %.2f GB/s\n' "$(basename "$path")" "$(field '["decode_best_tps"]' <<<"$whole")" \
        "$(awk "BEGIN {print $disk / 1e9}")"
    for ceiling in "$@"; do
        local run
        run=$(inside "$ceiling" "$moraine" bench "$path" --ctx 512 --ram "${ceiling}G" --prefill 0 --decode 64 --rounds 5 \
            --profile off --io direct --json)
        WHOLE=$whole RUN=$run DISK=$disk python3 bench/bound.py "$ceiling"
    done
}

qwen3-30b() { routed "$(model qwen3-30b-a3b 12)" 3 2; }
qwen3-next() { routed "$(model qwen3-next-80b-a3b 12)" 6 5; }
dense() {
    local path=$directory/llama-3-8b-q8_0.gguf
    [ -f "$path" ] || { "$moraine" synth llama-3-8b --type q8_0 -o "$path" >&2 && sync "$path"; }
    probe "$path" | awk '{printf "llama-3-8b Q8_0 streamed, disk %.2f GB/s\n", $1 / 1e9}'
    "$moraine" bench "$path" --ctx 512 --ram 5G --prefill 0 --decode 8 --rounds 2 --profile off --io direct
}

cases=("${@:3}")
[ ${#cases[@]} -gt 0 ] || cases=(qwen3-30b qwen3-next dense)
for name in "${cases[@]}"; do
    case $name in
    qwen3-30b | qwen3-next | dense) "$name" ;;
    *) echo "tiers.sh: there are the cases qwen3-30b, qwen3-next and dense, not $name" >&2; exit 2 ;;
    esac
done
