#!/usr/bin/env bash
# tiers-gpu.sh [BUILD] [DIRECTORY]: models of true shape, with fewer layers, whose experts (or layers) lie in the GPU's memory, in RAM
# and on disk. A first start without a profile: how many slots in both are filled after a prompt of 512 tokens, and at what rate the
# disk gave what that took, in GB/s while it was asked for something and in percent of what it gave `probe`; then decoding
# against what the plan expects, and what a token takes from disk, past the page cache, where the model would still lie. Models are made in DIRECTORY, one at a time (some 20 GB), and
# removed. Rates are probed first, with the first model, into DIRECTORY. TIERS_ROWS narrows it down to rows of that
# number; GPU_DEVICE=sim tries the script without a GPU; TIERS_KEEP=1 keeps the models.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "${1:-build}")/moraine
directory=$(realpath "${2:-build/models}")
device=${GPU_DEVICE:-cuda}
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory/cache
mkdir -p "$XDG_CACHE_HOME"

# FIELD.FIELD...: a number of the JSON object on stdin; 0 where there is none.
value() {
    tr '\n' ' ' | sed 's/\([{}]\)/\n\1\n/g; s/,/\n/g' | awk -v want="$1" '
        /^{/ {depth++; path[depth] = key; key = ""; next}
        /^}/ {depth--; next}
        /"[^"]*" *:/ {
            split($0, part, "\""); key = part[2]; full = key
            for (i = depth; i > 1; i--) {full = path[i] "." full}
            number = $0; sub(/^[^:]*: */, "", number)
            if (full == want) {found = number + 0}
        }
        END {printf "%.6f", found}'
}

#     model                layers  vram  ram
rows=("gpt-oss-120b        10      4G    6G"
    "gpt-oss-120b        10      4G    12G"
    "gpt-oss-120b        10      8G    6G"
    "gpt-oss-120b        10      8G    12G"
    "gpt-oss-120b        10      12G   8G"
    "qwen3-next-80b-a3b  12      4G    5G"
    "qwen3-next-80b-a3b  12      4G    9G"
    "qwen3-next-80b-a3b  12      8G    5G"
    "llama-3-70b         20      6G    8G"
    "llama-3-70b         20      6G    4G")

printf '%-28s %5s %5s | %15s %15s %9s %15s | %9s %9s %6s | %10s %10s %7s\n' model vram ram "VRAM filled" "RAM filled" "prompt/s" "disk GB/s" \
    "decode/s" "plan's" "%" "disk/token" "plan's" "there"
made=
for ((i = 0; i < ${#rows[@]}; i++)); do
    read -r name layers vram ram <<<"${rows[$i]}"
    if ! [[ " ${TIERS_ROWS:-$(seq -s ' ' 0 99)} " == *" $i "* ]]; then
        continue
    fi
    path=$directory/tiers-$name-$layers.gguf
    if [ "$made" != "$path" ]; then
        [ -z "$made" ] || [ -n "${TIERS_KEEP:-}" ] || rm -f "$made"
        [ -f "$path" ] || { "$moraine" synth "$name" --layers "$layers" -o "$path" >&2 && sync "$path"; } # a disk that still writes reads slowly
        made=$path
        [ -f "$XDG_CACHE_HOME/probed" ] || { "$moraine" probe "$path" --force --device "$device" >&2 && touch "$XDG_CACHE_HOME/probed"; }
    fi
    options=(--device "$device" --vram "$vram" --ram "$ram" --ctx 2048 --batch 512)
    plan=$("$moraine" plan "$path" "${options[@]}" --json 2>/dev/null) || { echo "$name $vram $ram: the plan refuses" >&2; continue; }
    first=$("$moraine" bench "$path" "${options[@]}" --io direct --profile off --prefill 512 --decode 1 --rounds 1 --json 2>"$directory/tiers.log") ||
        { tail -1 "$directory/tiers.log" >&2; continue; }
    then=$("$moraine" bench "$path" "${options[@]}" --io direct --profile off --prefill 512 --decode 64 --rounds 3 --json 2>"$directory/tiers.log") ||
        { tail -1 "$directory/tiers.log" >&2; continue; }
    expected=$(value tokens_per_second <<<"$plan")
    disk=$(value token.disk_bytes <<<"$plan")
    awk -v name="$name, $layers layers" -v vram="$vram" -v ram="$ram" -v vf="$(value device.filled <<<"$first")" \
        -v vs="$(value device.slots <<<"$first")" -v rf="$(value tiers.filled <<<"$first")" -v rs="$(value tiers.slots <<<"$first")" \
        -v read="$(value tiers.disk.bytes <<<"$first")" -v busy="$(value tiers.disk.busy_seconds <<<"$first")" \
        -v probed="$(value tiers.disk.probed_bytes_s <<<"$first")" \
        -v prompt="$(value prefill_tps <<<"$first")" -v speed="$(value decode_best_tps <<<"$then")" -v expected="$expected" \
        -v bytes="$(value tiers.generation.disk_bytes <<<"$then")" -v ahead="$(value tiers.read_ahead.bytes <<<"$then")" -v passes="$(value tiers.generation.passes <<<"$then")" \
        -v layer_bytes="$(value tiers.layers.bytes <<<"$then")" -v steps="$(value tiers.prompt.passes <<<"$then")" -v disk="$disk" \
        -v h="$(value device.hits <<<"$then")" -v a="$(value device.asked <<<"$then")" 'BEGIN {
        printf "%-28s %5s %5s | %6d of %5d   %6d of %5d %9.0f %6.2f (%3.0f %%) | %9.1f %9.1f %6.0f | %7.1f MB %7.1f MB %5.0f %%\n", name, vram, ram, vf, vs, rf, rs,
            prompt, busy ? read / busy * 1e-9 : 0, busy && probed ? 100 * read / busy / probed : 0, speed, expected, expected ? 100 * speed / expected : 0, passes ? (bytes + ahead) / passes / 1e6 : layer_bytes / 1e6 / (192 + 3),
            disk / 1e6, a ? 100 * h / a : 0}'
done
[ -z "$made" ] || [ -n "${TIERS_KEEP:-}" ] || rm -f "$made"
