#!/usr/bin/env bash
# gpu-test.sh BUILD: the suites that run on the simulated device, on a real GPU: the conformance of every op with the best
# code and with each PTX of the build (`make gpu-test CUDA=9.0,7.5+PTX,8.0+PTX`), and whole models on it. Fails where there is
# no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=$(realpath "${1:-build}")/tests
ptx=$("$tests/../moraine" --version | sed -n 's/^CUDA kernels *//p' | grep -o '[0-9.]*+PTX' | tr -d '.+PTX' || true)
for code in 0 $ptx; do
    echo "== every op, code $code (0: the best for this GPU)"
    MO_TEST_CUDA=$code "$tests/test_device"
done
echo "== models"
for program in gpu gpu_streaming gpu_batch gpu_logits speculation_device pictures_device gpu_threads kv_in_ram hot_cache_device gpu_tiers skip tier_faults snapshot lora families several pieces \
    lost_share auto precision workers; do
    MO_TEST_DEVICE=cuda "$tests/test_$program"
done
if [ -n "${GPU_SYNTH:-}" ]; then # a directory with 12 GB of free space: a model of true size as well
    echo "== gpt-oss-20b"
    model=$GPU_SYNTH/gpt-oss-20b-skew0.gguf
    [ -f "$model" ] || "$tests/../moraine" synth gpt-oss-20b -o "$model"
    MO_TEST_SYNTH=$model MO_TEST_DEVICE=cuda "$tests/test_gpu"
fi
