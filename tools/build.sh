#!/usr/bin/env bash
# build.sh DIRECTORY [cmake options]: configures (once, or when the options changed) and builds; MO_TARGETS in the
# environment names what to build instead of everything.
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$1
shift
mkdir -p "$directory"
# ccache is used where it is installed; objects of another checkout count as the same.
if command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fi
if [ ! -f "$directory/build.ninja" ] || [ "$*" != "$(cat "$directory/.options" 2>/dev/null)" ]; then
    # What `make test` has built in a directory is built anew for use.
    cmake -S . -B "$directory" -G Ninja -DMO_TEST_RUN=OFF "$@" >"$directory/configure.log" 2>&1 || { cat "$directory/configure.log" >&2; exit 1; }
    echo "$*" >"$directory/.options"
fi
# Before the first build: what is going to happen. Seconds of a core for a C file and for a kernel file by architecture, as measured
# on a Neoverse-V1.
if [ ! -f "$directory/.ninja_log" ]; then
    # shellcheck disable=SC2086
    commands=$(ninja -C "$directory" -t commands ${MO_TARGETS:-all})
    files=$(grep -c -e ' -c .*\.c$' <<<"$commands" || true)
    images=$(grep -o 'gencode arch' <<<"$commands" | wc -l || true)
    minutes=$(((files * 3 / 10 + images * 13 + 60 * $(nproc) - 1) / (60 * $(nproc))))
    what="$files C files"
    [ "$images" -gt 0 ] && what+=" and $(grep -c 'gencode arch' <<<"$commands") of CUDA kernels"
    echo "build: $what, about $minutes minute$([ "$minutes" -eq 1 ] || echo s) on $(nproc) cores, less where ccache has them"
    sed -n 's/^-- CUDA kernels: /build: CUDA kernels: /p' "$directory/configure.log"
fi
# shellcheck disable=SC2086
ninja -C "$directory" --quiet ${MO_TARGETS:-}
