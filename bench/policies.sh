#!/usr/bin/env bash
# policies.sh [BUILD]: hit rates of the policies on routing of the built-in model: one domain, a change of domain, a long
# run over all of them; and the optimum, which knows the future. Budgets are shares of all experts. Writes the
# charts (SVG) beside the traces into BUILD/policies.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
moraine=$build/moraine
out=$build/policies
mkdir -p "$out"
record() { # NAME, options of trace
    local name=$1
    shift
    "$moraine" trace models/pebble.gguf --chat --seed 11 -q -o "$out/$name.trace" "$@"
}
record same -n 300 -p "Tell me a story about a dog and a boat." -p "Tell me a story about a girl named Mia who lost her kite." \
    -p "Please write a story about an old man and a bird." -p "Can you tell me a bedtime story?"
record change -n 250 -p "Tell me a story about a bear who cannot sleep." -p "Write a C function that sorts an array of ints." \
    -p "What is 31 + 48?" -p "What does the command tar do?" -p "Tell me a story about a lost ball." \
    -p "Write a C function that reverses a string."
record long -n 400 --text models/heldout/stories.txt --text models/heldout/code.txt --text models/heldout/questions.txt \
    --text models/heldout/prose.txt -p "Tell me a story about a mouse and the moon." \
    -p "Write a C function that computes the greatest common divisor." -p "Can you tell me a long story about the sea?"
for name in same change long; do
    printf '\n%s\n' "$name"
    "$moraine" replay "$out/$name.trace" --budget 10%,25%,50% --svg "$out/$name.svg" --heat "$out/$name-heat.svg"
done
