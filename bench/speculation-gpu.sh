#!/usr/bin/env bash
# speculation-gpu.sh [BUILD] [DIRECTORY]: speculative decoding on this machine's GPU: models of true shape whose own text is guessed, all in
# the GPU's memory, half of the experts there, or all of them in RAM; every figure is a ratio to decoding without guesses, in turn in one process, and
# stands beside what is asked of it. First what guesses bring; then, with the number of guesses chosen as --speculate auto does, that they cost nothing where
# none or all of them are right, for 1 and 16 sequences, of which all or one have guesses. At last the built-in model repeats a text.
# A synthetic model has no MTP head. Its cost is that of a model of one layer with the same output matrix on the CPU, which computes heads; rows
# of heads and of dense models print the ratio with it, and the cost.
# Models are made in DIRECTORY (about 65 GB; memory if there is enough, such as /dev/shm) and kept. SPECULATION_ONLY (a pattern
# of row names: 'guesses|pebble' is all but --speculate auto) narrows it down; SPECULATION_MODELS, SPECULATION_HEADS and SPECULATION_DENSE name the models; SPECULATION_ROUNDS (3); GPU_DEVICE=sim tries the script itself without a GPU, SPECULATION_LAYERS=2 with
# small models. Exits with 1 if a row misses what is asked.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "${1:-build}")/moraine
directory=${2:-build/models}
device=${GPU_DEVICE:-cuda}
rounds=${SPECULATION_ROUNDS:-3}
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory
missed=0

field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" | head -1; }
wanted() { [[ $1 =~ ${SPECULATION_ONLY:-.} ]]; }

model() { # NAME [LAYERS]: path
    local layers=${2:-${SPECULATION_LAYERS:-}}
    local path=$directory/$1${layers:+-$layers}.gguf
    # shellcheck disable=SC2086
    [ -f "$path" ] || "$moraine" synth "$1" ${layers:+--layers $layers} -o "$path" >&2
    echo "$path"
}

head_of() { # NAME: seconds that a guess of its MTP head takes; 0: not asked for
    wanted "$1: guesses" || { echo 0; return; }
    "$moraine" bench "$(model "$1" 1)" --device none --ctx 1024 --prefill 0 --decode 32 --rounds 3 --profile off --json 2>/dev/null |
        awk -F'[:,]' '/"decode_tps"/ && $2 > 0 {printf "%.6f", 1 / $2; exit}' RS='[,}]'
}

# NAME LIMIT PATH arguments...: LIMIT: the least ratio of answers; those of prompts and of the time between others' tokens have fixed ones.
# With guess_s a guess takes so many seconds more, and each step has `guesses` of them.
guess_s=0 guesses=0
row() {
    local name=$1 limit=$2 path=$3 out
    shift 3
    wanted "$name" || return 0
    if ! out=$("$moraine" bench "$path" --device "$device" --ctx 1024 --profile off --rounds "$rounds" --json "$@" 2>"$directory/speculation.log"); then
        echo "$name: $(tail -1 "$directory/speculation.log")" >&2
        missed=1
        return 0
    fi
    awk -v n="$name" -v l="$limit" -v r="$(field ratio <<<"$out")" -v f="$(field off_tps <<<"$out")" -v p="$(field prompt_ratio <<<"$out")" \
        -v b="$(field between_tokens_ratio <<<"$out")" -v s="$(field step_ratio <<<"$out")" -v t="$(field tokens_per_step <<<"$out")" \
        -v g="$guess_s" -v k="$guesses" -v all="$(field sequences <<<"$out")" -v some="$(field drafting <<<"$out")" 'BEGIN {
        bare = r
        head = ""
        if (g > 0) {
            r = t / (s + k * g * f)
            head = sprintf(", %.3f without the head, which takes %.2f ms a guess, a step %.2f ms", bare, g * 1000, 1000 / f)
        }
        bad = (r < l) || (p < 0.96) || (some < all && b > 1.03)
        printf "%-62s %6.3f of %.2f  prompts %.3f  between %.3f  %7.1f tokens/s without, a step %.2f times as long, %.2f tokens a step%s%s\n",
            n, r, l, p, b, f, s, t, head, bad ? "  MISSED" : ""
        exit bad}' || missed=1
}

