#!/usr/bin/env bash
# train.sh DATA OUT [options of train.py]: trains pebble from what prepare.sh made and quantizes it with our own tools.
# Needs a GPU, python3 with PyTorch 2 and numpy, and the program (make). OUT receives pebble-bf16.gguf, the reference;
# pebble.gguf, the one that is committed under models/; and log.txt.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=${1:?usage: train.sh DATA OUT [options]}
out=${2:?usage: train.sh DATA OUT [options]}
shift 2
moraine=${MORAINE:-$here/../../build/moraine}
[ -x "$moraine" ] || { echo "train: build the program first (make), or name it in MORAINE" >&2; exit 1; }
python3 "$here/train.py" "$data" "$out" "$@"
"$moraine" quantize "$out/pebble-bf16.gguf" "$out/pebble.gguf" --experts q4_0 --rest q8_0 --force
