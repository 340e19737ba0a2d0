#!/usr/bin/env bash
# prepare.sh DATA [--size small|full] [--seed N]: everything that training needs, from nothing: gathers the sources,
# makes the text, trains the tokenizer, encodes, and packs the training tokens with xz. Needs python3 with
# python3-numpy, mandoc, xz-utils, npm; the rest is what every Debian has.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=${1:?usage: prepare.sh DATA [--size small|full] [--seed N]}
shift
mkdir -p "$data"
for tool in mandoc xz npm apt-get; do
    command -v "$tool" >/dev/null || { echo "prepare: $tool is missing" >&2; exit 1; }
done
python=${PYTHON:-/usr/bin/python3}
"$here/gather.sh" "$data/gathered"
"$python" "$here/make_corpus.py" text "$data" "$@"
"$python" "$here/bpe.py" train "$data/text/sample.txt" --out "$data/tokenizer.json"
"$python" "$here/make_corpus.py" tokens "$data"
for domain in stories questions manuals prose code; do
    xz -6 -T2 -k -f "$data/$domain.u16"
done
du -b -c "$data"/*.u16.xz
