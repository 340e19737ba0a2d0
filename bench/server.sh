#!/usr/bin/env bash
# server.sh [ROUNDS]: moraine serve and llama-server (a build of it named by LLAMA_SERVER; further options for it in LLAMA_SERVER_FLAGS) on the
# same models, contexts, slots and threads, driven by `moraine bench --server` in turn: generated tokens/s together and times to the first
# token at 1 to 16 streams (medians; and the best round of each, which other work on the machine disturbs least), and the time between tokens of one answer while a prompt of 4096 tokens comes in. Prints both command lines and a table.
#
# Prompts are new in every request, and both are told not to look for them (cache_prompt false). llama-server keeps no copies of slots
# (--cache-ram 0), which cost it time here and are never used; its batches, flash attention, repacked weights and mapping of the file are as
# it chooses them. STREAMS: how many at once ("1 2 4 8 16"); PARTS: of "small large prompt" (all).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${LLAMA_SERVER:?server.sh: name a build of llama-server in LLAMA_SERVER}"
rounds=${1:-3}
program=${MORAINE:-build/moraine}
scratch=${MO_BENCH_DIR:-build/peer}
threads=$(nproc)
read -ra flags <<<"--cache-ram 0 ${LLAMA_SERVER_FLAGS:-}"
slots=16
export XDG_CACHE_HOME=$scratch
mkdir -p "$scratch"
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait 2>/dev/null || true' EXIT

field() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p"; }
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
best() { sort -g | tail -n 1; }
ratio() { awk "BEGIN {if ($2 > 0) printf \"%.2f\", $1 / $2; else printf \"none\"}"; }

start() { # model, positions of a sequence: ours on 8071, theirs on 8072
    local ours=("$program" serve "$1" --port 8071 --parallel $slots --ctx "$2" --threads "$threads" --profile off)
    local theirs=("$LLAMA_SERVER" -m "$1" --port 8072 -np $slots -c $((slots * $2)) -t "$threads" "${flags[@]}")
    echo "moraine ${ours[*]:1}"
    echo "llama-server ${theirs[*]:1}"
    "${ours[@]}" >"$scratch/ours.log" 2>&1 &
    servers+=($!)
    "${theirs[@]}" >"$scratch/theirs.log" 2>&1 &
    servers+=($!)
    for port in 8071 8072; do
        until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do
            kill -0 "${servers[@]}" || { tail -5 "$scratch"/*.log; exit 1; }
            sleep 0.2
        done
    done
}
stop() {
    kill "${servers[@]}" 2>/dev/null || true # one may have ended by itself
    wait "${servers[@]}" 2>/dev/null || true
    servers=()
}
# A server that ends has no figures: 0 is printed for it.
ask() { # port, streams, prompt, answer
    "$program" bench --server "http://127.0.0.1:$1" --parallel "$2" --prefill "$3" --decode "$4" --rounds 1 --json 2>/dev/null ||
        echo '{"together_tps": 0, "first_token_p50_s": 0, "first_token_p99_s": 0, "between_tokens_p99_s": 0}'
}

streams() { # model, positions, prompt, answer
    start "$1" "$2"
    ask 8071 1 16 8 >/dev/null
    ask 8072 1 16 8 >/dev/null
    for count in ${STREAMS:-1 2 4 8 16}; do
        : >"$scratch/a" && : >"$scratch/b"
        for _ in $(seq "$rounds"); do
            ask 8071 $count "$3" "$4" >>"$scratch/a"
            ask 8072 $count "$3" "$4" >>"$scratch/b"
        done
        local ours theirs
        ours=$(field together_tps <"$scratch/a" | median) theirs=$(field together_tps <"$scratch/b" | median)
        local ours_best theirs_best
        ours_best=$(field together_tps <"$scratch/a" | best) theirs_best=$(field together_tps <"$scratch/b" | best)
        printf '%-24s %2d streams  %8.1f tokens/s  llama-server %8.1f  ratio %5s, best %.1f %.1f %s   first token, ms: p50 %.1f p99 %.1f, llama-server %.1f %.1f\n' \
            "$(basename "$1" .gguf)" $count "$ours" "$theirs" "$(ratio "$ours" "$theirs")" "$ours_best" "$theirs_best" "$(ratio "$ours_best" "$theirs_best")" \
            "$(field first_token_p50_s <"$scratch/a" | median | awk '{print 1e3 * $1}')" \
            "$(field first_token_p99_s <"$scratch/a" | median | awk '{print 1e3 * $1}')" \
            "$(field first_token_p50_s <"$scratch/b" | median | awk '{print 1e3 * $1}')" \
            "$(field first_token_p99_s <"$scratch/b" | median | awk '{print 1e3 * $1}')"
    done
    stop
}

beside_a_prompt() { # model
    start "$1" 6144
    : >"$scratch/a" && : >"$scratch/b"
    for round in $(seq "$rounds"); do
        for port in 8071 8072; do
            [ "$round" -gt 1 ] || ask $port 1 16 8 >/dev/null
            ask $port 1 16 120 >"$scratch/answer.$port" &
            local answer=$!
            sleep 0.5
            ask $port 1 4096 1 >"$scratch/prompt.$port"
            wait $answer
        done
        cat "$scratch/answer.8071" >>"$scratch/a"
        cat "$scratch/answer.8072" >>"$scratch/b"
    done
    local ours theirs
    ours=$(field between_tokens_p99_s <"$scratch/a" | median) theirs=$(field between_tokens_p99_s <"$scratch/b" | median)
    printf '%-24s between tokens beside a prompt of 4096, ms: p99 %.1f, llama-server %.1f, ratio %s\n' "$(basename "$1" .gguf)" \
        "$(awk "BEGIN {print 1e3 * $ours}")" "$(awk "BEGIN {print 1e3 * $theirs}")" "$(ratio "$ours" "$theirs")"
    stop
}

echo "$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -n 1), $threads threads, $slots slots, medians of $rounds rounds in turn"
"$LLAMA_SERVER" --version 2>&1 | head -n 2
pebble=models/pebble.gguf
qwen=$scratch/qwen3-30b-a3b-4-words.gguf # llama-server serves no model without a vocabulary
[ -f "$qwen" ] || "$program" synth qwen3-30b-a3b --layers 4 --vocabulary -o "$qwen"
for part in ${PARTS:-small large prompt}; do
    case $part in
    small) streams $pebble 512 64 128 ;;
    large) streams "$qwen" 1024 256 64 ;;
    prompt) beside_a_prompt "$qwen" ;;
    *) echo "server.sh: no part $part" >&2 && exit 2 ;;
    esac
done
