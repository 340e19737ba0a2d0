#!/usr/bin/env bash
# test.sh all|quick|sanitize: builds, runs every test program and ends with `N passed, N failed, N skipped`. `sanitize` runs every
# program under the address and undefined sanitizers, and those with threads under the thread sanitizer; `all` most of the former.
#
# Before that it prints where the time went: seconds of a core by stage, and of the programs that took most.
#
# A stage is one build and the programs to run in it. Test programs speak TAP (cmocka does when asked;
# the scripts do by hand); each `ok` line counts. A program that dies counts as a failure.
#
# Programs of a stage run beside each other, one per core; compilers and lint run behind them, niced.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
export CMOCKA_MESSAGE_OUTPUT=TAP
unset MO_SWEEP MO_SWEEP_SEED MO_SWEEP_CELL
TIMEFORMAT='%U %S'

# What runs behind the tests, by the build directory it makes, or `lint`: process numbers, which are those of their groups.
declare -A behind=()
start() { # name, log, command...
    local name=$1 log=$2
    shift 2
    # shellcheck disable=SC2016
    setsid nice -n 10 bash -c 'TIMEFORMAT="%U %S" spent=$1 log=$2; shift 2; { time "$@" >"$log" 2>&1; } 2>"$spent"' start "$spent/$name" "$log" "$@" &
    behind[$name]=$!
}
caches=$(mktemp -d) # each program's own: what the user's probes have measured, or another program learns, changes nothing
spent=$(mktemp -d)  # seconds of a core: of what runs behind the tests, and in `list` of everything
seconds() { # file with user and system seconds
    awk 'NF == 2 && /^[0-9. ]+$/ { sum = $1 + $2 } END { printf "%.1f", sum }' "$1" 2>/dev/null || echo 0
}
spend() { # seconds, stage, what
    printf '%s\t%s\t%s\n' "$@" >>"$spent/list"
}
spent_table() { # where the time went: by stage, and the programs that took most
    touch "$spent/list"
    awk -F '\t' '{ if (!($2 in all)) order[++n] = $2; all[$2] += $1; if ($3 == "build") build[$2] += $1; sum += $1 }
        END { printf "%-10s %9s %9s %9s   seconds of a core\n", "stage", "compiling", "running", "both"
              for (i = 1; i <= n; i++) printf "%-10s %9.0f %9.0f %9.0f\n", order[i], build[order[i]], all[order[i]] - build[order[i]], all[order[i]]
              printf "%-10s %29.0f, %.1f minutes\n", "all", sum, sum / 60 }' "$spent/list"
    echo "the longest:"
    awk -F '\t' '$3 != "build"' "$spent/list" | sort -rn | head -n 25 | awk -F '\t' '{ printf "%9.1f  %-10s %s\n", $1, $2, $3 }'
}
end_all() {
    local name
    for name in "${!behind[@]}"; do
        kill -- "-${behind[$name]}" 2>/dev/null
    done
    rm -rf "$caches" "$spent"
}
trap end_all EXIT

