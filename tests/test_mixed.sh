#!/usr/bin/env bash
# test_mixed.sh BUILD CROSS_BUILD: two ranks of which one is of the other kind of processor, emulated: the logits of one rank. Speaks TAP.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "$1") cross=$(realpath "$2")
model=$PWD/models/pebble.gguf
read -r -a emulator <<<"$(tools/cross.sh emulator)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tests/support/tap.sh
. tests/support/socket_ranks.sh
export XDG_CACHE_HOME=$scratch
here=$(with_sockets "$build")/moraine there=$(with_sockets "$cross")/moraine
seq 5 24 >"$scratch/ids"

logits_are_the_same() { # layers or experts, which rank is emulated
    local programs=("$here" "$here") other
    local arguments=(eval "$model" --tokens "$scratch/ids" --divide "$1" --threads 1)
    programs[$2]="${emulator[*]} $there"
    rm -f "$scratch/both"
    export SOCKET_COUNT=1
    # shellcheck disable=SC2086
    start_rank 1 2 ${programs[1]} "${arguments[@]}" 2>"$scratch/said"
    other=$!
    # shellcheck disable=SC2086
    start_rank 0 2 timeout -s KILL 120 ${programs[0]} "${arguments[@]}" --save-logits "$scratch/both"
    wait $! && end_of "$other" && cat "$scratch/said" && grep -q '^rank 1: [0-9][0-9]' "$scratch/said" && cmp "$scratch/alone" "$scratch/both"
}
kinds_differ() { # in their files' heads
    [ "$(od -An -tx2 -j18 -N2 "$here")" != "$(od -An -tx2 -j18 -N2 "$there")" ]
}
alone() {
    "$build/moraine" eval "$model" --tokens "$scratch/ids" --save-logits "$scratch/alone" --threads 1
}

check "one rank" alone
check "there are programs for two kinds of processors" kinds_differ
check "the second rank is of another kind of processor: layers" logits_are_the_same layers 1
check "the first rank is: layers" logits_are_the_same layers 0
check "the second rank is: experts" logits_are_the_same experts 1
check "the first rank is: experts" logits_are_the_same experts 0
echo "1..$number"
