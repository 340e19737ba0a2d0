#!/usr/bin/env bash
# test_rank_ends.sh BUILD: a rank's process is killed, or stopped, at each of its messages in turn, from joining the run to its end: the others end soon with a
# sentence that names it, and what was kept is as good as before. Without mpirun, which would end the others itself. Speaks TAP.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "$1")
model=$PWD/models/pebble.gguf
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tests/support/tap.sh
. tests/support/socket_ranks.sh
export XDG_CACHE_HOME=$scratch
program=$(with_sockets "$build")/moraine
seq 5 24 >"$scratch/ids"

# Two ranks with the same arguments; the exit status is rank 0's, what they said is in $scratch/said and said.1.
both() {
    local first second status
    start_rank 1 2 "$program" "$@" >"$scratch/said.1" 2>&1
    second=$!
    start_rank 0 2 timeout -s KILL 60 "$program" "$@" >"$scratch/text" 2>"$scratch/said"
    first=$!
    wait "$first"
    status=$?
    end_of "$second" || { echo "rank 1 does not end"; return 99; }
    return "$status"
}

# How many messages rank 1 begins in a run, on a machine that may be busy.
messages_of() {
    SOCKET_COUNT=1 both "$@" --rank-timeout 60 || { cat "$scratch/said" >&2; return 1; }
    sed -n 's/^rank 1: \([0-9]*\) messages/\1/p' "$scratch/said.1"
}

# Ends rank 1 at a message by a signal. What rank 0 does then: it fails within seconds and names the rank.
ended_at() { # message, signal, command...
    local at=$1 signal=$2 began=$SECONDS
    shift 2
    SOCKET_FAULT=1:$at:$signal both "$@"
    [ $? = 1 ] || { echo "message $at: rank 0 does not fail as it should: $(cat "$scratch/said")"; return 1; }
    grep -q 'rank 1' "$scratch/said" || { echo "message $at: $(cat "$scratch/said")"; return 1; }
    [ $((SECONDS - began)) -le 20 ] || { echo "message $at: $((SECONDS - began)) s"; return 1; }
}

# The session goes on in every run; the one before is there if that fails.
session_is_good() {
    cmp -s "$scratch/session" "$scratch/before" || cmp -s "$scratch/session" "$scratch/after" || { echo "the session is neither what it was nor what it would be"; return 1; }
}
every_message() { # layers or experts
    local way=$1 count at arguments
    arguments=(run "$model" -p 'And then?' -n 4 --temp 0 --threads 1 --divide "$way" --session "$scratch/session" --rank-timeout 5)
    rm -f "$scratch/session"
    "$program" run "$model" -p 'Once upon a time' -n 4 --temp 0 --threads 1 --session "$scratch/session" >/dev/null || return 1
    cp "$scratch/session" "$scratch/before"
    count=$(messages_of "${arguments[@]}") || return 1
    cp "$scratch/session" "$scratch/after"
    echo "$count messages"
    [ "$count" -gt 20 ] || return 1
    for ((at = 1; at <= count; at += at < 12 || at > count - 12 ? 1 : 5)); do
        cp "$scratch/before" "$scratch/session"
        ended_at "$at" 9 "${arguments[@]}" || return 1
        session_is_good || return 1
    done
}
stopped_ones() { # hangs are noticed by the time-out
    local count at arguments=(eval "$model" --tokens "$scratch/ids" --threads 1 --divide layers --rank-timeout 1)
    count=$(messages_of "${arguments[@]}") || return 1
    for at in 2 $((count / 2)) "$count"; do
        ended_at "$at" 19 "${arguments[@]}" || return 1
    done
}

check "a rank that is killed at any message is named, and the session is good: layers" every_message layers
check "the same: experts" every_message experts
check "a rank that is stopped at any message is named" stopped_ones
echo "1..$number"
