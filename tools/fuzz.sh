#!/usr/bin/env bash
# fuzz.sh SECONDS: libFuzzer under the address and undefined sanitizers: SECONDS for the container reader, a quarter of
# that for texts, grammars, vocabularies, templates, answers, requests, lists of models and adapters each, an eighth
# for each decoder of image files, for encoders of pictures and for data URLs. Speaks TAP; a finding is left in build-fuzz/.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
MO_TARGETS="make_corpus fuzz_gguf fuzz_text fuzz_vocab fuzz_grammar fuzz_template fuzz_reply fuzz_request fuzz_hub fuzz_lora fuzz_png fuzz_jpeg fuzz_webp fuzz_gif fuzz_bmp fuzz_clip fuzz_data_url" tools/build.sh build-fuzz -DCMAKE_C_COMPILER=clang \
    -DMO_FUZZ=ON -DMO_SANITIZE=address,undefined || exit 1
mkdir -p build-fuzz/seeds
mkdir -p build-fuzz/adapters build-fuzz/clips
cp tests/data/pictures/*.gguf build-fuzz/clips/
build-fuzz/tests/fuzz/make_corpus build-fuzz/seeds build-fuzz/adapters || exit 1
failed=0

fuzz() { # target, seconds, options and seed folders
    local target=$1 time=$2
    shift 2
    mkdir -p "build-fuzz/corpus-$target"
    if "build-fuzz/tests/fuzz/$target" -max_total_time="$time" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="build-fuzz/$target-" "build-fuzz/corpus-$target" "$@" >"build-fuzz/$target.log" 2>&1; then
        echo "ok $target, $(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs/p' "build-fuzz/$target.log") in $time s"
    else
        failed=1
        echo "not ok $target"
        tail -n 40 "build-fuzz/$target.log"
    fi
}

fuzz fuzz_gguf "$seconds" -max_len=65536 build-fuzz/seeds
fuzz fuzz_text $((seconds / 4)) -max_len=4096
fuzz fuzz_grammar $((seconds / 4)) -max_len=4096 -dict=tests/fuzz/grammar.dict tests/data/schemas/seeds
fuzz fuzz_vocab $((seconds / 4)) -max_len=65536 tests/data/text
fuzz fuzz_template $((seconds / 4)) -max_len=8192 -dict=tests/fuzz/template.dict tests/data/templates/text
fuzz fuzz_reply $((seconds / 4)) -max_len=4096 tests/data/dialogue
fuzz fuzz_request $((seconds / 4)) -max_len=4096 -dict=tests/fuzz/request.dict tests/data/server/requests
fuzz fuzz_hub $((seconds / 4)) -max_len=4096 tests/data/hub
fuzz fuzz_lora $((seconds / 4)) -max_len=65536 build-fuzz/adapters
for format in png jpeg webp gif bmp; do
    fuzz "fuzz_$format" $((seconds / 8)) -max_len=65536 tests/data/pictures/formats
done
fuzz fuzz_clip $((seconds / 8)) -max_len=524288 build-fuzz/clips
fuzz fuzz_data_url $((seconds / 8)) -max_len=8192 tests/data/pictures/urls
exit $failed