half_of() { # PATH: a ceiling under which half of the experts stay on the device
    "$moraine" bench "$1" --device "$device" --ctx 1024 --prefill 0 --decode 1 --rounds 1 --profile off --json 2>/dev/null |
        awk -F'[:,]' '/"peak_bytes"/ {p = $2} /"slot_bytes"/ {s = $2} END {printf "%.0f", p - s / 2}' RS='[,}]'
}

# All corners of one tier. NAME PATH arguments...
corners() {
    local name=$1 path=$2 right
    shift 2
    for right in 0 100; do
        row "$name: auto, $right % right, 1 client" 0.97 "$path" --speculate auto --draft 16 --accepted $right --prefill 256 --decode 256 "$@"
        row "$name: auto, $right % right, 16 clients" 0.97 "$path" --speculate auto --draft 16 --accepted $right --parallel 16 --prefill 64 --decode 64 "$@"
        row "$name: auto, $right % right, 1 of 16 clients" 0.97 "$path" --speculate auto --draft 16 --accepted $right --parallel 16 --drafting 1 \
            --prefill 64 --decode 64 "$@"
    done
}

for name in ${SPECULATION_MODELS-gpt-oss-20b qwen3-30b-a3b}; do
    wanted "$name" || [ -n "${SPECULATION_ONLY:-}" ] || continue
    path=$(model "$name")
    row "$name: all on the GPU, 16 guesses, all right" 3.3 "$path" --draft 16 --prefill 256 --decode 256
    row "$name: all experts in RAM, 32 guesses, all right" 2.5 "$path" --draft 32 --prefill 256 --decode 192 --cpu-moe
    corners "$name: all on the GPU" "$path"
    corners "$name: all experts in RAM" "$path" --cpu-moe
    if wanted "$name: half of the experts"; then
        corners "$name: half of the experts" "$path" --vram "$(half_of "$path")"
    fi
done
# What an MTP head's guesses bring.
for name in ${SPECULATION_HEADS-qwen3.6-35b-a3b}; do
    path=$(model "$name") guess_s=$(head_of "$name")
    for guesses in 1 2 3; do
        row "$name: all on the GPU, guesses of a head: $guesses, 80 % right" 1.35 "$path" --draft $guesses --accepted 80 --prefill 256 --decode 256
    done
    guess_s=0
    corners "$name: all on the GPU" "$path"
done
for name in ${SPECULATION_DENSE-qwen3.6-27b}; do
    wanted "$name: guesses" || continue
    path=$(model "$name") guess_s=$(head_of "$name")
    whole=$("$moraine" bench "$path" --device "$device" --ctx 1024 --prefill 0 --decode 1 --rounds 1 --profile off --json 2>/dev/null |
        awk -F'[:,]' '/"peak_bytes"/ {print $2}' RS='[,}]')
    for guesses in 3 4; do
        row "$name: dense, all on the GPU, guesses of a head: $guesses, 80 % right" 2.0 "$path" --draft $guesses --accepted 80 --prefill 256 --decode 128
        row "$name: dense, half on the GPU, guesses of a head: $guesses, 80 % right" 2.2 "$path" --draft $guesses --accepted 80 --prefill 64 --decode 32 \
            --vram $((whole / 2))
    done
    guess_s=0
done

# The built-in model, which repeats a text that it is given twice, as a user types it: the best of several runs.
speed() { # off|ngram
    local best=0 value n
    for ((n = 0; n < 2 * rounds; n++)); do
        value=$("$moraine" run pebble --device "$device" --speculate "$1" --raw --temp 0 -n 256 --profile off -p "$text" 2>&1 >/dev/null |
            sed -n 's/.*answer [0-9]* tokens, \([0-9.]*\) tokens\/s.*/\1/p')
        best=$(awk -v a="$best" -v b="${value:-0}" 'BEGIN {print a > b ? a : b}')
    done
    echo "$best"
}
if wanted "pebble"; then
    story=$(awk 'NF' models/heldout/stories.txt | head -c 900)
    text=$(printf '%s\n\n%s\n\n%s' "$story" "$story" "$(head -c 120 <<<"$story")")
    off=$(speed off) on=$(speed ngram)
    awk -v a="$on" -v b="$off" 'BEGIN {r = b ? a / b : 0; printf "%-62s %6.3f of 2.00  %.1f tokens/s without%s\n", "pebble: a text is repeated", r, b,
        r < 2 ? "  MISSED" : ""; exit r < 2}' || missed=1
fi
exit $missed
