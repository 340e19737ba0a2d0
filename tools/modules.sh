#!/usr/bin/env bash
# modules.sh: compares the include lines of src/ with the order of the modules (docs/architecture.md). A file may include its own
# module and those named beside it below; the files of one noun (NAME.c, NAME.h) may not reach themselves through others.
# Prints what is wrong; exits 1 if anything is.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rHoE --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' '^ *# *include "[^"]+"' src |
    sed -E 's/^src\/([^:]+):.*"([^"]+)"$/\1 \2/' | awk '
BEGIN {
    # Module: the modules it may include.
    may["base"] = ""
    may["net"] = "base"
    may["numeric"] = "base"
    may["gguf"] = "base numeric"
    may["template"] = "base"
    may["text"] = "base gguf"
    may["grammar"] = "base text"
    may["dialogue"] = "base text grammar"
    may["model"] = "base numeric gguf"
    may["speculate"] = "base"
    may["synth"] = "base numeric gguf"
    may["device"] = "base numeric"
    may["disk"] = "base"
    may["experts"] = "base numeric model device disk"
    may["store"] = "base numeric model disk experts"
    may["plan"] = "base numeric device disk"
    may["profile"] = "base experts plan"
    may["hotcache"] = "base gguf model experts plan profile"
    may["kv"] = "base numeric model"
    may["sampling"] = "base numeric"
    may["engine"] = "base numeric model experts store profile kv sampling"
    may["cluster"] = "base net model experts engine kv"
    may["gpu"] = "base numeric gguf model device experts store plan profile hotcache kv engine"
    may["picture"] = "base"
    may["vision"] = "base numeric gguf device picture"
    may["open"] = "base numeric gguf model device disk experts store plan profile hotcache kv engine cluster gpu speculate vision"
    may["api"] = "base numeric gguf template text grammar dialogue model synth device disk experts store plan profile hotcache kv sampling engine cluster net gpu open speculate picture vision"
    may["generation"] = "base text grammar sampling engine api speculate"
    may["server/common"] = "base"
    may["server/http"] = "base server/common"
    may["server/scheduler"] = "base server/common"
    may["server/models"] = "base server/common server/http server/scheduler"
    may["server/requests"] = "base server/common server/http server/scheduler server/models"
    may["server/dialects"] = "base server/common server/requests"
    may["server/status"] = "base server/common server/http server/scheduler server/models server/requests"
    may["server"] = "base server/common server/http server/scheduler server/models server/requests server/dialects server/status"
    may["hub"] = "base gguf"
    may["cli/print"] = "base"
    may["cli"] = "base cli/print server hub"
    may["cli/commands"] = "base cli cli/print server server/common server/http hub"
    # Lists of what there is, each named by the root of its module: the wings of numeric, the families of model, the
    # commands of the program.
    list["numeric/kernels"] = list["model/family"] = list["cli/main"] = 1
}
# NAME.cu and NAME.cuh are what runs on a device, NAME.c and NAME.h what the host knows of it: two nouns.
function module(path) { return path ~ /^(server|cli)\/[a-z]+\// ? substr(path, 1, index(substr(path, index(path, "/") + 1), "/") + index(path, "/") - 1) : substr(path, 1, index(path, "/") - 1) }
function noun(path) { sub(/\.cuh?$/, ".cu", path); sub(/\.[ch]$/, "", path); return path }
{
    own = module($1)
    if ($2 == "moraine.h" || $2 == "moraine_pictures.h" || $2 == "moraine_tools.h" || $2 == "moraine_server.h") next # the common vocabulary
    if ($2 !~ /\//) { # beside the file
        if ($2 == "emulation.h" || $2 == "meeting.h") next # they stand in for a compiler: tests/
        print "src/" $1 ": include \"" $2 "\" with its module"; bad = 1; next
    }
    other = module($2)
    if (other != own && !index(" " may[own] " ", " " other " ") && !(noun($1) in list)) {
        print "src/" $1 ": " own " may not include " $2; bad = 1
    }
    a = noun($1); b = noun($2)
    if (a != b && !(a in list) && own != "cli") { edge[a, b] = 1; node[a] = node[b] = 1 }
}
# Does `from` reach `to` by include lines?
function reaches(from, to,   seen, stack, depth, e, p, n) {
    depth = 1; stack[1] = from; seen[from] = 1
    while (depth > 0) {
        n = stack[depth--]
        for (e in edge) {
            split(e, p, SUBSEP)
            if (p[1] != n || p[2] in seen) continue
            if (p[2] == to) return 1
            seen[p[2]] = 1; stack[++depth] = p[2]
        }
    }
    return 0
}
END {
    do { # what includes nothing that is left cannot be part of a circle
        gone = 0
        delete out
        for (e in edge) { split(e, p, SUBSEP); if (p[2] in node) out[p[1]]++; else delete edge[e] }
        for (n in node) if (!(n in out)) { delete node[n]; gone = 1 }
    } while (gone)
    for (e in edge) {
        split(e, p, SUBSEP)
        if (p[1] == p[2] || reaches(p[2], p[1])) {
            print "src/" p[1] " and src/" p[2] " are on a circle of includes"; bad = 1
        }
    }
    exit bad
}'
