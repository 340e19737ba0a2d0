#!/usr/bin/env bash
# The other architecture: `cross.sh flags` prints the CMake options of its build, `cross.sh emulator` the
# command that runs its programs here.
set -euo pipefail
case "$(uname -m)" in
x86_64) other=aarch64 ;;
aarch64) other=x86_64 ;;
*) echo "cross: no cross build is set up for $(uname -m)" >&2; exit 1 ;;
esac
case "${1:-}" in
flags) echo "-DCMAKE_TOOLCHAIN_FILE=$(cd "$(dirname "$0")/.." && pwd)/cmake/$other.cmake -DMO_STATIC_DEPENDENCIES=ON" ;;
emulator) echo "qemu-$other -cpu max" ;;
name) echo "$other" ;;
*) echo "usage: cross.sh flags|emulator|name" >&2; exit 2 ;;
esac