count() { # stage, program, exit status, log, and its CPU time in seconds where that is known
    local ok bad skip
    skip=$(grep -c -E '^(not )?ok .*# SKIP' "$4")
    ok=$(grep -E '^ok ' "$4" | grep -vc '# SKIP')
    bad=$(grep -E '^not ok ' "$4" | grep -vc '# SKIP')
    if [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    [ -z "${5:-}" ] || spend "$5" "$1" "$2"
    printf '%-10s %-28s %4d passed' "$1" "$2" "$ok"
    [ "$skip" -gt 0 ] && printf ', %d skipped' "$skip" && grep '# SKIP' "$4" | sed 's/^/    /'
    if [ "$bad" -gt 0 ]; then
        printf ', %d FAILED (exit %d)\n' "$bad" "$3"
        grep -E -A 1 '^not ok' "$4" | cut -c 1-300 | sed 's/^/    /' | head -n 40
        sed 's/^/    /' "$4" | tail -n 60
    else
        printf '  (%ds%s)\n' $((SECONDS - began)) "${5:+, $5 s of a core}"
    fi
}

collect() { # stage, program name, log: of what was started as `stage`
    began=$SECONDS
    wait "${behind[$1]}"
    count "$1" "$2" $? "$3" "$(seconds "$spent/$1")"
    unset "behind[$1]"
}

# Programs that run beside each other: process number -> stage, name, log, and when it began.
declare -A running=() stage_of=() log_of=() began_at=()
reap() { # waits for one of them and counts it
    local ended status log
    wait -n -p ended "${!running[@]}"
    status=$?
    log=${log_of[$ended]} began=${began_at[$ended]}
    count "${stage_of[$ended]}" "${running[$ended]}" "$status" "$log" "$(seconds "$log.cpu")"
    rm -f "$log" "$log.cpu"
    unset "running[$ended]" "stage_of[$ended]" "log_of[$ended]" "began_at[$ended]"
}
launch() { # stage, program name, command...: as soon as there is a core for it
    local name=$2 log stage=$1
    shift 2
    while [ "${#running[@]}" -ge "$(nproc)" ]; do
        reap
    done
    log=$(mktemp)
    # The limit counts processor time, so that a busy machine fails nothing; the other ends what sleeps for ever.
    {
        ulimit -t 900
        time timeout -s KILL 2700 "$@" >"$log" 2>&1
    } 2>"$log.cpu" &
    running[$!]=$name stage_of[$!]=$stage log_of[$!]=$log began_at[$!]=$SECONDS
}

words() { # a list, a line each
    echo "$*" | tr -s ' \n' '\n\n'
}

# targets PROGRAMS: what a build needs for them; nothing, which is everything, for all.
targets() {
    [ "$1" = most ] && echo test_programs
    [ "$1" = all ] || [ "$1" = most ] || words "$1" | sed 's/:.*//' | sort -u | tr '\n' ' '
}

prepare() { # programs, build directory, cmake options...: builds behind what runs
    local programs=$1
    shift
    start "$1" /dev/null env MO_TARGETS="$(targets "$programs")" tools/build.sh "$@"
}

stage() { # name, emulator, programs ("all"; "most": all but $unsanitized), build directory, cmake options...
    local name=$1 emulator=$2 programs=$3 directory=$4 program
    shift 3
    began=$SECONDS
    if [ -n "${behind[$directory]:-}" ]; then
        wait "${behind[$directory]}" # what follows has nothing left to do, or says what failed
        unset "behind[$directory]"
        spend "$(seconds "$spent/$directory")" "$name" build
    fi
    local status
    { time MO_TARGETS=$(targets "$programs") tools/build.sh "$@" 2>&1; } 2>"$spent/built"
    status=$?
    spend "$(seconds "$spent/built")" "$name" build
    if [ $status -ne 0 ]; then
        echo "$name: the build FAILED"
        failed=$((failed + 1))
        return
    fi
    printf '%-10s built (%ds)\n' "$name" $((SECONDS - began))
    if [ "$programs" = all ] || [ "$programs" = most ]; then # those that take long first, so that none is left to one core at the end
        local without=
        [ "$programs" = all ] || without=$unsanitized
        programs=$({ words "$slow"; cd "$directory/tests" && ls -1 test_* | grep -v '\.' | grep -vxF "$(words "$slow")"; } | grep -vxF "$(words "$without")")
    fi
    for program in $programs; do # NAME, or NAME:TEST for one test of it
        [[ $program == test_* ]] || continue # built only
        # shellcheck disable=SC2086
        launch "$name" "$program" env XDG_CACHE_HOME="$(mktemp -d -p "$caches")" $emulator "$directory/tests/${program%%:*}" $(echo "$program" | sed -n 's/.*://p')
    done
}
finish() { # whatever still runs
    while [ "${#running[@]}" -gt 0 ]; do
        reap
    done
}

slow="test_store test_tiers test_engine test_hot_cache_device test_learning test_gpu test_gpu_streaming test_device test_cli test_cli_plans test_manners
test_product test_text"
# Programs that `make test` runs natively alone, `make sanitize` under the address sanitizer too: they take long, and others pass
# through the same code there (kernels have guarded operands natively; plans and policies are arithmetic; ranks and workers run
# under the thread sanitizer).
unsanitized="test_product test_codes test_ops test_sampler test_plan_batch test_cli_plans test_meter test_learning test_hot_cache_device
test_gpu_tiers test_gpu_batch test_cluster test_workers test_stress test_postfetch_device test_synth test_skip test_several"
# Programs with threads, and of those that have more the tests with threads; the longest first.
concurrent="test_tell test_stress test_api test_gpu test_gpu_threads test_pieces test_device:test_* test_learning:static_cache_stays test_hot_cache_device:updates_change_no_bit
test_gpu_batch:windows_have_holes test_tier_faults:failed_copies_cost_only_speed test_store:every_read_fails_once test_store:streamed_layers test_store:arrivals_reversed
test_quantize test_disk:threads_* test_disk:uring_* test_disk:many_submitters test_disk:every_read_fails_once test_disk:files_change
test_profile test_synth:threads_change_nothing test_synth:cancelling_leaves_nothing test_engine:together test_engine:at_the_same_time
test_gpu_streaming:kinds_of_steps_take_turns test_gpu_streaming:layers_pass_from_disk test_pool test_flow test_text:threads_share_a_tokenizer
test_postfetch test_probe_device test_transport test_cluster test_expert_device test_workers test_meter test_plan_run:models_opened_at_once test_server_company test_server_jobs test_server_order test_server_emitter test_server_kept
test_server_prefix:kept_sessions_outlive_the_process test_server_prefix:prompts_that_come_together_are_computed_once
test_server_prefix:sixteen_clients_hold_what_they_share_once test_snapshot:threads_share_blocks* test_mask_thread test_server_http test_grammar:threads_share_a_grammar"
# Programs that make sense under the emulator: bits and formats; the rest is the same code. The program and the library
# are built as well.
portable="test_product test_synth test_text test_engine:together test_math test_format test_engine:fixed_fingerprints test_pool
test_ops test_gguf test_chat test_hot_cache moraine-cli moraine-shared bench_core socket_module"

# Debian's static jansson cannot be part of a shared library on x86-64.
[ "$(tools/cross.sh name)" = x86_64 ] && portable=${portable/moraine-shared/}

# Builds: a directory, and what cmake is told.
# Kernels for one architecture, where there is an nvcc: what they compute is tested emulated, and the others differ in nothing
# that can be tested without a GPU.
kernels=none
{ command -v nvcc || ls /usr/local/cuda/bin/nvcc; } >/dev/null 2>&1 && kernels=9.0
native=(build -DMO_WERROR=ON -DMO_TEST_RUN=ON -DBUILD_TESTING=ON)
sanitize=(build-asan -DMO_WERROR=ON -DMO_CUDA=none -DMO_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=Release)
thread=(build-tsan -DMO_WERROR=ON -DMO_CUDA=none -DMO_SANITIZE=thread -DCMAKE_BUILD_TYPE=Release)

if [ "${1:-all}" != quick ] && [ "$(uname -m)" = aarch64 ]; then
    # gcc's leak checker walks the whole address space there: four seconds at the end of every program, thousands of which
    # the tests of the command line start.
    echo "sanitize   memory leaks are looked for on x86-64 alone"
    export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}
