#!/usr/bin/env bash
# expected.sh [BUILD] [DIRECTORY]: what plans expect beside what is measured, over a sweep of ceilings: speed of decoding, and
# the peak of the process's memory. On a quiet machine every measured speed should be at least 90 % of the expected one, and the
# peak between 85 and 100 % of what was planned. Models of true shape are made in DIRECTORY (about 6 GB, kept for next time). The
# machine is probed first. Prints a table, and exits with 1 when a line is outside.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "${1:-build}")/moraine
directory=${2:-build/models}
mkdir -p "$directory"
export XDG_CACHE_HOME=$directory

model() { # NAME LAYERS: path
    local path=$directory/$1-$2.gguf
    [ -f "$path" ] || "$moraine" synth "$1" --layers "$2" -o "$path" >&2
    echo "$path"
}

models=("$(model qwen3-30b-a3b 4)" "$(model gpt-oss-20b 2)" "$(model olmoe-1b-7b 4)" "$(model qwen1.5-moe-a2.7b 3)" "$(model smollm2-1.7b 8)")
"$moraine" probe "${models[0]}" --force --device none >&2
python3 bench/expected.py "$moraine" "${models[@]}"
