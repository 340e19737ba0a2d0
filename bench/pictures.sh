#!/usr/bin/env bash
# pictures.sh [BUILD] [DIRECTORY] [LLAMA]: seconds that a picture of 1,024 x 1,024 pixels takes in an encoder of the published size of Qwen3-VL's, with F16
# and with Q8_0 matrices, random weights, on this machine's cores and, with PICTURES_GPU=cuda, on its GPU; beside llama.cpp's mtmd where LLAMA names
# its sources, in which it was built (libraries of ggml in build/, shared ones with CUDA), on the same and, where that build has CUDA, on the GPU. BUILD has
# bench/bench_pictures. The files (1.8 GB) are made in DIRECTORY and kept. Programs take turns: ours, theirs. PICTURES_ROUNDS (2; 0: a single run
# of each), PICTURES_SIDE (1024), PICTURES_THREADS (all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
bench=$(realpath "${1:-build}")/bench/bench_pictures
directory=${2:-build/models}
llama=${3:-}
rounds=${PICTURES_ROUNDS:-2}
side=${PICTURES_SIDE:-1024}
threads=${PICTURES_THREADS:-$(nproc)}
mkdir -p "$directory"

peer=
if [ -n "$llama" ]; then
    llama=$(realpath "$llama")
    peer=$directory/peer_pictures
    libraries=$(find "$llama/build/" -name 'libggml*.so' -o -name 'libggml*.a' | sort -u)
    [ -n "$libraries" ] || { echo "pictures.sh: $llama/build has no libraries of ggml" >&2; exit 2; }
    mapfile -t folders < <(xargs -n 1 dirname <<<"$libraries" | sort -u)
    options=()
    for folder in "${folders[@]}"; do
        options+=("-L$folder" "-Wl,-rpath,$folder")
    done
    options+=('-Wl,--start-group')
    while read -r name; do
        options+=("-l$name")
    done < <(xargs -n 1 basename <<<"$libraries" | sed 's/^lib//; s/\.[^.]*$//' | sort -u)
    options+=('-Wl,--end-group')
    mtmd=$llama/tools/mtmd
    if [ ! -x "$peer" ]; then
        objects=()
        for source in bench/peer_pictures.cpp "$mtmd"/clip.cpp "$mtmd"/mtmd-image.cpp "$mtmd"/models/*.cpp; do
            objects+=("$directory/$(basename "$source").o")
            [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
            c++ -std=c++17 -O2 -w -I"$mtmd" -I"$llama/include" -I"$llama/ggml/include" -I"$llama/vendor" -c "$source" -o "${objects[-1]}" &
        done
        wait
        c++ -o "$peer" "${objects[@]}" "${options[@]}" -lgomp -lpthread -ldl -lm
    fi
fi

printf '%-8s %-12s %10s %10s %8s\n' file on moraine mtmd ratio
for type in F16 Q8_0; do
    file=$directory/mmproj-$type.gguf
    [ -f "$file" ] || "$bench" make "$type" "$file"
    ours=$("$bench" "$file" "$side" "$rounds" "$threads")
    theirs=0
    [ -z "$peer" ] || theirs=$(OMP_NUM_THREADS=$threads "$peer" "$file" "$side" "$rounds" "$threads" 2>/dev/null)
    awk -v f="$type" -v n="$threads cores" -v a="$ours" -v b="$theirs" \
        'BEGIN {printf "%-8s %-12s %10.3f %10s %8s\n", f, n, a, b ? sprintf("%.3f", b) : "-", b ? sprintf("%.2f", b / a) : "-"}'
    if [ -n "${PICTURES_GPU:-}" ]; then
        ours=$("$bench" "$file" "$side" "$((rounds > 2 ? rounds : 3))" "$PICTURES_GPU")
        printf '%-8s %-12s %10.3f\n' "$type" "GPU, ours" "$ours"
    fi
    if [ -n "$peer" ] && [ -n "$(find "$llama/build/" -name 'libggml-cuda*' -print -quit)" ]; then
        theirs=$("$peer" "$file" "$side" "$((rounds > 2 ? rounds : 3))" gpu 2>/dev/null)
        printf  '%-8s %-12s %10s %10.3f\n' "$type" "GPU, theirs" - "$theirs"
    fi
done