fi
case "${1:-all}" in
quick)
    stage native "" "test_base test_pool test_host test_format test_math test_ops test_gguf test_product test_sampler test_model test_engine:oracle_logits" "${native[@]}" -DMO_CUDA=none
    finish
    ;;
all)
    native+=("-DMO_CUDA=$kernels")
    # The stage that computes longest comes first; behind it the native build, whose CUDA kernels (where there is an
    # nvcc) take minutes to compile. So every stage's programs run while the next one is compiled in what they leave of
    # the cores.
    read -r -a cross <<<"build-cross -DMO_WERROR=ON -DMO_TEST_RUN=ON -DMO_CUDA=none $(tools/cross.sh flags)"
    prepare all "${native[@]}"
    sanitize+=("-DMO_TESTS_WITHOUT=$(words "$unsanitized" | paste -sd ";")" -DMO_SANITIZE_DEFINITION=OFF)
    stage sanitize "" most "${sanitize[@]}"
    prepare "$concurrent" "${thread[@]}"
    stage native "" all "${native[@]}"
    launch native install.sh tests/install.sh build
    launch native test_build.sh tests/test_build.sh build
    launch native test_terminal.py tests/test_terminal.py build
    launch native test_foreign.py tests/test_foreign.py build
    launch native test_habits.py tests/test_habits.py build
    launch native test_docs.py tests/test_docs.py build
    launch native test_templates.py tests/test_templates.py build
    launch native test_schema.py tests/test_schema.py build
    launch native test_bound.py tests/test_bound.py build
    launch native test_server.py tests/test_server.py build
    launch native test_server_api.py tests/test_server_api.py build
    launch native test_server_pictures.py tests/test_server_pictures.py build
    launch native test_server_fields.py tests/test_server_fields.py build
    launch native test_server_faults.py tests/test_server_faults.py build
    launch native test_server_keys.py tests/test_server_keys.py build
    launch native test_server_speculation.py tests/test_server_speculation.py build
    launch native test_server_stress.py tests/test_server_stress.py build
    launch native test_clients.py tests/test_clients.py build
    launch native test_page.py tests/test_page.py build
    launch native test_without_page.sh tests/test_without_page.sh build
    launch native test_pull.py tests/test_pull.py build
    launch native test_mpirun.sh tests/test_mpirun.sh build
    launch native test_rank_ends.sh tests/test_rank_ends.sh build
    launch native test_rank_server.py tests/test_rank_server.py build
    launch native test_packages.sh tests/test_packages.sh build
    prepare "$portable" "${cross[@]}"
    stage thread "" "$concurrent" "${thread[@]}"
    lint_log=$(mktemp)
    start lint "$lint_log" timeout -s KILL 2700 tools/lint.sh sample
    launch fuzz fuzz.sh tools/fuzz.sh 8
    stage "$(tools/cross.sh name)" "$(tools/cross.sh emulator)" "$portable" "${cross[@]}"
    launch mixed test_mixed.sh tests/test_mixed.sh build "${cross[0]}"
    finish
    collect lint lint.sh "$lint_log"
    rm -f "$lint_log"
    ;;
sanitize)
    sanitize+=(-DMO_TESTS_WITHOUT= -DMO_SANITIZE_DEFINITION=ON)
    prepare "$concurrent" "${thread[@]}"
    stage sanitize "" all "${sanitize[@]}"
    stage thread "" "$concurrent" "${thread[@]}"
    finish
    ;;
*)
    echo "usage: test.sh all|quick|sanitize" >&2
    exit 2
    ;;
esac

spent_table
cpu=$(mktemp)
times >"$cpu" # not of a pipe, which has none
awk -F '[ ms]+' 'END { printf "%d minutes, of a core %.1f\n", '$((SECONDS / 60))', $1 + $3 + ($2 + $4) / 60 }' "$cpu"
rm -f "$cpu"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
