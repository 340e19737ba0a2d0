#!/usr/bin/env bash
# check.sh: a second opinion on whole models: llama.cpp's logits (npm package node-llama-cpp, exact KV cache) beside
# ours on synthetic models of several families; prints KL divergence and the share of equal top tokens. Both round
# activations, each in its own way: where they are more than 1e-3 apart, both are also compared with the same values in F32.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=${MO_BENCH_DIR:-build/peer}
mkdir -p "$scratch"
cp tools/peer/package.json tools/peer/llama.mjs "$scratch/"
[ -d "$scratch/node_modules/node-llama-cpp" ] || (cd "$scratch" && npm install --ignore-scripts --no-audit --no-fund >/dev/null)
seq 1000 37 2200 | tr '\n' ' ' >"$scratch/ids"
check() { # name, layers
    local model=$scratch/check.gguf
    build/moraine synth "$1" --layers "$2" -o "$model" --force 2>/dev/null
    node "$scratch/llama.mjs" logits "$model" --tokens "$scratch/ids" --out "$scratch/logits" --threads "$(nproc)"
    printf '%-20s %2d layers  ' "$1" "$2"
    ours "$model" --compare "$scratch/logits" --save-logits "$scratch/ours" >"$scratch/said"
    said
    if awk '/^KL/ { exit !($3 > 1e-3) }' "$scratch/said"; then
        exact "$model" "$scratch/exact.gguf"
        for whose in ours logits; do
            printf '    from %-18s to F32  ' "$([ $whose = ours ] && echo "Moraine's" || echo "llama.cpp's")"
            ours "$scratch/exact.gguf" --compare "$scratch/$whose" >"$scratch/said"
            said
        done
    fi
    rm -f "$model" "$scratch/logits" "$scratch/ours" "$scratch/exact.gguf" "$scratch/said"
}
ours() { # model, options...
    build/moraine eval "$1" --tokens "$scratch/ids" --kv f32 --device none "${@:2}"
}
said() {
    grep -E 'KL|same' "$scratch/said" | tr '\n' ' '
    echo
}
exact() { # model, the same values in F32; where there are no experts a format for them makes no sense
    build/moraine quantize "$1" "$2" --experts f32 --rest f32 --force 2>/dev/null ||
        build/moraine quantize "$1" "$2" --rest f32 --force 2>/dev/null
}
check gpt-oss-20b 2
check qwen3-30b-a3b 2
check qwen3-next-80b-a3b 4
check qwen3.6-35b-a3b 4
check olmoe-1b-7b 2
check qwen1.5-moe-a2.7b 2
check gemma-4-26b-a4b 6
check mixtral-8x7b 1
check llama-3-8b 2
check glm-4.5-air 2
check glm-4.7-flash 2
check minimax-m2 1
check ernie-4.5-21b-a3b 2
check granite-3.1-3b-a800m 4
check ling-mini-2.0 2
check dots.llm1 2
check hunyuan-a13b 1
check hunyuan-7b 2
check phi-3.5-moe 1
check phi-3.5-mini 2
check qwen2.5-7b 2
check gemma-3-4b 6
check glm-4-9b 2
check granite-3.3-8b 2
check ernie-4.5-0.3b 4
check lfm2-8b-a1b 4
check lfm2-1.2b 4
check jamba-mini 5
check granite-4.0-h-tiny 6
check smollm2-135m 30
