#!/usr/bin/env bash
# deb.sh OUT [BUILD]: Debian packages of this tree in the directory OUT. Of the results in the build directory BUILD, if one is named, otherwise
# built anew as Debian does (with kernels for GPUs where there is an nvcc).
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
defined=$(sed -n 's/^#define MORAINE_VERSION_\(MAJOR\|MINOR\|PATCH\) *//p' include/moraine.h | paste -sd .)
[ "$version" = "$defined" ] || { echo "deb: debian/changelog says $version, include/moraine.h $defined" >&2; exit 1; }
tree=$out/moraine-$version
rm -rf "$tree" "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
mkdir -p "$tree"
git ls-files -co --exclude-standard -z | tar --null -T - -cf - | tar -xf - -C "$tree"
if [ -n "${2:-}" ]; then
    MORAINE_BUILD=$(realpath "$2")
    export MORAINE_BUILD DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} noautodbgsym"
fi
(cd "$tree" && dpkg-buildpackage -b -us -uc -d >"$out/log" 2>&1) || { tail -n 40 "$out/log" >&2; exit 1; }
rm -rf "$tree"
ls "$out"/*.deb
