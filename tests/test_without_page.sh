#!/usr/bin/env bash
# test_without_page.sh BUILD: a build without the page, because nobody wants it (-DMO_PAGE=OFF) or because the packages that make it are missing. Configured
# as a whole; compiled are the two files that differ, and linked with the rest of BUILD. Speaks TAP, as the other test programs do.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$scratch"' EXIT
. tests/support/tap.sh
configure() { # cmake options...
    cmake -S . -B "$scratch/build" -G Ninja -DMO_CUDA=none -DBUILD_TESTING=OFF "$@" >"$scratch/configured" 2>&1
}

missing_is_said() { # of esbuild, which stands for all: what is asked for whether there is one
    configure -DMO_PAGE=AUTO -DMO_ESBUILD="$scratch/none" && grep -q 'page: none, esbuild is missing' "$scratch/configured"
}
insisting_fails() {
    ! configure -DMO_PAGE=ON -DMO_ESBUILD="$scratch/none" && grep -q 'these packages are missing: esbuild' "$scratch/configured"
}
left_out() {
    configure -DMO_PAGE=OFF && grep -q 'page: none$' "$scratch/configured"
}
links() {
    local command object
    local -a objects=(src/CMakeFiles/mo_server.dir/server/status/page_files.c.o src/cli/CMakeFiles/moraine-cli.dir/version.c.o)
    ninja -C "$scratch/build" "${objects[@]}" || return 1
    command=$(ninja -C "$build" -t commands moraine-cli | tail -n 1)
    for object in "${objects[@]}"; do
        [[ $command == *" $object "* ]] || { echo "the program is not made of $object"; return 1; }
        command=${command/" $object "/" $scratch/build/$object "}
    done
    command=${command/" -o moraine "/" -o $scratch/moraine "}
    (cd "$build" && eval "$command") && "$scratch/moraine" --version | grep -x 'server  *yes, without web page' >/dev/null
}
serves() {
    local port=
    XDG_CACHE_HOME=$scratch "$scratch/moraine" serve models/pebble.gguf --port 0 --profile off 2>"$scratch/said" &
    server=$!
    for _ in $(seq 600); do
        port=$(sed -n 's/.* ready .*http:\/\/[^:]*:\([0-9]*\).*/\1/p' "$scratch/said")
        [ -z "$port" ] || break
        sleep 0.1
    done
    python3 - "$port" <<'END'
import sys, urllib.error, urllib.request
here = "http://127.0.0.1:%s/" % sys.argv[1]
answer = urllib.request.urlopen(urllib.request.Request(here, headers={"Accept": "text/html"}), timeout=60)
text = answer.read().decode()
assert "built without the web page" in text and "default-src 'none'" in answer.headers["Content-Security-Policy"], text
assert b'"pebble"' in urllib.request.urlopen(here + "v1/models", timeout=60).read()
try:
    urllib.request.urlopen(here + "page/page.js", timeout=60)
    raise AssertionError("there is a script")
except urllib.error.HTTPError as error:
    assert error.code == 404, error
END
}

check "where what makes the page is missing it is left out, and said" missing_is_said
check "who insists on the page is told what is missing" insisting_fails
check "the page can be left out" left_out
check "the program is made without it, and says so" links
check "the server answers programs, and people with a short page" serves
echo "1..$number"
