#!/usr/bin/env bash
# Lint: formatting, the order of the modules, settings in messages, file names in the documentation, clang-tidy and cppcheck. (Warnings are errors in every build of the test run.)
# Prints one `ok NAME` or `not ok NAME` line per tool; exits 1 if any failed.
#
# lint.sh [all|sample]: clang-tidy's static analyzer looks at every file of src, or at those of the last ten commits and every
# fourth of the others; which fourth, the number of commits decides. All other checks look at every file.
set -uo pipefail
cd "$(dirname "$0")/.."
directory=build-lint
which=${1:-all}
failed=0

report() { # name, exit status, log
    if [ "$2" -eq 0 ]; then
        echo "ok lint: $1"
    else
        failed=1
        echo "not ok lint: $1"
        cat "$3"
    fi
}

mkdir -p "$directory"
mapfile -t sources < <(git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cc')
clang-format --dry-run -Werror "${sources[@]}" >"$directory/format.log" 2>&1
report clang-format $? "$directory/format.log"

tools/modules.sh >"$directory/modules.log" 2>&1
report "order of the modules" $? "$directory/modules.log"
for program in tests/test_*.c; do # tests/README.md says what each one tests
    name=$(basename "$program" .c)
    grep -qw "$name" tests/README.md || echo "tests/README.md does not name $name"
done >"$directory/tests.log"
[ ! -s "$directory/tests.log" ]
report "test programs in the table of tests" $? "$directory/tests.log"

# With pipefail, what writes to a reader that leaves at its first match fails now and then, by the signal of the broken pipe.
! git grep -nE '\| *(grep|egrep|fgrep) +-[a-zA-Z]*q' -- '*.sh' .ci/run >"$directory/pipes.log"
report "no pipe into a reader that leaves early" $? "$directory/pipes.log"

tools/messages.sh >"$directory/messages.log" 2>&1
report "settings in messages" $? "$directory/messages.log"

tools/doc-paths.sh >"$directory/paths.log" 2>&1
report "file names in the documentation" $? "$directory/paths.log"

cmake -S . -B "$directory" -G Ninja -DCMAKE_C_COMPILER=clang -DMO_CUDA=none >"$directory/configure.log" 2>&1 || { cat "$directory/configure.log"; exit 1; }
# Of C++ and CUDA only the form is checked: the kernels are C++ for the tests that emulate a GPU, in a dialect of macros
# that says nothing about them, and what clang knows of CUDA is other than what nvcc compiles. A file that several
# programs are made of is looked at once: it would be once for each of them.
mkdir -p "$directory/once"
awk '/^\{/ { entry = "" } { entry = entry $0 "\n" }
     /"file":/ { file = $0 } /^\},?$/ && file ~ /\.c",?$/ && !seen[file]++ { sub(/,?\n$/, "", entry); all = all comma entry; comma = ",\n" }
     END { print "[\n" all "\n]" }' "$directory/compile_commands.json" >"$directory/once/compile_commands.json"
# Nearly all the time goes to the analyser's search through states, and every loop makes it go to its limit. It has a ninth
# of the default of 225000 states per function: the 13 findings of its own that four commits of this tree fixed are
# the same with that. Tests and benchmarks do without it: they run under the sanitizers. Large files come first, so that none
# is left to one core at the end.
mapfile -t compiled < <(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$directory/once/compile_commands.json" | xargs ls -S)
changed_files() { # since ten commits; a shallow clone has all of them
    git diff --name-only HEAD~10 -- src 2>/dev/null || git ls-files src
}
is_analyzed() { # FILE
    [ "$which" = all ] || [ -n "${changed[${1#"$PWD/"}]:-}" ] || [ $((counted++ % 4)) -eq $((commits % 4)) ]
}
declare -A changed=()
while read -r file; do changed[$file]=1; done < <(changed_files)
commits=$(git rev-list --count HEAD) counted=0
analyzed=() others=()
for file in "${compiled[@]}"; do
    if [[ $file == */src/* ]] && is_analyzed "$file"; then analyzed+=("$file"); else others+=("$file"); fi
done
states=(--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=25000)
tidy() { # options...: the files on standard input
    xargs -P "$(nproc)" -n 1 clang-tidy -p "$directory/once" --quiet "$@" >>"$directory/tidy.log" 2>>"$directory/tidy.err"
}
: >"$directory/tidy.log" >"$directory/tidy.err"
printf '%s\n' "${analyzed[@]}" | tidy "${states[@]}" && printf '%s\n' "${others[@]}" | tidy '--checks=-clang-analyzer-*'
report clang-tidy $? "$directory/tidy.log"

cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability,performance --inline-suppr \
    --suppressions-list=tools/cppcheck.suppress -j "$(nproc)" -I src -I include -D_GNU_SOURCE -D__x86_64__ \
    src >"$directory/cppcheck.log" 2>&1
report cppcheck $? "$directory/cppcheck.log"
exit $failed
