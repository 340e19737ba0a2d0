#!/usr/bin/env bash
# test.sh all|quick: builds, runs every test program and ends with `N passed, N failed, N skipped`.
#
# A stage is one build and the programs to run in it. Test programs speak TAP (cmocka does when asked;
# the scripts do by hand); each `ok` line counts. A program that dies counts as a failure.
#
# Programs of a stage run beside each other, one per core; compilers and lint run behind them, niced.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
export CMOCKA_MESSAGE_OUTPUT=TAP

# What runs behind the tests, by the build directory it makes, or `lint`: process numbers, which are those of their groups.
declare -A behind=()
start() { # name, log, command...
    local name=$1 log=$2
    shift 2
    setsid nice -n 10 "$@" >"$log" 2>&1 &
    behind[$name]=$!
}
end_all() {
    local name
    for name in "${!behind[@]}"; do
        kill -- "-${behind[$name]}" 2>/dev/null
    done
}
trap end_all EXIT

count() { # stage, program, exit status, log
    local ok bad skip
    skip=$(grep -c -E '^(not )?ok .*# SKIP' "$4")
    ok=$(grep -E '^ok ' "$4" | grep -vc '# SKIP')
    bad=$(grep -E '^not ok ' "$4" | grep -vc '# SKIP')
    if [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    printf '%-10s %-28s %4d passed' "$1" "$2" "$ok"
    [ "$skip" -gt 0 ] && printf ', %d skipped' "$skip" && grep '# SKIP' "$4" | sed 's/^/    /'
    if [ "$bad" -gt 0 ]; then
        printf ', %d FAILED (exit %d)\n' "$bad" "$3"
        sed 's/^/    /' "$4" | tail -n 60
    else
        printf '  (%ds)\n' $((SECONDS - began))
    fi
}

collect() { # stage, program name, log: of what was started as `stage`
    began=$SECONDS
    wait "${behind[$1]}"
    count "$1" "$2" $? "$3"
    unset "behind[$1]"
}

run() { # stage, program name, command...
    local stage=$1 name=$2 log
    shift 2
    log=$(mktemp)
    began=$SECONDS
    timeout -s KILL 900 "$@" >"$log" 2>&1
    count "$stage" "$name" $? "$log"
    rm -f "$log"
}

# Programs that run beside each other: process number -> name, log, and when it began.
declare -A running=() log_of=() began_at=()
reap() { # stage: waits for one of them and counts it
    local ended status log
    wait -n -p ended "${!running[@]}"
    status=$?
    log=${log_of[$ended]} began=${began_at[$ended]}
    count "$1" "${running[$ended]}" "$status" "$log"
    rm -f "$log"
    unset "running[$ended]" "log_of[$ended]" "began_at[$ended]"
}
launch() { # stage, program name, command...: as soon as there is a core for it
    local name=$2 log stage=$1
    shift 2
    while [ "${#running[@]}" -ge "$(nproc)" ]; do
        reap "$stage"
    done
    log=$(mktemp)
    timeout -s KILL 900 "$@" >"$log" 2>&1 &
    running[$!]=$name log_of[$!]=$log began_at[$!]=$SECONDS
}

stage() { # name, build directory, emulator, programs (or "all"), cmake options...
    local name=$1 directory=$2 emulator=$3 programs=$4 program
    shift 4
    began=$SECONDS
    if [ -n "${behind[$directory]:-}" ]; then
        wait "${behind[$directory]}" # what follows has nothing left to do, or says what failed
        unset "behind[$directory]"
    fi
    if ! tools/build.sh "$directory" "$@"; then
        echo "$name: the build FAILED"
        failed=$((failed + 1))
        return
    fi
    printf '%-10s built (%ds)\n' "$name" $((SECONDS - began))
    [ "$programs" = all ] && programs=$(cd "$directory/tests" && ls -1 test_* | grep -v '\.' | sort)
    for program in $programs; do # NAME, or NAME:TEST for one test of it
        # shellcheck disable=SC2086
        launch "$name" "$program" $emulator "$directory/tests/${program%%:*}" $(echo "$program" | sed -n 's/.*://p')
    done
    while [ "${#running[@]}" -gt 0 ]; do
        reap "$name"
    done
}

concurrent="test_pool test_synth:threads_change_nothing test_synth:cancelling_leaves_nothing test_text:threads_share_a_tokenizer test_engine:together test_engine:at_the_same_time test_quantize
test_disk:threads_* test_disk:ring_* test_disk:many_submitters test_disk:every_read_fails_once test_disk:files_change test_profile test_store:arrivals_reversed test_store:every_read_fails_once test_store:streamed_layers test_learning:static_cache_stays
test_device:test_* test_postfetch test_probe_device test_card test_card_pass:kinds_of_steps_take_turns test_card_pass:layers_pass_from_disk test_card_batch:windows_have_holes
test_hot_cache_device:updates_change_no_bit"
# Programs that make sense under the emulator: bits and formats; the rest is the same code.
portable="test_pool test_format test_product test_ops test_math test_gguf test_synth test_text test_chat
test_engine:fixed_fingerprints test_engine:together test_hot_cache"

case "${1:-all}" in
quick)
    stage native build "" "test_base test_pool test_host test_format test_math test_ops test_gguf test_product test_sampler test_model test_engine:oracle_logits" -DMO_WERROR=ON
    ;;
all)
    # The stage that computes longest comes first; behind it the native build, whose CUDA kernels (where there is an
    # nvcc) take minutes to compile.
    start build /dev/null tools/build.sh build -DMO_WERROR=ON
    stage sanitize build-asan "" all -DMO_WERROR=ON -DMO_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Release
    stage native build "" all -DMO_WERROR=ON
    run native install.sh tests/install.sh build
    lint_log=$(mktemp)
    start lint "$lint_log" timeout -s KILL 900 tools/lint.sh
    stage thread build-tsan "" "$concurrent" -DMO_WERROR=ON -DMO_SANITIZE=thread -DCMAKE_BUILD_TYPE=Release
    # shellcheck disable=SC2046
    stage "$(tools/cross.sh name)" build-cross "$(tools/cross.sh emulator)" "$portable" -DMO_WERROR=ON $(tools/cross.sh flags)
    run fuzz fuzz.sh tools/fuzz.sh 16
    collect lint lint.sh "$lint_log"
    rm -f "$lint_log"
    ;;
*)
    echo "usage: test.sh all|quick" >&2
    exit 2
    ;;
esac

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
