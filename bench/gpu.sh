#!/usr/bin/env bash
# gpu.sh [BUILD] [DIRECTORY] [ROUNDS]: models of true shape on this machine's GPU, with their experts in RAM, half in the
# GPU's memory, or all of them there; decoding and prompts. Every figure is the best of ROUNDS interleaved loads, twice each,
# because such machines are often shared. Models are made in DIRECTORY (about 150 GB in all for
# the two large ones and their skewed twins; memory if there is enough, such as /dev/shm) and kept.
# GPU_MODELS and GPU_ONLY (a pattern of row names) narrow it down; GPU_DEVICE=sim tries the script itself without a GPU.
# Then prompts of 512 to 8192 tokens, exact, in bfloat16 and by the CPU alone, prompts and decoding after many positions (GPU_DEPTHS), and sequences decoded
# together (GPU_SEQUENCES); where
# LLAMA_BENCH names llama.cpp's llama-bench, its figures for the same file come after ours. Then dense models, whole and under a ceiling of half of that, prompts in both
# precisions with their distance from F32 (GPU_PRECISION), and large models under small ceilings beside what the plan expects; at last, for the
# first model, the modes of Post-Fetch with blocking on and off: tokens/s, layer times, the GPU's busy share, how much of the copies lay beside the
# CPU's lane and what fell back; and what Post-Fetch costs where it has nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "${1:-build}")/moraine
directory=${2:-build/models}
rounds=${3:-3}
device=${GPU_DEVICE:-cuda}
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory

field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" | head -1; }

model() { # NAME SKEW: path
    local path=$directory/$1-skew$2.gguf
    [ -f "$path" ] || "$moraine" synth "$1" --skew "$2" -o "$path" >&2
    echo "$path"
}

# Rows are collected as "name|arguments" and run in turn, ROUNDS times.
rows=()
row() { # NAME FIELD arguments...
    local name=$1 what=$2
    shift 2
    if [[ $name =~ ${GPU_ONLY:-.} ]]; then
        rows+=("$name|$what|$*")
    fi
}

declare -A best detail
run_rows() {
    local round line name what arguments out value
    for ((round = 0; round < rounds; round++)); do
        for line in "${rows[@]}"; do
            IFS='|' read -r name what arguments <<<"$line"
            # shellcheck disable=SC2086
            if ! out=$("$moraine" bench $arguments --profile off --rounds 2 --json 2>"$directory/gpu.log"); then
                echo "$name: $(tail -1 "$directory/gpu.log")" >&2
                continue
            fi
            value=$(field "$what" <<<"$out")
            out=${out##*\"device\":} # the device's own figures; the tiers have some of the same names
            if awk "BEGIN {exit !($value > ${best[$name]:-0})}"; then
                best[$name]=$value
                detail[$name]=$(awk -v h="$(field hits <<<"$out")" -v a="$(field asked <<<"$out")" \
                    -v f="$(field fetched <<<"$out")" -v p="$(field peak_bytes <<<"$out")" \
                    -v l="$(field limit_bytes <<<"$out")" -v w="$(field wait_seconds <<<"$out")" \
                    -v c="$(field cpu_seconds <<<"$out")" -v t="$(field fetch_seconds <<<"$out")" \
                    -v u="$(field hidden_seconds <<<"$out")" \
                    'BEGIN {printf "there %.0f %%, fetched %.0f %%, VRAM %.2f of %.2f GB, waiting %.2f s, CPU %.2f s, copies %.2f s (%.0f %% hidden)",
                            a ? 100 * h / a : 100, a ? 100 * f / a : 0, p / 1e9, l / 1e9, w, c, t, t ? 100 * u / t : 0}')
            fi
        done
    done
    for line in "${rows[@]}"; do
        name=${line%%|*}
        printf '%-58s %9.1f  %s\n' "$name" "${best[$name]:-0}" "${detail[$name]:-}"
    done
    rows=()
}

half_of() { # PATH: a ceiling under which half of the experts stay on the device
    "$moraine" bench "$1" --device "$device" --ctx 512 --prefill 0 --decode 1 --rounds 1 --profile off --json 2>/dev/null |
        awk -F'[:,]' '/"peak_bytes"/ {p = $2} /"slot_bytes"/ {s = $2} END {printf "%.0f", p - s / 2}' RS='[,}]'
}

# One load of a mode, three rounds of it: layer times are quantiles over all of them.
lanes() { # NAME BLOCKING arguments...
    local name=$1 block=$2 out
    shift 2
    if ! [[ $name =~ ${GPU_ONLY:-.} ]]; then
        return 0
    fi
    if ! out=$(LLAMA_POSTFETCH_BLOCK_ON_MISS=$block "$moraine" bench "$@" --profile off --rounds 3 --json 2>"$directory/gpu.log"); then
        echo "$name: $(tail -1 "$directory/gpu.log")" >&2
        return 0
    fi
    awk -v n="$name" -v s="$(field decode_best_tps <<<"$out")" -v m="$(field layer_p50_us <<<"$out")" \
        -v p="$(field layer_p99_us <<<"$out")" -v b="$(field gpu_busy <<<"$out")" -v o="$(field overlap <<<"$out")" \
        -v f="$(field fallback_rate <<<"$out")" -v l="$(field late_copy <<<"$out")" \
        'BEGIN {printf "%-58s %9.1f  layer p50 %.0f us, p99 %.0f us, GPU busy %.0f %%, overlap %.0f %%, fallbacks %.1f %% (%d late)\n",
                n, s, m, p, 100 * b, 100 * o, 100 * f, l}'
}

