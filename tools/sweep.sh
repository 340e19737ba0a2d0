#!/usr/bin/env bash
# sweep.sh BUILD [PROGRAM...]: the tests that go through all combinations of some axes (tests/support/sweep.h), of which `make test` takes a
# sample; all of them, or those of the named programs. Hours. Interrupted, it continues where it stopped: BUILD/sweep (or the folder MO_SWEEP)
# has the seed and how many cells are done. SEED in the environment begins a sweep with that seed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=$1
shift
MO_SWEEP=$(realpath -m "${MO_SWEEP:-$build/sweep}")
export MO_SWEEP
[[ ${SEED:-1} =~ ^[0-9]+$ ]] || { echo "sweep: the seed is a number, not $SEED" >&2; exit 2; }
mkdir -p "$MO_SWEEP"
if [ -n "${SEED:-}" ] || [ ! -s "$MO_SWEEP/seed" ]; then
    echo "${SEED:-$(date +%s)}" >"$MO_SWEEP/seed"
fi
MO_SWEEP_SEED=$(cat "$MO_SWEEP/seed")
export MO_SWEEP_SEED
[ $# -gt 0 ] || mapfile -t programs < <(grep -l '"sweep.h"' tests/test_*.c | sed 's,.*/,,; s/\.c$//' | grep -vx test_sweep)
[ $# -eq 0 ] || programs=("$@")
failed=0 passed=0
trap 'echo "sweep: interrupted; make sweep continues (seed $MO_SWEEP_SEED)" >&2; exit 130' INT TERM
for program in "${programs[@]}"; do
    source=tests/$program.c
    [ -r "$source" ] && [ -x "$build/tests/$program" ] || { echo "sweep: there is no program $program" >&2; exit 2; }
    for test in $(awk '/^static void/ { name = $3; sub(/\(.*/, "", name) } /sweep s = \{/ { print name }' "$source"); do
        echo "sweep: $program $test, seed $MO_SWEEP_SEED"
        if "$build/tests/$program" "$test"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done
done
echo "sweep: $passed passed, $failed failed, seed $MO_SWEEP_SEED"
# The next one begins with another seed; what failed is repeated.
if [ "$failed" -eq 0 ] && [ $# -eq 0 ]; then
    rm -rf "$MO_SWEEP"
fi
[ "$failed" -eq 0 ]
