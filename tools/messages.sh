#!/usr/bin/env bash
# Messages of the library name settings as the header does, in backquotes, and never an option of the command line, which has its own table of
# them (src/cli/messages.c). Checks that no string outside src/cli names an option (the doctor names those of other programs), that every setting in a message is in the table and is a
# member of an option struct, and that the table has no other. Prints what is wrong; exits 1 if anything is.
set -uo pipefail
cd "$(dirname "$0")/.."
wrong=0
mapfile -t sources < <(git ls-files -co --exclude-standard 'src/*.c' 'src/*.h' 'src/*.cu' 'src/*.cuh' | grep -vE '^src/(cli|api/doctor)/')
if grep -nE '"[^"]*--[a-z][^"]*"' "${sources[@]}"; then
    echo "these strings name options of the command line: name the setting, as in \`ram_bytes\`"
    wrong=1
fi
# comments begin with / or a star; a setting is a word between backquotes within a string
said=$(grep -hE '^[^/*]*"[^"]*`[a-z_.]+`' "${sources[@]}" | grep -oE '`[a-z_.]+`' | sort -u)
known=$(grep -oE '^    \{"`[a-z_.]+`' src/cli/messages.c | grep -oE '`[a-z_.]+`' | sort -u)
if ! diff <(echo "$known") <(echo "$said"); then
    echo "the table of src/cli/messages.c (<) and the settings that messages name (>) differ"
    wrong=1
fi
for setting in $said; do
    member=${setting//\`/}
    grep -qE "^[^/]*[ *]${member##*.}[;,]" include/*.h || { echo "$setting is no member of an option struct"; wrong=1; }
done
exit $wrong
