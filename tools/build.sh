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
    cmake -S . -B "$directory" -G Ninja "$@" >"$directory/configure.log" 2>&1 || { cat "$directory/configure.log" >&2; exit 1; }
    echo "$*" >"$directory/.options"
fi
# shellcheck disable=SC2086
ninja -C "$directory" --quiet ${MO_TARGETS:-}
