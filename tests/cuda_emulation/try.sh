#!/usr/bin/env bash
# try.sh TEST KERNEL...: builds tests/TEST.c with the named kernels and their launch functions, without CMake, while the
# tree is in pieces. Output: /tmp/emu-TEST/TEST. Environment: FLAGS, such as -fsanitize=address,undefined; NUMERIC, more C files.
set -euo pipefail
cd "$(dirname "$0")/../.."
test=$1
shift
out=/tmp/emu-$test
mkdir -p "$out"
common="-g -O2 -Wall -Wextra -Wshadow -ffp-contract=off -fno-fast-math -fno-math-errno -Isrc -Iinclude -Itests -Itests/cuda_emulation -D_GNU_SOURCE -ftls-model=initial-exec ${FLAGS:-}"
cc_() { [ "$2" -nt "$1" ] && [ -z "${ALL:-}" ] || gcc -std=gnu11 $common -DMO_VERSION='"0"' -c "$1" -o "$2"; }
for f in emulation fiber poison; do
    o=$out/$f.o
    [ "$o" -nt "tests/cuda_emulation/$f.cc" ] || g++ -std=c++17 $common -c "tests/cuda_emulation/$f.cc" -o "$o"
done
gcc -std=gnu11 $common -c tests/cuda_emulation/emulated_op.c -o "$out/emulated_op.o"
gcc -std=gnu11 $common -c src/device/cuda/launch.c -o "$out/launch.o"
for k in "$@"; do
    cu=src/device/cuda/$k.cu
    [ -f "$cu" ] || cu=tests/cuda_emulation/$k.cu
    g++ -std=c++17 -x c++ $common -DMO_CUDA_EMULATED -fno-strict-aliasing -fno-exceptions -fno-rtti -Wno-unknown-pragmas -c "$cu" -o "$out/cu_$k.o"
    if [ -f "src/device/cuda/launch_$k.c" ]; then
        gcc -std=gnu11 $common -c "src/device/cuda/launch_$k.c" -o "$out/launch_$k.o"
    fi
done
for f in src/numeric/{format,block,weights,acts,reference,reference_product,reference_ops,rope,quantise,quantise_super,fit}.c src/base/status.c ${NUMERIC:-}; do
    cc_ "$f" "$out/$(basename "$f" .c)_c.o"
done
gcc -std=gnu11 $common -c "tests/$test.c" -o "$out/$test.o"
g++ $common "$out"/*.o -o "$out/$test" -lcmocka -lpthread -lm
echo "$out/$test"
