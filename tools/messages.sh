#!/usr/bin/env bash
# messages.sh: checks the names of settings in messages; messages.sh --list: prints the messages.
#
# Messages of the library name settings as the header does, in backquotes, and never an option of the command line.
# src/cli/messages.c has the table of both. Checks that no string outside src/cli names an option (the doctor names those of
# other programs), that every setting in a message is in the table and is a member of an option struct, and that the table
# has no other. Prints what is wrong; exits 1 if anything is.
#
# --list prints every message and help text of src/, one per line, as FILE:LINE, a tab and the text. Literals next to each
# other are joined, with the names of macros between them. Listed are literals of two or more words, and single words
# in calls of mo_fail() and srv_fault_set(). Left out: chat formats, grammar rules, assembler and static assertions.
set -uo pipefail
cd "$(dirname "$0")/.."

list() {
    git ls-files -co --exclude-standard 'src/*.c' 'src/*.h' 'src/*.cu' 'src/*.cuh' |
        while read -r file; do [ ! -e "$file" ] || echo "$file"; done | xargs awk '
function reset() { text = held = ""; at = 0 }
# Prints the pending literal if it is prose.
function flush(    words) {
    if (at && !quiet && text !~ /\{%|\{\{|<\||^[a-z0-9%-]+ ::=|\\x[0-9a-f]|^<[a-z]+ [a-z]+=/) {
        words = text
        gsub(/%[-+ #0-9.*]*(PRI)?[hljztL]*[a-zA-Z][0-9]*/, "X", words)
        gsub(/\\[ntr]/, " ", words)
        if (words ~ /[A-Za-z][^ ]* +[^ ]*[A-Za-z]/ && words ~ /[a-z][a-z]/ || report && words ~ /[a-z][a-z][a-z]/)
            print FILENAME ":" at "\t" text
    }
    reset()
}
# Code between literals: a lone macro name may join two of them, anything else ends the literal.
function code(part) {
    if (part ~ /(^|[^a-z])(_Static_assert|static_assert|__asm__|asm|_Pragma|mo_rules_add|mo_writer_print|sscanf)/) { flush(); quiet = 1 }
    if (part ~ /(mo_fail|srv_fault_set)/) { flush(); report = 1 }
    gsub(/[ \t\\]+/, "", part)
    if (part == "") return
    if (at && held == "" && part ~ /^[A-Z][A-Z0-9_]*$|^PRI[a-zA-Z0-9]+$/) held = part
    else { flush(); if (part ~ /;/) quiet = report = 0 }
}
FNR == 1 { reset(); comment = quiet = report = 0 }
!comment && /^[ \t]*#[ \t]*(include|pragma|error)/ { next }
{
    rest = $0
    while (rest != "") {
        if (comment) {
            if (!(i = index(rest, "*/"))) break
            rest = substr(rest, i + 2)
            comment = 0
            continue
        }
        if (!match(rest, /["\047]|\/\*|\/\//)) { code(rest); break }
        code(substr(rest, 1, RSTART - 1))
        rest = substr(rest, RSTART)
        if (rest ~ /^\/\//) break
        if (rest ~ /^\/\*/) { comment = 1; rest = substr(rest, 3); continue }
        if (!match(rest, /^("(\\.|[^"\\])*"|\047(\\.|[^\047\\])*\047)/)) break
        if (rest ~ /^"/) {
            text = text held substr(rest, 2, RLENGTH - 2)
            held = ""
            if (!at) at = FNR
        } else code("c")
        rest = substr(rest, RLENGTH + 1)
    }
}'
}

case ${1-} in
--list) list; exit ;;
'') ;;
*) echo "usage: tools/messages.sh [--list]" >&2; exit 2 ;;
esac

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
