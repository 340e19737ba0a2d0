#!/usr/bin/env bash
# tarball.sh OUT BUILD: moraine-VERSION-ARCHITECTURE.tar.gz in the directory OUT: the program of the build directory BUILD with every library that it needs but
# those of the C library, so that it runs on any Linux whose glibc is not older than this machine's. It runs from wherever it is unpacked.
#
# Linked in are those of which Debian has archives. libcurl and what it needs for TLS are libraries in a folder: Debian has no archives of p11-kit, which GnuTLS
# needs, nor of Kerberos, which its libcurl needs; and nettle, of which there may be one only in a process, is theirs.
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
notices=$root/share/doc/moraine/libraries
mkdir -p "$root/lib" "$root/libexec" "$notices"
# What the licence of a library asks to go with it: its package's copyright file, and the licences that this one names by path.
add_notice() { # library, path
    local package file licence
    package=$(dpkg -S "$(realpath "$2")" 2>/dev/null || dpkg -S "$2" 2>/dev/null || dpkg -S "${2#/usr}" 2>/dev/null || true)
    package=${package%%:*}
    file=/usr/share/doc/$package/copyright
    [ -n "$package" ] && [ -e "$file" ] || { echo "tarball: no copyright file of $1 is found" >&2; exit 1; }
    cp -L "$file" "$notices/$package.copyright"
    for licence in $(grep -oE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$file" | sort -u); do
        [ ! -e "$licence" ] || cp -L "$licence" "$notices/"
    done
}
# The command that has linked the program, with archives in place of libraries, and what those need.
link_static() {
    local command name archive
    command=$(ninja -C "$build" -t commands moraine-cli | tail -n 1)
    [[ $command == *" -o moraine "* ]] || { echo "tarball: $build says not how it links the program" >&2; exit 1; }
    command=${command/" -o moraine "/" -o $(realpath "$root")/libexec/moraine "}
    for name in jansson edit pcre2-8 utf8proc uring microhttpd png16 jpeg webp gif; do
        archive=$(cc -print-file-name="lib$name.a")
        [[ $archive == /* ]] || continue # there is none
        command=$(sed -E "s, [^ ]*/lib$name\\.so\\b, $archive,g" <<<"$command")
        add_notice "$name" "$archive"
    done
    # libedit: terminals, and functions of BSD. libmicrohttpd: TLS. libpng: zlib.
    command=${command% && :}
    for name in bsd md tinfo z; do
        command+=" -l:lib$name.a"
        add_notice "$name" "$(cc -print-file-name="lib$name.a")"
    done
    (cd "$build" && eval "$command -Wl,--as-needed -lgnutls")
}
link_static
rm "$root/bin/moraine"
ldd "$root/libexec/moraine" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | while read -r library path; do
    case "$library" in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | ld-linux*) ;;
    *)
        cp -L "$path" "$root/lib/$library"
        add_notice "$library" "$path"
        ;;
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
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$stage" -cf - "$name" | gzip -n "-${MO_GZIP_LEVEL:-9}" >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
