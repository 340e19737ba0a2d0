#!/usr/bin/env bash
# test_build.sh BUILD: the setting about CUDA kernels, what a first build says before it starts, the demo, and sweeps. Speaks TAP.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tests/support/tap.sh

mkdir "$scratch/bin"
cat >"$scratch/bin/nvcc" <<'END'
#!/bin/sh
printf 'compute_%s\n' 75 80 86 87 89 90 100
END
chmod +x "$scratch/bin/nvcc"

configure() { # CUDA, capabilities of the GPUs, nvcc: yes or no; the output is in $scratch/said
    local nvcc=OFF path=$PATH
    [ "$3" = yes ] && nvcc=$scratch/bin/nvcc
    rm -rf "$scratch/build" "$scratch/gpu"
    mkdir "$scratch/gpu"
    # This machine's own is not asked.
    printf '#!/bin/sh\n[ -n "%s" ] || exit 9\nprintf "%%s\\n" %s\n' "$2" "$2" >"$scratch/gpu/nvidia-smi"
    chmod +x "$scratch/gpu/nvidia-smi"
    PATH=$scratch/gpu:$path cmake -S . -B "$scratch/build" -G Ninja -DBUILD_TESTING=OFF -DMO_CUDA="$1" -DMO_NVCC="$nvcc" \
        -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON >"$scratch/said" 2>&1
}
says() { # text; across the lines that CMake breaks
    tr -s ' \n' ' ' <"$scratch/said" | grep -F -- "$1" >/dev/null || { cat "$scratch/said"; false; }
}
kernels() { # CUDA, GPUs, nvcc, what it says
    configure "$1" "$2" "$3" && says "CUDA kernels: $4"
}
refused() { # CUDA, GPU, nvcc, what it says
    ! configure "$1" "$2" "$3" && says "$4"
}

check "without a GPU there are no kernels, and it says how to get some" kernels "" "" yes "none (no GPU found; CUDA=all or a list such as CUDA=8.6 compiles them anyway)"
check "with a GPU there are its kernels, of each kind once" kernels "" "8.6 8.6 9.0" yes "for 8.6 9.0"
check "with a GPU but no nvcc it says what is missing" kernels "" 8.6 no "none (there is a GPU but no nvcc;"
check "none" kernels none 8.6 yes "none (as asked for)"
check "native" kernels native 8.6 yes "for 8.6"
check "a list" kernels 7.5,12.0+PTX "" yes "for 7.5 12.0+PTX"
check "a list compiles machine code and PTX" bash -c "grep -q 'arch=compute_75,code=sm_75' '$scratch/build/build.ninja' && grep -q 'arch=compute_120,code=compute_120' '$scratch/build/build.ninja'"
check "all is what nvcc knows, with PTX for others" kernels all "" yes "for 7.5 8.0+PTX 8.6 8.9 9.0 10.0+PTX"
check "a GPU that is newer than nvcc gets PTX" kernels "" "12.0 13.0 8.7" yes "for 10.0+PTX 8.7"
check "a GPU that is too old gets none, and it says why" kernels "" 6.1 yes "none (kernels need capability 7.5, the GPU has 6.1)"
check "native with a GPU that is too old is refused" refused native 7.0 yes "no GPU of capability 7.5 or above"
check "native without a GPU is refused" refused native "" yes "CUDA=native: nvidia-smi shows no GPU"
check "kernels without nvcc are refused" refused 8.6 "" no "CUDA=8.6, but there is no nvcc"
check "other words are refused with what there is" refused on "" yes "on is not a capability; write none, native, all, or a list such as 8.6,9.0+PTX"

announced() {
    rm -rf "$scratch/first"
    MO_TARGETS=mo_base tools/build.sh "$scratch/first" -DBUILD_TESTING=OFF -DMO_CUDA=none >"$scratch/said" 2>&1 &&
        says "C files, about 1 minute on $(nproc) cores" && says "build: CUDA kernels: none (as asked for)" &&
        MO_TARGETS=mo_base tools/build.sh "$scratch/first" -DBUILD_TESTING=OFF -DMO_CUDA=none >"$scratch/again" 2>&1 && ! grep -q "C files" "$scratch/again"
}
check "a first build says what is compiled, how long it takes and with which kernels; the second does not" announced
check "make demo builds the program alone" bash -c "make -n demo | grep 'MO_TARGETS=moraine-cli tools/build.sh build -DBUILD_TESTING=OFF' >/dev/null"
check "the demo runs" bash -c "tools/demo.sh '$build' >'$scratch/demo' 2>&1"
check "the demo fits two screens" test "$(wc -l <"$scratch/demo")" -le 48
check "the demo ends with three commands to try" test "$(sed -n '/^== Try next/,$p' "$scratch/demo" | grep -c '^  .*/moraine ')" -eq 3
# Sweeps: interrupted and continued.
export MO_SWEEP=$scratch/sweep
swept() {
    local sweep status
    SEED=5 setsid tools/sweep.sh "$build" test_store >"$scratch/swept" 2>&1 &
    sweep=$!
    for _ in $(seq 600); do
        grep -E '^seed 5 cells [0-9]+ done [1-9]' "$MO_SWEEP/store.budgets" >/dev/null 2>&1 && break
        sleep 0.1
    done
    kill -TERM -- "-$sweep" # as Ctrl-C, which would not reach what runs in the background
    wait "$sweep"
    status=$?
    timeout -s KILL 2 env MO_SWEEP_SEED=5 "$build/tests/test_store" budgets_and_policies >"$scratch/again" 2>&1
    cat "$scratch/swept" "$scratch/again"
    [ $status -eq 130 ] && grep 'make sweep continues (seed 5)' "$scratch/swept" >/dev/null &&
        head -n 20 "$scratch/again" | grep -E '^sweep store.budgets: [1-9][0-9]* of [0-9]+ cells, seed 5' >/dev/null
}
check "an interrupted sweep continues where it stopped, with its seed" swept
check "a sweep of an unknown program is refused" bash -c "! tools/sweep.sh '$build' test_nothing 2>'$scratch/said' && grep 'there is no program test_nothing' '$scratch/said'"
check "a seed is a number" bash -c "! SEED=x tools/sweep.sh '$build' 2>'$scratch/said' && grep 'the seed is a number' '$scratch/said'"
echo "1..$number"
