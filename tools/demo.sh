#!/usr/bin/env bash
# demo.sh BUILD: what works by now, on this machine, without a download: the built-in model answers three prompts.
# MORAINE_MODEL in the environment names another model to show.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "$1")/moraine
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say() { printf '\n== %s\n' "$*"; }

say "This machine"
"$moraine" machine

say "The built-in model"
"$moraine" inspect

ask() { # name, prompt: the answer is kept in a file for later
    printf '\n> %s\n' "$2"
    "$moraine" run -p "$2" --temp 0 -n 200 --quiet | tee "$scratch/$1"
}
say "Three questions (moraine run -p ... --temp 0)"
ask story 'Tell me a story about a fox who finds a key.'
ask sums 'Tom has 12 apples and gives 5 to Anna. How many apples does Tom have left?'
ask code 'Write a C function that returns the larger of two ints.'

say "How fast it is here (moraine bench)"
"$moraine" bench --prefill 256 --decode 64 --rounds 3

say "Which experts were used (moraine eval --routing)"
(cd "$scratch" && "$moraine" eval --text story --text sums --text code --routing)

say "With memory for only some of the experts: the rest come from disk, the answer is the same (moraine bench --ram)"
small=(--ram 28M --ctx 512 --batch 32)
"$moraine" bench "${small[@]}" --prefill 0 --decode 256 --rounds 2 --text "$scratch/story"
"$moraine" run -p 'Tell me a story about a fox who finds a key.' --temp 0 -n 200 --quiet "${small[@]}" | cmp - "$scratch/story"
echo "the story is the same"

say "The same bits everywhere: logits with every instruction set, 1 and 2 threads, token by token and at once"
seq 100 123 | tr '\n' ' ' >"$scratch/ids"
for isa in $("$moraine" machine | sed -n 's/^kernels *//p'); do
    "$moraine" eval --json --tokens "$scratch/ids" --isa "$isa" --threads 1 --batch 1 --save-logits "$scratch/a" >/dev/null
    "$moraine" eval --json --tokens "$scratch/ids" --isa "$isa" --threads 2 --save-logits "$scratch/b" >/dev/null
    printf '%-8s %s\n' "$isa" "$(sha256sum "$scratch/a" | cut -c1-32)"
    printf '%-8s %s\n' "" "$(sha256sum "$scratch/b" | cut -c1-32)"
done
