#!/usr/bin/env bash
# doc-paths.sh: holds the file names that the documentation mentions against the tree. Looked at are the words between
# backticks that are paths (src/..., a module as in `experts/slots.c`, or a bare file name such as `slots.c`; * stands for any
# part of a name, a word with NAME in it for a file to come) and the targets of links, with their headings. Code that begins
# with ```c FILE must be lines of that file, and names that begin with mo_ or MO_ must be used somewhere.
# Prints what is not there; exits 1 if anything is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t pages < <(git ls-files -co --exclude-standard README.md 'docs/*.md' 'bench/*.md' 'models/*.md' 'tests/*.md')
{
    git grep -howE --untracked '(mo|MO)_[A-Za-z0-9_]+' -- ':!*.md' | sort -u | sed 's/^/name /'
    git ls-files -co --exclude-standard | while read -r file; do [ ! -e "$file" ] || echo "$file"; done
} | awk -v pages="${pages[*]}" '
/^name / { used[$2] = 1; next }
{ file[$0] = 1
  for (path = $0; sub(/\/[^\/]*$/, "", path);) file[path] = 1
  base = $0; sub(/.*\//, "", base); file["*/" base] = 1
  if (split($0, part, "/") > 1) top[part[1]] = 1
  if (part[1] == "src") module[part[2]] = 1 }
function pattern(word) { gsub(/\./, "\\.", word); gsub(/\*/, "[^/]*", word); return "^" word "$" }
function there(word,    f) {
    sub(/\/$/, "", word)
    if (word in file) return 1
    if (word !~ /\*/) return 0
    word = pattern(word)
    for (f in file) if (f ~ word) return 1
    return 0
}
function missing(page, number, word) { print page ":" number ": there is no " word; bad = 1 }
function look(page, number, word,    first) {
    if (word ~ /^(mo|MO)_[A-Za-z0-9_]+(\(\))?$/) {
        sub(/\(\)$/, "", word)
        if (!(word in used)) missing(page, number, word)
        return
    }
    if (word ~ /NAME/ || word !~ /^[A-Za-z0-9_][A-Za-z0-9_.*\/-]*$/) return
    if (index(word, "/")) {
        first = word; sub(/\/.*/, "", first)
        if (first in top) { if (!there(word)) missing(page, number, word) }
        else if (first in module && !there("src/" word)) missing(page, number, "src/" word)
    } else if (word ~ /\.(c|h|cu|cuh|sh|py|md|inc|svg|scd|cmake)$/ && !there("*/" word)) missing(page, number, word)
}
# The heading of a link as GitHub makes it of the line.
function anchor(line) { line = tolower(line); sub(/^#+ */, "", line); gsub(/[^a-z0-9_ -]/, "", line); gsub(/ /, "-", line); return line }
function quoted(block, source,    line, text) {
    if (source in file) while ((getline line < source) > 0) text = text line "\n"
    close(source)
    return index(text, block) > 0
}
function follow(page, number, target,    path, folder, heading) {
    if (target ~ /^[a-z]+:/) return
    heading = target; if (!sub(/^[^#]*#/, "", heading)) heading = ""
    path = target; sub(/#.*/, "", path)
    folder = page; if (!sub(/[^\/]*$/, "", folder)) folder = ""
    path = path == "" ? page : folder path
    while (sub(/[^\/]+\/\.\.\//, "", path)) {}
    if (!there(path)) missing(page, number, path)
    else if (heading != "" && path ~ /\.md$/ && !((path, heading) in headings)) missing(page, number, "heading " heading " in " path)
}
END {
    pages_count = split(pages, page, " ")
    for (i = 1; i <= pages_count; i++) {
        while ((getline line < page[i]) > 0) if (line ~ /^#/) headings[page[i], anchor(line)] = 1
        close(page[i])
    }
    for (i = 1; i <= pages_count; i++) {
        number = code = 0
        while ((getline line < page[i]) > 0) {
            number++
            if (line ~ /^```/) {
                if (code && source != "" && !quoted(block, source)) missing(page[i], number, "such code in " source)
                code = !code
                source = line; if (!sub(/^```c +/, "", source)) source = ""
                block = ""
                continue
            }
            if (code) { block = block line "\n"; continue }
            rest = line
            while (match(rest, /`[^`]+`/)) {
                look(page[i], number, substr(rest, RSTART + 1, RLENGTH - 2)); rest = substr(rest, RSTART + RLENGTH)
            }
            rest = line
            while (match(rest, /\]\([^)]+\)/)) {
                follow(page[i], number, substr(rest, RSTART + 2, RLENGTH - 3)); rest = substr(rest, RSTART + RLENGTH)
            }
        }
        close(page[i])
    }
    exit bad
}'
