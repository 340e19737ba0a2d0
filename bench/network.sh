#!/usr/bin/env bash
# network.sh PROGRAM [DIRECTORY] [ROUNDS]: two ranks in network namespaces of this machine, one behind the other's wire of 1, 10 and 25 Gbit/s (veth and
# tbf), and 0 to 200 us longer (late_module.so, which the build makes), beside one rank: how long a token's messages take, beside the plan for the network as
# `probe` measures it there; how much slower two ranks are than one; whether prompts overlap messages; a model that is
# larger than a rank's ceiling; and llama.cpp's RPC back end in the same namespaces where NETWORK_PEER names a directory with its llama-server and
# ggml-rpc-server, built with GGML_RPC=ON. For development: needs root, iproute2 and Open MPI, and says so where it has them not. The two ranks share this
# machine's processors: NETWORK_THREADS of each (half of them). Processes differ in where they run, so probe and model are measured NETWORK_TURNS times in turn (3), and the
# middle of each counts. NETWORK_RATES, in Gbit/s, NETWORK_LATER, in us, NETWORK_MODEL, a synth name, and NETWORK_TABLE_ONLY narrow it down.
# Everything that it makes is removed at the end but for the models in DIRECTORY.
set -euo pipefail
program=$(realpath "$1")
directory=$(realpath -m "${2:-build/models}")
rounds=${3:-3}
rates=${NETWORK_RATES:-1 10 25}
later=${NETWORK_LATER-0 20 200}
name=${NETWORK_MODEL:-qwen3-30b-a3b}
layers=${NETWORK_LAYERS:-4}
threads=${NETWORK_THREADS:-$(($(nproc) / 2 > 0 ? $(nproc) / 2 : 1))}
decode=${NETWORK_DECODE:-48}
turns=${NETWORK_TURNS:-3}

