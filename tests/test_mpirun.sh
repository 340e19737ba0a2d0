#!/usr/bin/env bash
# test_mpirun.sh BUILD: models divided among ranks that mpirun starts, with the built-in model: the same logits and answers as with one, and what is said when
# a rank hangs or lacks the file. Speaks TAP; skipped where there is no mpirun or the build has no MPI.
set -uo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "$1")/moraine
model=$PWD/models/pebble.gguf
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tests/support/tap.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 XDG_CACHE_HOME=$scratch
if ! command -v mpirun >/dev/null || ! "$moraine" --version | grep '^several machines *yes' >/dev/null; then
    echo "ok 1 - ranks that mpirun starts # SKIP mpirun or libopenmpi-dev is missing"
    echo "1..1"
    exit 0
fi
ranks() { # N, command...
    local n=$1
    shift
    timeout 120 mpirun --oversubscribe --bind-to none -n "$n" "$moraine" "$@"
}

logits_are_the_same() { # N, layers or experts
    seq 5 64 >"$scratch/ids"
    [ -e "$scratch/one" ] || "$moraine" eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/one" --threads 1 || return 1
    ranks "$1" eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide "$2" --threads 1 || return 1
    cmp "$scratch/one" "$scratch/several" && rm "$scratch/several"
}
ceilings_hold() { # layers or experts: these come from disk in every rank
    local most
    ranks 2 eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide "$1" --threads 1 --batch 32 --ram 38M || return 1
    cmp "$scratch/one" "$scratch/several" || return 1
    ranks 2 bench "$model" --prefill 32 --decode 8 --rounds 1 --divide "$1" --threads 1 --batch 32 --ram 38M >"$scratch/speeds" || return 1
    cat "$scratch/speeds"
    most=$(sed -n 's/^resident *\([0-9]*\).* MiB: .*/\1/p' "$scratch/speeds")
    grep -q '^tiers *ceiling 38.0 MiB' "$scratch/speeds" && [ "$most" -lt 38 ]
}
small_rank_0() { # others have the experts for which it has no memory
    timeout 120 mpirun --oversubscribe --bind-to none \
        -n 1 "$moraine" eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide experts --threads 1 --batch 16 --ram 37M : \
        -n 2 "$moraine" eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide experts --threads 1 --batch 16 || return 1
    cmp "$scratch/one" "$scratch/several"
}
reads_ahead() { # rank 0 has the routers: it tells the others, whose experts are on disk, what will probably be asked
    local words=(run "$model" -p 'Tell me a story.' -n 60 --temp 0 --threads 1 --batch 16 --ctx 256)
    "$moraine" "${words[@]}" >"$scratch/alone" || return 1
    MORAINE_LOG=note ranks 2 "${words[@]}" --divide experts --ram 38M >"$scratch/together" 2>"$scratch/said" || return 1
    cat "$scratch/said"
    cmp "$scratch/alone" "$scratch/together" && grep -q 'rank 1: note: cluster: [1-9][0-9]* experts were prefetched, [1-9]' "$scratch/said" || return 1
    MORAINE_LOG=note ranks 2 "${words[@]}" --divide experts --ram 38M --predict off >"$scratch/together" 2>"$scratch/said" || return 1
    cmp "$scratch/alone" "$scratch/together" && ! grep -q 'were prefetched' "$scratch/said"
}
device_with_experts() { # rank 0 has a device that does not hold all of its cores, and experts on disk
    timeout 120 mpirun --oversubscribe --bind-to none \
        -n 1 "$moraine" eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide experts --threads 1 --batch 16 --ram 41M --device sim --vram 6M : \
        -n 2 "$moraine" eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide experts --threads 1 --batch 16 || return 1
    cmp "$scratch/one" "$scratch/several" && rm "$scratch/several"
}
vram_of_followers() { # RAM of rank 0, VRAM of each other; rank 0 has memory for few experts, so that most are theirs
    local words=(eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide experts --threads 1 --batch 16)
    MORAINE_LOG=note timeout 120 mpirun --oversubscribe --bind-to none \
        -n 1 "$moraine" "${words[@]}" --ram "$1" : \
        -n 2 "$moraine" "${words[@]}" --ram 37M --device sim --vram "$2" 2>"$scratch/said" || { cat "$scratch/said"; return 1; }
    cat "$scratch/said"
    cmp "$scratch/one" "$scratch/several" && rm "$scratch/several"
}
experts_in_all_vram() { # of every rank: with memory for all of its experts, and then for some, the others being in RAM and on disk
    local first=0 end=0
    ranks 3 eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --divide experts --threads 1 --device sim --vram 64M || return 1
    cmp "$scratch/one" "$scratch/several" && rm "$scratch/several" || return 1
    vram_of_followers 37M 64M || return 1
    read -r first end < <(sed -n 's/.*rank 1 has experts \([0-9]*\) to \([0-9]*\).*/\1 \2/p' "$scratch/said")
    [ $((end - first)) -ge 2 ] || return 1
    # What the device was filled with is no token's: they find all of it there.
    [ "$(grep -c 'MiB were read from disk to fill the device' "$scratch/said")" -eq 2 ] && [ "$(grep -c ' 0.0 MiB were read from disk for tokens' "$scratch/said")" -eq 2 ] || return 1
    vram_of_followers 38M 3M || return 1
    [ "$(grep -c '[1-9][0-9.]* MiB were read from disk for tokens' "$scratch/said")" -ge 1 ]
}
own_tiers_are_told() { # rank 0's line is of what it has itself
    local words=(run "$model" -p 'Tell me a story.' -n 4 --temp 0 --threads 1 --batch 16 --ctx 256 --ram 38M) experts layers last
    MORAINE_LOG=note ranks 2 "${words[@]}" --divide experts 2>"$scratch/said" || return 1
    cat "$scratch/said"
    read -r experts layers < <(sed -n 's/^tiers: .* of \([0-9]*\) experts .* of \([0-9]*\) layers that rank 0 has.*/\1 \2/p' "$scratch/said")
    last=$(sed -n 's/.*rank 0 has experts 0 to \([0-9]*\)$/\1/p' "$scratch/said")
    [ "$experts" -eq $((layers * (last + 1))) ] || return 1 # every layer of this model has experts
    MORAINE_LOG=note ranks 2 "${words[@]}" --divide layers 2>"$scratch/said" || return 1
    cat "$scratch/said"
    last=$(sed -n 's/.*rank 0 has layers 0 to \([0-9]*\)$/\1/p' "$scratch/said")
    grep -q "^tiers: .* of $((last + 1)) layers that rank 0 has" "$scratch/said"
}
messages_are_timed() { # layers or experts: bench says what they took
    ranks 2 bench "$model" --prefill 32 --decode 8 --rounds 1 --divide "$1" --threads 1 >"$scratch/speeds" || return 1
    cat "$scratch/speeds"
    grep -Eq "^ranks +2: messages [0-9.]+ us per step .*, [0-9.]+ us in the other ranks' $1; [1-9][0-9]* bytes sent, [1-9][0-9]* received" "$scratch/speeds"
}
devices_are_used() { # each rank with one of its own
    ranks 2 eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/several" --threads 1 --device sim --vram 64M || return 1
    cmp "$scratch/one" "$scratch/several" && rm "$scratch/several"
}
read_for_tokens() { # N, options of bench...: MiB that each rank has read from disk, a line for each; rank 0's first
    local n=$1
    shift
    MORAINE_LOG=note ranks "$n" bench "$model" --prefill 16 --decode 160 --rounds 1 --threads 1 --batch 16 --ctx 256 "$@" >"$scratch/speeds" 2>"$scratch/said" || return 1
    cat "$scratch/said" "$scratch/speeds" >&2
    sed -n 's/^disk .*: \([0-9.]*\) MiB in .*/\1/p' "$scratch/speeds" | grep . || echo 0
    sed -n 's/.*rank [0-9]*: note: cluster: \([0-9.]*\) MiB were read from disk for tokens.*/\1/p' "$scratch/said"
}
small_devices_cost_no_reads() { # they have less place for experts than their ceilings say: what works there, cores, what is on its way
    read_for_tokens 2 --divide experts --ram 43M --device sim --vram 6M >"$scratch/read" || return 1
    cat "$scratch/read"
    [ "$(sort -u "$scratch/read" | tr '\n' ' ')" = "0 0.0 " ] || return 1
    read_for_tokens 3 --divide experts --ram 39M --device sim --vram 8M >"$scratch/read" || return 1 # each expert once, to fill slots
    cat "$scratch/read"
    awk '$1 > 8 { much = 1 } END { exit much || NR != 3 }' "$scratch/read"
}
answers_are_the_same() {
    "$moraine" run "$model" -p 'Tell me a story.' -n 12 --temp 0 --threads 1 >"$scratch/alone" || return 1
    ranks 3 run "$model" -p 'Tell me a story.' -n 12 --temp 0 --threads 1 --session "$scratch/session" >"$scratch/together" || return 1
    cmp "$scratch/alone" "$scratch/together" || return 1
    "$moraine" run "$model" -p 'And then?' -n 4 --temp 0 --threads 1 --session "$scratch/session" # begun by three, gone on with by one
}
rank_of_ours() { # NUMBER: its process
    local rank
    for rank in $(pgrep -x moraine); do
        if grep -qz "^XDG_CACHE_HOME=$scratch\$" "/proc/$rank/environ" && grep -qz "^OMPI_COMM_WORLD_RANK=$1\$" "/proc/$rank/environ"; then
            echo "$rank"
        fi
    done 2>/dev/null
}
ask() { # PORT: of the server, as soon as it answers; what it found kept is printed last
    python3 - "$1" <<'END'
import json, sys, time, urllib.request
asked = {"prompt": "Once upon a time there was a fox who lived in a wood and had a friend. " * 8, "n_predict": 8, "temperature": 0, "cache_prompt": True}
for i in range(600):
    try:
        request = urllib.request.Request("http://127.0.0.1:%s/completion" % sys.argv[1], json.dumps(asked).encode())
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        break
    except OSError:
        time.sleep(0.1)
print(json.dumps(answer["content"]), answer["timings"]["prompt_n"], answer["timings"]["cache_n"])
END
}
free_port() { # below those that the system gives to others meanwhile
    python3 - <<'END'
import random, socket
for port in random.sample(range(20000, 30000), 100):
    try:
        with socket.socket() as s:
            s.bind(("127.0.0.1", port))
        print(port)
        break
    except OSError:
        pass
END
}
server_goes_on() { # as a unit starts it again when a rank was killed: with what it had kept
    local port first second began unit
    port=$(free_port)
    until [ -e "$scratch/enough" ]; do # Restart=on-failure
        if ranks 2 serve "$model" --port "$port" --threads 1 --cache-dir "$scratch/kept" --rank-timeout 5; then break; fi
    done >"$scratch/said" 2>&1 &
    unit=$!
    first=$(ask "$port") || return 1
    for _ in $(seq 600); do # it is kept beside other work
        [ -z "$(find "$scratch/kept" -type f -name '*.session' 2>/dev/null)" ] || break # which it is called when it is whole
        sleep 0.1
    done
    began=$SECONDS
    kill -KILL "$(rank_of_ours 1)"
    second=$(ask "$port") || return 1
    touch "$scratch/enough"
    echo "$first, then $second after $((SECONDS - began)) s"
    kill -TERM "$(rank_of_ours 0)"
    wait "$unit"
    cat "$scratch/said"
    [ "${first% * *}" = "${second% * *}" ] && [ "${first##* }" -eq 0 ] && [ "${second##* }" -gt 0 ] && grep -q 'rank 1' "$scratch/said"
}
server_answers() { # the second time from what it has kept; SIGTERM to rank 0 ends all
    local port= i mpirun
    ranks 2 serve "$model" --port 0 --threads 1 2>"$scratch/said" &
    mpirun=$!
    for i in $(seq 300); do
        port=$(sed -n 's/.* ready .*http:\/\/[^:]*:\([0-9]*\).*/\1/p' "$scratch/said")
        [ -z "$port" ] || break
        sleep 0.1
    done
    python3 - "$port" <<'END' || return 1
import json, sys, urllib.request
asked = {"prompt": "Once upon a time there was a fox who", "n_predict": 8, "temperature": 0, "cache_prompt": True}
def ask():
    request = urllib.request.Request("http://127.0.0.1:%s/completion" % sys.argv[1], json.dumps(asked).encode())
    return json.load(urllib.request.urlopen(request, timeout=60))
first, second = ask(), ask()
print(first, second)
assert first["content"] and first["content"] == second["content"]
END
    kill -TERM "$(rank_of_ours 0)"
    wait "$mpirun" || { cat "$scratch/said"; return 1; }
}
divided_window_is_served() { # keys and values of all sequences are more than one rank may use
    local words=(serve "$model" --port 0 --threads 1 --ctx 8192 --parallel 4 --ram 120M) port= i mpirun
    ! timeout 60 "$moraine" "${words[@]}" 2>"$scratch/said" && cat "$scratch/said" && grep -q 'ram' "$scratch/said" || return 1
    ranks 2 "${words[@]}" 2>"$scratch/said" &
    mpirun=$!
    for i in $(seq 300); do
        port=$(sed -n 's/.* ready .*http:\/\/[^:]*:\([0-9]*\).*/\1/p' "$scratch/said")
        [ -z "$port" ] && kill -0 "$mpirun" 2>/dev/null || break
        sleep 0.1
    done
    cat "$scratch/said"
    [ -n "$port" ] && ask "$port" || return 1
    kill -TERM "$(rank_of_ours 0)"
    wait "$mpirun"
}
stopped_rank_is_named() {
    local rank= i
    : >"$scratch/text"
    ranks 2 run "$model" -p 'Tell me a story.' -n 100000 --ignore-eos --ctx 65536 --threads 1 >"$scratch/text" 2>"$scratch/said" &
    for i in $(seq 600); do
        sleep 0.1
        [ "$(wc -c <"$scratch/text")" -gt 100 ] || continue
        rank=$(rank_of_ours 1)
        [ -z "$rank" ] || { kill -STOP "$rank" && break; }
    done
    ! wait $! && cat "$scratch/said" && grep -qE 'moraine run: rank 1 has (been silent|not received what rank 0 sent|made no progress)' "$scratch/said"
}
network_is_measured() { # and plans find it; what mpirun writes to a file is text, though ranks have a terminal of its own
    TERM=xterm ranks 2 probe --network >"$scratch/said" 2>"$scratch/errors" || return 1
    cat "$scratch/said"
    ! grep -q "$(printf '\033')" "$scratch/said" "$scratch/errors" || return 1
    grep -q '^ *1 .*[0-9]' "$scratch/said" && "$moraine" plan "$model" --hosts probed >"$scratch/plan" || return 1
    grep -q 'across 2 hosts' "$scratch/plan" && logits_are_the_same 2 auto
}
shorter_time_out_is_kept() {
    local rank= i
    : >"$scratch/text"
    ranks 2 run "$model" -p 'Tell me a story.' -n 100000 --ignore-eos --ctx 65536 --threads 1 --rank-timeout 2 >"$scratch/text" 2>"$scratch/said" &
    for i in $(seq 600); do
        sleep 0.1
        [ -s "$scratch/text" ] || continue
        rank=$(rank_of_ours 1)
        [ -z "$rank" ] || { kill -STOP "$rank" && break; }
    done
    ! wait $! && cat "$scratch/said" && grep -qE 'rank 1 has (been silent|not received what rank 0 sent|made no progress) for 2.0 s' "$scratch/said"
}
other_starters_are_noticed() { # MPICH's mpirun, srun without PMIx
    ! PMI_RANK=0 PMI_SIZE=2 "$moraine" run "$model" -p Hello -n 1 2>"$scratch/said" && cat "$scratch/said" && grep -q 'not by Open MPI' "$scratch/said" || return 1
    ! SLURM_STEP_NUM_TASKS=2 "$moraine" run "$model" -p Hello -n 1 2>"$scratch/said" && cat "$scratch/said" && grep -q 'srun started several tasks without PMIx' "$scratch/said" || return 1
    SLURM_STEP_NUM_TASKS=2 ranks 2 run "$model" -p Hello -n 1 --threads 1 >/dev/null || return 1 # mpirun, whose own processes srun has started
    PMI_RANK=0 PMI_SIZE=1 SLURM_STEP_NUM_TASKS=1 "$moraine" run "$model" -p Hello -n 1 --threads 1 --divide layers >/dev/null 2>"$scratch/said" || return 1
    cat "$scratch/said" && grep -q 'there is one rank' "$scratch/said"
}
module_of_another_version_is_refused() {
    mkdir "$scratch/old" && cp "$moraine" "$scratch/old/" || return 1
    python3 - "$(dirname "$moraine")/moraine-mpi.so" "$scratch/old/moraine-mpi.so" "$("$moraine" --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')" <<'END' || return 1
import sys
made = open(sys.argv[1], "rb").read()
stamp = sys.argv[3].encode().ljust(32, b"\0")
assert made.count(stamp) == 1, made.count(stamp)
open(sys.argv[2], "wb").write(made.replace(stamp, b"0.0.1".ljust(32, b"\0")))
END
    ! timeout 120 mpirun --oversubscribe --bind-to none -n 2 "$scratch/old/moraine" run "$model" -p Hello -n 1 --threads 1 2>"$scratch/said" && cat "$scratch/said" &&
        grep -q 'belongs to another version' "$scratch/said"
}
guides_units_are_read() { # by systemd, whose programs need not be there
    local guide number=0
    for guide in docs/several-machines.md docs/server.md; do
        number=$((number + 1))
        # From the first line of a unit to the end of its block.
        sed -n '/^\[Unit\]$\|^\[Service\]$/,/^```$/p' "$guide" | sed '/^```$/q' | sed -e '/^```$/d' -e 's|=/usr/bin/m[a-z]* |=/bin/true |' >"$scratch/guide$number.service"
        cat "$scratch/guide$number.service"
        grep -q '^ExecStart=/bin/true ' "$scratch/guide$number.service" || return 1
        systemd-analyze verify --man=no --recursive-errors=no "$scratch/guide$number.service" >"$scratch/said" 2>&1 || { cat "$scratch/said"; return 1; }
        ! grep "guide$number" "$scratch/said" || return 1 # words that it does not know
    done
}
wrong_use_is_said() {
    ! ranks 2 eval "$model" --tokens "$scratch/ids" --mmap 2>"$scratch/said" && cat "$scratch/said" &&
        grep -q 'divided among ranks does not support' "$scratch/said" || return 1
    ! ranks 2 chat "$model" 2>"$scratch/said" && cat "$scratch/said" && grep -q 'only run, serve, bench and eval' "$scratch/said" || return 1
    ! ranks 9 eval "$model" --tokens "$scratch/ids" 2>"$scratch/said" && cat "$scratch/said" && grep -q 'cannot be divided among 9 ranks' "$scratch/said" || return 1
    # Steps are as long as rank 0 says: a rank that has no memory for them says whose they are, whatever it was given.
    ! timeout 120 mpirun --oversubscribe --bind-to none \
        -n 1 "$moraine" eval "$model" --tokens "$scratch/ids" --divide layers --threads 1 --batch 512 : \
        -n 1 "$moraine" eval "$model" --tokens "$scratch/ids" --divide layers --threads 1 --batch 1 --ram 20M 2>"$scratch/said" && cat "$scratch/said" &&
        grep -q "rank 1: with rank 0's --batch of 512 and --ctx of" "$scratch/said"
}

