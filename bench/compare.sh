#!/usr/bin/env bash
# compare.sh BEFORE AFTER [DIRECTORY] [ROUNDS]: two builds of the program on the same models, in turn, and the ratio of their
# speeds. Hosts are shared and their rates move, so only what was measured side by side says anything about a change: every
# round runs each row with both programs, in changing order, and a row's ratio is the median over the rounds.
# Models of true shape are made in DIRECTORY (by BEFORE) and kept. COMPARE_DEVICE: none (default: a few layers on the CPU), cuda
# (whole models; about 30 GB) or sim. COMPARE_ONLY, a pattern of row names, narrows it down.
set -euo pipefail
before=$(realpath "$1") after=$(realpath "$2")
directory=${3:-build/models}
rounds=${4:-5}
device=${COMPARE_DEVICE:-none}
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory

field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" | head -1; }

rows=()
row() { # NAME FIELD arguments...
    if [[ $1 =~ ${COMPARE_ONLY:-.} ]]; then
        rows+=("$1|$2|${*:3}")
    fi
}

speed() { # PROGRAM FIELD arguments...
    "$1" bench "${@:3}" --profile off --rounds 2 --json 2>"$directory/compare.log" | field "$2" || true
}

for name in ${COMPARE_MODELS:-gpt-oss-20b qwen3-30b-a3b}; do
    if [ "$device" = none ]; then
        path=$directory/$name-4.gguf
        [ -f "$path" ] || "$before" synth "$name" --layers 4 -o "$path" >&2
        row "$name, 4 layers: decode" decode_best_tps "$path" --device none --ctx 512 --prefill 0 --decode 48
        row "$name, 4 layers: prompt of 512" prefill_best_tps "$path" --device none --ctx 512 --prefill 512 --decode 0
        row "$name, 4 layers: decode after 2048" decode_best_tps "$path" --device none --ctx 4096 --prefill 2048 --decode 48
    else
        path=$directory/$name-skew0.gguf # as gpu.sh names it
        [ -f "$path" ] || "$before" synth "$name" --skew 0 -o "$path" >&2
        row "$name: decode, all on the GPU" decode_best_tps "$path" --device "$device" --ctx 512 --prefill 0 --decode 128
        row "$name: decode after 2048, all on the GPU" decode_best_tps "$path" --device "$device" --ctx 4096 --batch 2048 --prefill 2048 --decode 128
        row "$name: prompt of 2048, all on the GPU" prefill_best_tps "$path" --device "$device" --ctx 2048 --batch 2048 --prefill 2048 --decode 0
        row "$name: decode, experts in RAM" decode_best_tps "$path" --device "$device" --ctx 512 --prefill 0 --decode 96 --cpu-moe
        row "$name: prompt of 2048, experts in RAM" prefill_best_tps "$path" --device "$device" --ctx 2048 --batch 2048 --prefill 2048 --decode 0 --cpu-moe
    fi
done

declare -A ratios first second
for ((round = 0; round < rounds; round++)); do
    for line in "${rows[@]}"; do
        IFS='|' read -r name what arguments <<<"$line"
        read -r -a words <<<"$arguments"
        if ((round % 2)); then
            a=$(speed "$after" "$what" "${words[@]}") b=$(speed "$before" "$what" "${words[@]}")
        else
            b=$(speed "$before" "$what" "${words[@]}") a=$(speed "$after" "$what" "${words[@]}")
        fi
        if [ -z "$a" ] || [ -z "$b" ]; then
            echo "$name: $(tail -1 "$directory/compare.log")" >&2
            continue
        fi
        first[$name]+=" $b" second[$name]+=" $a"
        ratios[$name]+=" $(awk "BEGIN {print $a / $b}")"
    done
done

median() { tr ' ' '\n' <<<"$1" | grep . | sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
best() { tr ' ' '\n' <<<"$1" | grep . | sort -g | tail -1; }
printf '%-46s %10s %10s %8s   best of %d\n' "tokens/s, medians of $rounds rounds" before after ratio "$rounds"
for line in "${rows[@]}"; do
    name=${line%%|*}
    [ -n "${ratios[$name]:-}" ] || continue
    printf '%-46s %10.1f %10.1f %8.3f   %.1f %.1f (%.3f)\n' "$name" "$(median "${first[$name]}")" "$(median "${second[$name]}")" \
        "$(median "${ratios[$name]}")" "$(best "${first[$name]}")" "$(best "${second[$name]}")" \
        "$(awk "BEGIN {print $(best "${second[$name]}") / $(best "${first[$name]}")}")"
done
