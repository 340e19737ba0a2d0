#!/usr/bin/env bash
# fuzz.sh SECONDS: libFuzzer on the container reader, under the address and undefined sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
tools/build.sh build-fuzz -DCMAKE_C_COMPILER=clang -DMO_FUZZ=ON -DMO_SANITIZE=address,undefined
mkdir -p build-fuzz/corpus build-fuzz/seeds
build-fuzz/tests/fuzz/make_corpus build-fuzz/seeds
build-fuzz/tests/fuzz/fuzz_gguf -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -artifact_prefix=build-fuzz/ -print_final_stats=1 build-fuzz/corpus build-fuzz/seeds
