#!/usr/bin/env bash
# compare.sh MODEL... TEXT: perplexity of a text by Moraine and by llama.cpp (npm package node-llama-cpp), on the same
# token ids in the same windows with exact keys and values, one line per model. Needs node and npm; development only.
# MO_WINDOW is the window (512), MO_BUILD the build directory (build), MO_BENCH_DIR where the package is kept.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ $# -lt 2 ]; then
    echo "usage: compare.sh MODEL... TEXT" >&2
    exit 2
fi
moraine=${MO_BUILD:-build}/moraine
window=${MO_WINDOW:-512}
scratch=${MO_BENCH_DIR:-build/peer}
text=${*: -1}
mkdir -p "$scratch"
cp tools/peer/package.json tools/peer/llama.mjs "$scratch/"
[ -d "$scratch/node_modules/node-llama-cpp" ] || (cd "$scratch" && npm install --ignore-scripts --no-audit --no-fund >/dev/null)
field() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -n 1; }

printf '%-32s %10s %8s %8s %10s %10s %9s\n' model bytes tokens scored moraine llama.cpp ratio
for model in "${@:1:$#-1}"; do
    "$moraine" tokenize "$model" "$text" --special >"$scratch/ids"
    ours=$("$moraine" eval "$model" --tokens "$scratch/ids" --window "$window" --kv f32 --json)
    theirs=$(node "$scratch/llama.mjs" perplexity "$model" --tokens "$scratch/ids" --window "$window" --threads "$(nproc)")
    a=$(field perplexity <<<"$ours") b=$(field perplexity <<<"$theirs")
    printf '%-32s %10d %8d %8d %10.4f %10.4f %9.6f\n' "$(basename "$model")" "$(stat -c %s "$model")" \
        "$(field tokens <<<"$ours")" "$(field predicted <<<"$ours")" "$a" "$b" "$(awk "BEGIN {printf \"%.9f\", $a / $b}")"
done
