#!/usr/bin/env bash
# tarball.sh OUT BUILD: moraine-VERSION-ARCHITECTURE.tar.gz in the directory OUT: the program of the build directory BUILD with every library that it needs but
# those of the C library, so that it runs on any Linux whose glibc is not older than this machine's. (Debian has no static library
# of much that TLS needs.) It runs from wherever it is unpacked.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1 build=$2
version=$(sed -n 's/^#define MORAINE_VERSION_\(MAJOR\|MINOR\|PATCH\) *//p' include/moraine.h | paste -sd .)
name=moraine-$version-$(uname -m)
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$build" --prefix "$stage/$name" >/dev/null
root=$stage/$name
# The program, not the library: who links with it builds it.
rm -rf "$root/include" "$root/lib"
mkdir -p "$root/lib" "$root/libexec"
mv "$root/bin/moraine" "$root/libexec/moraine"
ldd "$root/libexec/moraine" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r library path; do
    case "$library" in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | ld-linux*) ;;
    *) cp -L "$path" "$root/lib/$library" ;;
    esac
done
strip --strip-unneeded "$root/libexec/moraine" "$root"/lib/*
cat >"$root/bin/moraine" <<'END'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")/..
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/libexec/moraine" "$@"
END
chmod 755 "$root/bin/moraine"
cp LICENSE README.md "$root/"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$stage" -czf "$out/$name.tar.gz" "$name"
echo "$out/$name.tar.gz"
