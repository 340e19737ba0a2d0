#!/usr/bin/env bash
# peer_products.sh LLAMA [options of peer_products]: matrix-vector products beside those of a built llama.cpp (its folder, with build/bin),
# for one thread and for all.
set -euo pipefail
[ $# -ge 1 ] && [ -d "$1/ggml/include" ] || { echo "usage: peer_products.sh LLAMA [options]; LLAMA is a folder of llama.cpp with shared libraries in build/bin" >&2; exit 2; }
llama=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
cmake -S . -B build -G Ninja -DMO_PEER="$llama" >/dev/null
ninja -C build --quiet peer_products
build/bench/peer_products --threads 1 "$@"
build/bench/peer_products "$@"