for name in ${GPU_MODELS:-gpt-oss-20b qwen3-30b-a3b}; do
    skew=0.7
    [ "$name" = gpt-oss-20b ] && skew=1.4
    even=$(model "$name" 0)
    decode="--device $device --ctx 512 --prefill 0 --decode 128"
    half=$(half_of "$even")
    row "$name: decode, all on the GPU" decode_best_tps "$even $decode"
    row "$name: decode, all experts in RAM" decode_best_tps "$even $decode --cpu-moe"
    row "$name: decode, half of the experts" decode_best_tps "$even $decode --vram $half"
    if [[ "$name: decode, half, skewed router" =~ ${GPU_ONLY:-.} ]]; then
        row "$name: decode, half, skewed router" decode_best_tps "$(model "$name" $skew) $decode --vram $half"
    fi
    prefill="--device $device --ctx 2048 --batch 2048 --prefill 2048 --decode 0"
    row "$name: prefill 2048, all on the GPU" prefill_best_tps "$even $prefill"
    row "$name: prefill 2048, all experts in RAM" prefill_best_tps "$even $prefill --cpu-moe"
    row "$name: decode, the CPU alone" decode_best_tps "$even --device none --ctx 512 --prefill 0 --decode 64"
    run_rows
done

# Prompts, depths and sequences, everything on the GPU, with llama.cpp's figures where its program is named.
long() { # NAME PATH
    local name=$1 path=$2 n
    local on="$path --device $device --batch 2048"
    for n in 512 2048; do
        row "$name: long, prompt of $n" prefill_best_tps "$on --ctx $((n + 64)) --prefill $n --decode 0"
    done
    local wide="$path --device $device --batch 8192" # as plans choose
    row "$name: long, prompt of 8192" prefill_best_tps "$wide --ctx 8256 --prefill 8192 --decode 0"
    for n in 512 2048 8192; do
        row "$name: long, prompt of $n, bf16" prefill_best_tps "$wide --ctx 8256 --prefill $n --decode 0 --prompt-precision bf16"
    done
    for n in 512 4096; do
        row "$name: long, prompt of $n, the CPU alone" prefill_best_tps "$path --device none --ctx $((n + 64)) --prefill $n --decode 0"
    done
    for n in ${GPU_DEPTHS-8192 32768 65536 129024}; do # the last with a prompt ends at 131072, what the models were made for
        row "$name: long, prompt of 2048 after $n" prefill_best_tps "$on --ctx $((n + 2048)) --depth $n --prefill 2048 --decode 0"
        row "$name: long, decode after $n" decode_best_tps "$on --ctx $((n + 128)) --depth $n --prefill 0 --decode 64"
    done
    for n in ${GPU_SEQUENCES-8 32 64}; do
        row "$name: long, $n sequences" together_best_tps "$on --ctx 512 --parallel $n --prefill 256 --decode 64"
    done
    run_rows
}
theirs() { # PATH
    local options
    for options in "-p 512,2048,8192 -n 0" "-p 2048 -n 64 -d 32768" "-p 0 -n 64 -d 8192" "-p 2048 -n 64 -d 129024"; do
        # shellcheck disable=SC2086
        "$LLAMA_BENCH" -m "$1" -ngl 99 -fa 1 -b 2048 -ub 2048 -r 3 $options 2>"$directory/gpu.log" | grep '^|' ||
            tail -1 "$directory/gpu.log" >&2
    done
}
for name in ${GPU_MODELS:-gpt-oss-20b qwen3-30b-a3b} ${GPU_LONG-qwen3.6-35b-a3b gemma-4-26b-a4b qwen3-next-80b-a3b:16}; do
    layers=${name#*:}
    name=${name%:*}
    [[ "$name: long" =~ ${GPU_ONLY:-.} ]] || continue
    if [ "$layers" = "$name" ]; then
        path=$(model "$name" 0)
    else
        path=$directory/$name-$layers.gguf
        [ -f "$path" ] || "$moraine" synth "$name" --layers "$layers" -o "$path" >&2
    fi
    long "$name" "$path"
    if [ -n "${LLAMA_BENCH:-}" ]; then
        theirs "$path"
    fi
done

# Dense: everything there, and half: the rate of the copies beside the probed one shows whether the link is busy.
for spec in ${GPU_DENSE-llama-3-8b:q8_0:0 llama-3-70b:q6_k:12}; do
    IFS=: read -r name format layers <<<"$spec"
    [[ "$name: dense" =~ ${GPU_ONLY:-.} ]] || continue
    path=$directory/$name-$format-$layers.gguf
    # shellcheck disable=SC2046
    [ -f "$path" ] || "$moraine" synth "$name" --type "$format" $([ "$layers" = 0 ] || echo --layers "$layers") -o "$path" >&2
    decode="$path --device $device --ctx 512 --prefill 0 --decode 32"
    prefill="$path --device $device --ctx 2048 --batch 2048 --prefill 2048 --decode 0"
    whole=$("$moraine" bench $decode --rounds 1 --profile off --json 2>/dev/null | awk -F'[:,]' '/"peak_bytes"/ {print $2}' RS='[,}]')
    half=$((whole / 2))
    row "$name $format: dense, decode, all on the GPU" decode_best_tps "$decode"
    row "$name $format: dense, decode, half" decode_best_tps "$decode --vram $half"
    row "$name $format: dense, prefill 2048, all on the GPU" prefill_best_tps "$prefill"
    row "$name $format: dense, prefill 2048, bf16" prefill_best_tps "$prefill --prompt-precision bf16"
    row "$name $format: dense, prefill 2048, half" prefill_best_tps "$prefill --vram $half"
    run_rows
    "$moraine" bench $decode --vram "$half" --rounds 1 --profile off 2>/dev/null | sed -n '/do not fit/,/crossed/p'
    "$moraine" bench $prefill --vram "$half" --rounds 1 --profile off 2>/dev/null | sed -n '/crossed/p'
done

# Prompts exact and in bfloat16 side by side, and how far both are from the same weights in F32: mean KL divergence over 520 random tokens.
kl() { # PATH PRECISION ARGUMENTS...
    local path=$1 precision=$2
    shift 2
    LLAMA_FP4_PREFILL_M=64 "$moraine" eval "$path" --tokens "$directory/gpu.ids" --kv f32 --device "$device" --batch 520 --profile off \
        --prompt-precision "$precision" "$@" 2>"$directory/gpu.log" || tail -1 "$directory/gpu.log" >&2
}
for spec in ${GPU_PRECISION-llama-3-8b:q8_0:8 qwen3.6-35b-a3b:nvfp4:4}; do
    IFS=: read -r name format layers <<<"$spec"
    [[ "$name: precision" =~ ${GPU_ONLY:-.} ]] || continue
    path=$directory/$name-$format-$layers.gguf
    [ -f "$path" ] || "$moraine" synth "$name" --type "$format" --layers "$layers" -o "$path" >&2
    for n in 512 2048 8192; do
        for precision in exact bf16; do
            row "$name $format, $layers layers: precision, prompt of $n, $precision" prefill_best_tps \
                "$path --device $device --batch 8192 --ctx 8256 --prefill $n --decode 0 --prompt-precision $precision"
        done
    done
    run_rows
    awk 'BEGIN {srand(7); for (i = 0; i < 520; i++) printf "%d ", 100 + int(rand() * 30000)}' >"$directory/gpu.ids"
    floats="--rest f32" # a dense model has no experts to name
    "$moraine" inspect "$path" --json | grep '"experts": *[1-9]' >/dev/null && floats="--experts f32 --rest f32"
    # shellcheck disable=SC2086
    if ! "$moraine" quantize "$path" "$directory/gpu.f32" --force $floats 2>"$directory/gpu.log"; then
        tail -1 "$directory/gpu.log" >&2
        continue
    fi
    kl "$directory/gpu.f32" exact --save-logits "$directory/gpu.logits" >/dev/null
    rm "$directory/gpu.f32"
    for precision in exact bf16; do
        value=$(kl "$path" "$precision" --compare "$directory/gpu.logits" --json | field kl_divergence)
        printf '%-58s %9.2e\n' "$name $format, $layers layers: precision, KL from F32, $precision" "${value:-nan}"
    done
    rm -f "$directory/gpu.logits"
done

# Small GPUs, played by this one with a ceiling.
for spec in ${GPU_SMALL-qwen3-next-80b-a3b:24 gpt-oss-120b:18}; do
    IFS=: read -r name layers <<<"$spec"
    [[ "$name: small ceilings" =~ ${GPU_ONLY:-.} ]] || continue
    path=$directory/$name-$layers.gguf
    [ -f "$path" ] || "$moraine" synth "$name" --layers "$layers" -o "$path" >&2
    for vram in 4G 8G; do
        row "$name: small ceilings, $vram" decode_best_tps "$path --device $device --ctx 512 --prefill 0 --decode 64 --vram $vram"
    done
    run_rows
    for vram in 4G 8G; do
        expected=$("$moraine" plan "$path" --device "$device" --ctx 512 --vram $vram --json 2>/dev/null | field tokens_per_second)
        awk -v b="${best["$name: small ceilings, $vram"]:-0}" -v e="${expected:-0}" -v v=$vram \
            'BEGIN {if (e > 0) printf "    the plan expects %.1f with %s: %.0f %% (80 are asked)\n", e, v, 100 * b / e}'
    done
done

name=${GPU_MODELS:-gpt-oss-20b}
name=${name%% *}
even=$(model "$name" 0)
for mode in off down expert auto; do
    for block in 1 0; do
        lanes "$name: Post-Fetch $mode, blocking $block" $block "$even" --device "$device" --ctx 512 --prefill 0 --decode 48 \
            --cpu-moe --postfetch $mode
    done
done
for mode in off auto; do
    row "$name: resident, Post-Fetch $mode" decode_best_tps "$even --device $device --ctx 512 --prefill 0 --decode 128 --postfetch $mode"
done
run_rows
off=${best["$name: resident, Post-Fetch off"]:-0}
if awk "BEGIN {exit !($off > 0)}"; then
    awk -v a="${best["$name: resident, Post-Fetch auto"]:-0}" -v o="$off" \
        'BEGIN {printf "Post-Fetch with everything resident costs %.1f %% (at most 1 is asked)\n", 100 * (1 - a / o)}'
fi
