#!/usr/bin/env bash
# demo.sh BUILD: what works, on this machine, without a download: the built-in model answers, fast and under a small ceiling, with the
# same bits. Two screens. MORAINE_MODEL in the environment names another model to show.
set -euo pipefail
cd "$(dirname "$0")/.."
moraine=$(realpath "$1")/moraine
short=$1/moraine
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say() { printf '\n== %s\n' "$*"; }

say "This machine (moraine machine)"
"$moraine" machine | grep -E '^(processor|kernels|cores|memory  )'

ask() { # name, prompt: the answer is kept in a file for later
    printf '> %s\n' "$2"
    "$moraine" run -p "$2" --temp 0 -n 200 --quiet | tee "$scratch/$1" | fold -s -w 100
}
say "The built-in model, 448 experts in 15 MB, answers (moraine run -p ... --temp 0)"
ask story 'Tell me a story about a fox who finds a key.'
ask sums 'Tom has 12 apples and gives 5 to Anna. How many apples does Tom have left?'

speed() { "$moraine" bench "$@" 2>&1 | grep -E '^(prefill|decode)'; }
say "How fast it is here (moraine bench)"
speed --prefill 256 --decode 64 --rounds 3

say "With RAM for a fifth of the experts, the others from disk: the same answer (--ram 28M)"
small=(--ram 28M --ctx 512 --batch 32)
speed "${small[@]}" --prefill 0 --decode 256 --rounds 2 --text "$scratch/story"
"$moraine" run -p 'Tell me a story about a fox who finds a key.' --temp 0 -n 200 --quiet "${small[@]}" | cmp - "$scratch/story"
echo "the story is the same, byte for byte"

say "Bit-identical logits with every instruction set, 1 and 2 threads, token by token and at once"
seq 100 123 | tr '\n' ' ' >"$scratch/ids"
for isa in $("$moraine" machine | sed -n 's/^kernels *//p'); do
    "$moraine" eval --json --tokens "$scratch/ids" --isa "$isa" --threads 1 --batch 1 --save-logits "$scratch/a" >/dev/null
    "$moraine" eval --json --tokens "$scratch/ids" --isa "$isa" --threads 2 --save-logits "$scratch/b" >/dev/null
    printf '%-8s %s %s\n' "$isa" "$(sha256sum "$scratch/a" | cut -c1-24)" "$(sha256sum "$scratch/b" | cut -c1-24)"
done

say "Try next"
cat <<END
  $short chat                    talk to the built-in model
  $short serve                   the web page, and an API for OpenAI, Anthropic, llama-server and Ollama clients
  $short plan MODEL.gguf         where a model's parts go on this machine, and how fast it will be
END