check "two ranks give the logits of one" logits_are_the_same 2 layers
check "three ranks give the logits of one" logits_are_the_same 3 layers
check "three ranks that share experts give the logits of one" logits_are_the_same 3 experts
check "ranks keep their ceilings, with the logits of one" ceilings_hold layers
check "ranks that share experts keep theirs" ceilings_hold experts
check "rank 0 tells what its own memory holds" own_tiers_are_told
check "messages of layers are timed" messages_are_timed layers
check "messages of experts are timed" messages_are_timed experts
check "ranks read ahead what rank 0 foresees" reads_ahead
check "experts go where there is memory, with the logits of one rank" small_rank_0
check "ranks use devices that are named, with the logits of one" devices_are_used
check "experts are divided beside a device in rank 0, with the logits of one" device_with_experts
check "experts lie in the VRAM of all ranks, with the logits of one" experts_in_all_vram
check "small devices in ranks cost no reads from disk" small_devices_cost_no_reads
check "answers and sessions are those of one rank" answers_are_the_same
check "a server answers, and ends in order" server_answers
check "a server starts with what only all ranks together have memory for" divided_window_is_served
check "a server whose rank is killed is started again, and goes on with what it kept" server_goes_on
check "a rank that is stopped ends the run, and is named" stopped_rank_is_named
check "the network between ranks is measured, and plans find it" network_is_measured
check "devices are used, whatever the network is" devices_are_used
check "a shorter time-out is kept, and names the rank" shorter_time_out_is_kept
check "ranks that are not of Open MPI are noticed, and one rank is told so" other_starters_are_noticed
check "a module of another version is refused" module_of_another_version_is_refused
check "what ranks cannot do is said" wrong_use_is_said
if command -v systemd-analyze >/dev/null; then
    check "systemd reads the units of the guides" guides_units_are_read
fi
echo "1..$number"
