#!/usr/bin/env bash
# http.sh [ROUNDS]: what one stream through HTTP costs against `moraine bench` in the process: the built-in model and the shape of
# Qwen3-30B with 4 layers, with the same threads, tokens of the same kind and nothing else at work, in turn. Both rates are of
# generated tokens; through HTTP the connection, the prompt of one token and the client's own time on these cores are part of it.
# THREADS: of the model (all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7}
program=${MORAINE:-build/moraine}
scratch=${MO_BENCH_DIR:-build/peer}
threads=${THREADS:-$(nproc)}
port=${PORT:-8073}
export XDG_CACHE_HOME=$scratch
mkdir -p "$scratch"
server=
trap '[ -z "$server" ] || kill $server 2>/dev/null || true; wait 2>/dev/null || true' EXIT

field() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p"; }
middle() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

inside() { # model, tokens, file of a text
    "$program" bench "$1" --parallel 1 --prefill 1 --decode "$2" --rounds 1 --threads "$threads" --profile off ${3:+--text "$3"} --json 2>/dev/null | field together_tps
}
through() { # tokens
    "$program" bench --server "http://127.0.0.1:$port" --parallel 1 --prefill 1 --decode "$1" --rounds 1 --json | field together_tps
}

compare() { # model, tokens, file of a text
    "$program" serve "$1" --port "$port" --parallel 1 --ctx $(($2 + 64)) --threads "$threads" --profile off >"$scratch/http.log" 2>&1 &
    server=$!
    until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do
        kill -0 $server || { tail -5 "$scratch/http.log"; exit 1; }
        sleep 0.1
    done
    if [ -n "${3:-}" ]; then # what the model writes by itself, for the other side
        curl -s "http://127.0.0.1:$port/completion" -d "{\"prompt\": \"Once upon a time\", \"n_predict\": $2, \"temperature\": 0, \"ignore_eos\": true}" |
            python3 -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["content"])' >"$3"
    fi
    : >"$scratch/inside" && : >"$scratch/through" && : >"$scratch/ratios"
    through "$2" >/dev/null
    for round in $(seq "$rounds"); do
        local a b
        if ((round % 2)); then
            a=$(inside "$1" "$2" "${3:-}") b=$(through "$2")
        else
            b=$(through "$2") a=$(inside "$1" "$2" "${3:-}")
        fi
        echo "$a" >>"$scratch/inside" && echo "$b" >>"$scratch/through"
        awk "BEGIN {print $b / $a}" >>"$scratch/ratios"
    done
    kill $server && wait $server || true
    server=
    awk -v a="$(middle <"$scratch/inside")" -v b="$(middle <"$scratch/through")" -v r="$(middle <"$scratch/ratios")" \
        -v best="$(sort -g "$scratch/inside" | tail -n 1)" -v hbest="$(sort -g "$scratch/through" | tail -n 1)" -v name="$(basename "$1" .gguf)" -v n="$2" \
        'BEGIN {printf "%-24s %d tokens: in the process %.1f tokens/s (best %.1f), through HTTP %.1f (best %.1f); ratio by turns %.3f, of the best %.3f\n", name, n, a, best, b, hbest, r, hbest / best}'
}

echo "$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -n 1), $(nproc) cores, $threads threads, medians of $rounds rounds in turn"
qwen=$scratch/qwen3-30b-a3b-4-words.gguf
[ -f "$qwen" ] || "$program" synth qwen3-30b-a3b --layers 4 --vocabulary -o "$qwen"
compare models/pebble.gguf 1500 "$scratch/written.txt"
compare "$qwen" 64
