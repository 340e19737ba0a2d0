#!/usr/bin/env bash
# mmap.sh [BUILD] [DIRECTORY]: a dense model larger than its memory, streamed by us and mapped (mmap) by llama.cpp and by us,
# each in a memory cgroup of the same limit, from a cold page cache, in turns. A model of 3.5 GiB (Llama-3-8B with 16 layers)
# is made in DIRECTORY and kept; in Q5_1, which llama.cpp does not copy into another layout: such copies would not fit.
# llama.cpp comes from the npm package node-llama-cpp (needs node and npm; development only).
# Environment: LIMIT (GiB, default 2), ROUNDS (default 3), DECODE (tokens, default 8), THREADS (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "${1:-build}")/moraine
directory=${2:-build/models}
limit=${LIMIT:-2} rounds=${ROUNDS:-3} decode=${DECODE:-8} threads=${THREADS:-$(nproc)}
vocabulary=128256
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory
. bench/cgroup.sh

cp tools/peer/package.json tools/peer/llama.mjs "$directory/"
[ -d "$directory/node_modules/node-llama-cpp" ] ||
    (cd "$directory" && npm install --ignore-scripts --no-audit --no-fund >/dev/null)
model=$directory/llama-3-8b-16-q5_1.gguf
[ -f "$model" ] || { "$moraine" synth llama-3-8b --layers 16 --type q5_1 -o "$model" >&2 && sync "$model"; }

cold() { # pages of the file that stay in the cache belong to another cgroup and would make the model fit
    dd if="$model" iflag=nocache count=0 status=none
    fincore -n -b -o RES "$model" 2>/dev/null | awk '$1 > 1e8 {print "(" $1 " bytes of the model are still in the page cache)"}' >&2
}
one() { # name, command...: prints tokens/s
    local name=$1 speed
    shift
    cold
    speed=$(inside "$limit" "$@" | sed -n 's/.*"decode_tps": *\([0-9.eE+-]*\).*/\1/p')
    printf '  %-18s %8.3f tokens/s\n' "$name" "$speed"
}

printf '%s of %.2f GiB in %s GiB, %s threads, %s tokens, disk %.2f GB/s\n' "$(basename "$model")" \
    "$(stat -c %s "$model" | awk '{print $1 / 2 ^ 30}')" "$limit" "$threads" "$decode" \
    "$("$moraine" probe "$model" --json 2>/dev/null | sed -n 's/.*"disk_bytes_s": *\([0-9.eE+]*\).*/\1/p' | awk '{print $1 / 1e9}')"
for round in $(seq "$rounds"); do
    echo "round $round"
    one "moraine" "$moraine" bench "$model" --ctx 64 --prefill 0 --decode "$decode" --rounds 1 --threads "$threads" \
        --device none --profile off --json
    one "llama.cpp, mmap" node "$directory/llama.mjs" bench "$model" --prefill 1 --decode "$decode" --threads "$threads" \
        --vocab "$vocabulary" --mmap 1
    one "moraine --mmap" "$moraine" bench "$model" --ctx 64 --prefill 0 --decode "$decode" --rounds 1 --threads "$threads" \
        --device none --profile off --mmap --json
done
