#!/usr/bin/env bash
# peer.sh [ROUNDS]: Moraine and llama.cpp in turn on the same synthetic models with the same threads; medians and
# ratios. llama.cpp comes from the npm package node-llama-cpp (needs node and npm; development only).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
threads=$(nproc)
scratch=${MO_BENCH_DIR:-build/peer}
mkdir -p "$scratch"
cp tools/peer/package.json tools/peer/llama.mjs "$scratch/"
[ -d "$scratch/node_modules/node-llama-cpp" ] || (cd "$scratch" && npm install --ignore-scripts --no-audit --no-fund >/dev/null)

median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
field() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p"; }

measure() { # name, layers, vocabulary
    local model=$scratch/$1-$2.gguf
    [ -f "$model" ] || build/moraine synth "$1" --layers "$2" -o "$model"
    : >"$scratch/ours" && : >"$scratch/theirs"
    for _ in $(seq "$rounds"); do
        build/moraine bench "$model" --prefill 512 --decode 64 --rounds 1 --threads "$threads" --json >>"$scratch/ours"
        node "$scratch/llama.mjs" bench "$model" --prefill 512 --decode 64 --threads "$threads" --vocab "$3" >>"$scratch/theirs"
    done
    for what in prefill_tps decode_tps; do
        local ours theirs
        ours=$(field $what <"$scratch/ours" | median)
        theirs=$(field $what <"$scratch/theirs" | median)
        printf '%-16s %2d layers  %-12s moraine %8.1f  llama.cpp %8.1f  ratio %.2f\n' "$1" "$2" "$what" "$ours" "$theirs" \
            "$(echo "$ours $theirs" | awk '{print $1 / $2}')"
    done
}

echo "$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -n 1), $threads threads, median of $rounds interleaved rounds"
measure gpt-oss-20b 2 201088
measure qwen3-30b-a3b 4 151936
