#!/usr/bin/env bash
# demo.sh BUILD: what works by now, on this machine, without a download.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$1/moraine
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say() { printf '\n== %s\n' "$*"; }

say "This machine"
"$moraine" machine

say "A model of OLMoE's true shape, two of its layers, random weights (moraine synth)"
"$moraine" synth olmoe-1b-7b --layers 2 -o "$scratch/olmoe.gguf"
"$moraine" inspect "$scratch/olmoe.gguf"

say "How fast it runs here (moraine bench)"
"$moraine" bench "$scratch/olmoe.gguf" --prefill 256 --decode 64 --rounds 3

say "The same bits everywhere: logits with every instruction set, 1 and 2 threads, token by token and at once"
seq 100 123 | tr '\n' ' ' >"$scratch/ids"
for isa in $("$moraine" machine | sed -n 's/^kernels *//p'); do
    "$moraine" eval "$scratch/olmoe.gguf" --tokens "$scratch/ids" --isa "$isa" --threads 1 --batch 1 --save-logits "$scratch/a" >/dev/null
    "$moraine" eval "$scratch/olmoe.gguf" --tokens "$scratch/ids" --isa "$isa" --threads 2 --save-logits "$scratch/b" >/dev/null
    printf '%-8s %s\n' "$isa" "$(sha256sum "$scratch/a" | cut -c1-32)"
    printf '%-8s %s\n' "" "$(sha256sum "$scratch/b" | cut -c1-32)"
done