skip() {
    echo "network.sh: skipped: $*"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "network namespaces are made by root alone"
for tool in ip tc mpirun unshare python3; do
    command -v "$tool" >/dev/null || skip "$tool is missing"
done
"$program" --version | grep '^several machines *yes' >/dev/null || skip "$program has no module for MPI"
module=$(dirname "$program")/bench/late_module.so
[ -f "$module" ] || skip "$module is missing: build it"

a=moraine-$$-a b=moraine-$$-b # the two machines
net=10.213.7
scratch=$(mktemp -d)
cp "$program" "$scratch/moraine"
cp "$module" "$scratch/moraine-mpi.so" # looked for beside the program
late=0                                # us
started=()
clean() {
    local pid
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean EXIT
ip netns add "$a" 2>/dev/null || skip "no network namespace can be made here"
ip netns add "$b"
ip link add wire0 netns "$a" type veth peer name wire1 netns "$b" 2>/dev/null || skip "this kernel has no veth"
ip -n "$a" addr add $net.1/24 dev wire0
ip -n "$b" addr add $net.2/24 dev wire1
for side in "$a wire0" "$b wire1"; do
    # shellcheck disable=SC2086
    set -- $side
    ip -n "$1" link set lo up
    ip -n "$1" link set "$2" up
done

# The bucket holds two packets at 1 Gbit/s and what passes in 10 us above: what is larger would pass a token's stream as if there were no rate.
set_rate() { # GBIT
    local burst=$(($1 * 1250 > 3100 ? $1 * 1250 : 3100))
    tc -n "$a" qdisc replace dev wire0 root tbf rate "$1gbit" burst "$burst" limit 4000000 2>/dev/null &&
        tc -n "$b" qdisc replace dev wire1 root tbf rate "$1gbit" burst "$burst" limit 4000000 || skip "this kernel has no tbf"
}

# What mpirun takes for ssh: HOST COMMAND... Each machine has its own name, so that ranks do not take each other for neighbours.
cat >"$scratch/agent" <<'END'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host && $*"
END
chmod +x "$scratch/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 XDG_CACHE_HOME=$directory
two() { # moraine's arguments
    NETWORK_LATE_US=$late MORAINE_LOG=${MORAINE_LOG:-warning} ip netns exec "$a" mpirun -n 2 --host "$a,$b" --mca plm_rsh_agent "$scratch/agent" --mca pml ob1 --mca btl tcp,self \
        --mca btl_tcp_if_include $net.0/24 --mca oob_tcp_if_include $net.0/24 --bind-to none -x XDG_CACHE_HOME -x NETWORK_LATE_US -x MORAINE_LOG "$scratch/moraine" "$@"
}
one() { ip netns exec "$a" "$program" "$@"; }
field() { # NAME FILE: of JSON, also inside an object
    python3 -c 'import json, sys
d = json.load(open(sys.argv[2]))
for k in sys.argv[1].split("."):
    d = d[k]
print(d)' "$1" "$2"
}
calc() { python3 -c "print($1)"; }
seconds() { # command...: how long it takes
    local from to
    from=$(date +%s.%N)
    "$@" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err" >&2; return 1; }
    to=$(date +%s.%N)
    calc "round($to - $from, 2)"
}

mkdir -p "$directory"
model=$directory/$name-$layers.gguf
[ -f "$model" ] || "$program" synth "$name" --layers "$layers" --vocabulary -o "$model" >&2
seq 5 20 >"$scratch/ids"
bench=(bench "$model" --device none --profile off --threads "$threads" --ctx 512 --prefill 0 --decode "$decode" --rounds "$rounds" --json)

echo "$name with $layers layers, $(stat -c %s "$model" | numfmt --to=iec) file, $threads threads a rank, $(nproc) processors in all, decode of $decode tokens, best of $rounds"
one eval "$model" --device none --profile off --threads "$threads" --tokens "$scratch/ids" --save-logits "$scratch/alone" >/dev/null
load_one=$(seconds one eval "$model" --device none --profile off --threads "$threads" --tokens "$scratch/ids")
one "${bench[@]}" >"$scratch/one.json"
alone=$(field decode_best_tps "$scratch/one.json")
echo "one rank: $(calc "round($alone, 2)") tokens/s; $load_one s to load and read 16 tokens"

# What the plan says of the network that `probe` measures, and what is measured with a model.
printf '%-10s %8s %10s %8s %8s %30s %10s %8s %10s\n' rate later 'tokens/s' 'of one' 'load s' 'messages us (middle, least)' 'plan us' 'middle/plan' 'same bits'
for rate in $rates; do
    set_rate "$rate"
    late=0
    load=$(seconds two eval "$model" --device none --profile off --threads "$threads" --tokens "$scratch/ids")
    for late in $later; do
        two eval "$model" --device none --profile off --threads "$threads" --tokens "$scratch/ids" --save-logits "$scratch/both" --divide layers >/dev/null
        same=no
        cmp -s "$scratch/alone" "$scratch/both" && same=yes
        : >"$scratch/turns"
        for ((turn = 0; turn < turns; turn++)); do
            two probe --network --output "$scratch/hosts" >/dev/null 2>&1
            one plan "$model" --hosts "$scratch/hosts" --ctx 512 --json >"$scratch/plan.json"
            two "${bench[@]}" --divide layers >"$scratch/two.json"
            mean=$(calc "($(field traffic.wait_ns "$scratch/two.json") - $(field traffic.work_ns "$scratch/two.json")) / $(field traffic.steps "$scratch/two.json") / 1e3")
            plan=$(calc "($(field by_layers.token.latency_seconds "$scratch/plan.json") + $(field by_layers.token.wire_seconds "$scratch/plan.json")) * 1e6")
            echo "$(field decode_best_tps "$scratch/two.json") $mean $(calc "$(field traffic.middle_ns "$scratch/two.json") / 1e3") $(calc "$(field traffic.least_ns "$scratch/two.json") / 1e3") $plan" >>"$scratch/turns"
        done
        read -r tps mean middle least plan < <(python3 -c 'import statistics, sys
print(*(statistics.median(map(float, of)) for of in zip(*map(str.split, open(sys.argv[1])))))' "$scratch/turns")
        printf '%-10s %8s %10.2f %8.3f %8s %30s %10.1f %8.2f %10s\n' "$rate Gbit/s" "$late us" "$tps" "$(calc "$tps / $alone")" "$load" \
            "$(printf '%.1f (%.1f, %.1f)' "$mean" "$middle" "$least")" "$plan" "$(calc "$middle / $plan")" "$same"
    done
done
late=0
[ -z "${NETWORK_TABLE_ONLY:-}" ] || exit 0

# A prompt: its pieces are on their way while both ranks compute others. Without that two ranks of one thread each would take as long as one, and the wire's time.
prompt=(bench "$model" --device none --profile off --threads "$threads" --ctx 1100 --batch 128 --prefill 1024 --decode 1 --rounds 2 --json)
one "${prompt[@]}" >"$scratch/one.json"
alone_s=$(calc "1024 / $(field prefill_best_tps "$scratch/one.json")")
late=200
for rate in $rates; do
    set_rate "$rate"
    two "${prompt[@]}" --divide layers >"$scratch/two.json"
    two probe --network --output "$scratch/hosts" >/dev/null 2>&1
    one plan "$model" --hosts "$scratch/hosts" --ctx 512 --json >"$scratch/plan.json"
    wire_s=$(calc "1024 * $(field by_layers.token.bytes "$scratch/plan.json") / 2 * 8 / $rate / 1e9") # half of a token's go there
    printf 'prompt of 1024 tokens, %s Gbit/s, %s us: %.2f s by two ranks, %.2f s by one; its streams need %.3f s of the wire\n' "$rate" "$late" \
        "$(calc "1024 / $(field prefill_best_tps "$scratch/two.json")")" "$alone_s" "$wire_s"
done
late=0

# A model that one rank's ceiling does not hold.
ceiling=$(calc "int($(stat -c %s "$model") * 0.75 / 2**20)")M
bench+=(--ram "$ceiling")
one "${bench[@]}" >"$scratch/one.json"
MORAINE_LOG=note two "${bench[@]}" >"$scratch/two.json" 2>"$scratch/said"
echo "ceiling of $ceiling a rank: one rank reads $(calc "round($(field tiers.generation.disk_bytes "$scratch/one.json") / ($rounds * $decode) / 2**20, 1)") MiB a token from disk and decodes $(calc "round($(field decode_best_tps "$scratch/one.json"), 2)") tokens/s;" \
    "of two rank 0 reads $(calc "round($(field tiers.generation.disk_bytes "$scratch/two.json") / ($rounds * $decode) / 2**20, 1)") MiB ($(field tiers.mode "$scratch/two.json")), rank 1: $(sed -n 's/.*rank 1: note: cluster: \(.* MiB\) were read.*/\1 in all/p' "$scratch/said"), $(calc "round($(field decode_best_tps "$scratch/two.json"), 2)") tokens/s"

# ---- llama.cpp's RPC back end ---------------------------------------------------------------------
peer=${NETWORK_PEER:-}
[ -n "$peer" ] || { echo "llama.cpp: NETWORK_PEER names no directory"; exit 0; }
ask() { # URL: tokens/s of the best of the rounds
    python3 - "$1" "$decode" "$rounds" <<'END'
import json, sys, urllib.request
best = 0
for i in range(int(sys.argv[3]) + 1):  # the first one warms up
    asked = {"prompt": [5 + i, 6, 7, 8], "n_predict": int(sys.argv[2]), "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(sys.argv[1] + "/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=600))
    best = max(best, answer["timings"]["predicted_per_second"]) if i else best
print(best)
END
}
serve_peer() { # prints "tokens/s load-seconds"; further options of llama-server
    local from now pid
    from=$(date +%s.%N)
    ip netns exec "$a" "$peer/llama-server" -m "$model" -t "$threads" -c 512 -np 1 --host 127.0.0.1 --port 18080 --no-webui "$@" >"$scratch/peer.log" 2>&1 &
    pid=$!
    for _ in $(seq 3000); do
        sleep 0.1
        kill -0 "$pid" 2>/dev/null || { tail -5 "$scratch/peer.log" >&2; return 1; }
        if ip netns exec "$a" python3 -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:18080/health", timeout=5)' 2>/dev/null; then break; fi
    done
    now=$(date +%s.%N)
    echo "$(ip netns exec "$a" bash -c "$(declare -f ask); decode=$decode rounds=$rounds; ask http://127.0.0.1:18080") $(calc "round($now - $from, 2)")"
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}
read -r theirs load < <(serve_peer -ngl 0)
echo "llama.cpp, one: $(calc "round($theirs, 2)") tokens/s, ready after $load s"
ip netns exec "$b" "$peer/ggml-rpc-server" --host $net.2 --port 50052 --threads "$threads" >"$scratch/rpc.log" 2>&1 &
started+=($!)
sleep 1
for rate in $rates; do
    set_rate "$rate"
    read -r tps load < <(serve_peer --rpc $net.2:50052 -ngl $((layers / 2)) --device RPC0)
    printf 'llama.cpp, RPC, %s Gbit/s: %.2f tokens/s, %.3f of one, ready after %s s\n' "$rate" "$tps" "$(calc "$tps / $theirs")" "$load"
done
