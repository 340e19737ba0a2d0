#!/usr/bin/env bash
# test_packages.sh BUILD: the Debian packages of what is in BUILD: made, looked at by lintian, installed in a fresh Debian root directory, used there as a person and as the service's
# unit do, purged; the unit; the tar with its libraries in the same root directory; the container's image on it. The root directory is made once and kept in BUILD.
# Speaks TAP, as the other test programs do.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
. tests/support/tap.sh
. tests/support/bare_root.sh
skip() { # why, what...
    local why=$1 what
    shift
    for what in "$@"; do
        number=$((number + 1))
        echo "ok $number - $what # SKIP $why"
    done
}

for program in dpkg-buildpackage lintian dh systemd-analyze; do # each: command -v is content with one of several
    if ! command -v "$program" >/dev/null; then
        echo "ok 1 - packages # SKIP $program is missing (dpkg-dev, debhelper, lintian, systemd)"
        echo "1..1"
        exit 0
    fi
done

needs_are_the_same() { # of what tools/setup.sh installs for a build, and of the packages
    sed -n '/^build=(/,/)/p' tools/setup.sh | tr -d '()' | sed 's/^build=//' | tr -s ' \n' '\n' | grep -vxE 'gcc|libc6-dev|libcmocka-dev|' |
        while read -r package; do
            grep -qw -- "$package" debian/control || { echo "debian/control lacks $package"; exit 1; }
        done
}
check "packages need for a build what the tree needs" needs_are_the_same
# As `make deb` makes them they are compiled anew, which takes minutes of a core: MO_DEB_ANEW=1 does so. Without it that way is followed until
# it would compile, and for two files.
make_debs() {
    if [ -n "${MO_DEB_ANEW:-}" ]; then
        tools/deb.sh "$scratch/deb"
    else
        tools/deb.sh "$scratch/deb" "$build"
    fi
}
built_as_debian_does() {
    local tree=$scratch/tree ninja
    ninja=$(command -v ninja)
    mkdir "$tree" "$scratch/bin" && git ls-files -co --exclude-standard -z | tar --null -T - -cf - | tar -xf - -C "$tree" || return 1
    cat >"$scratch/bin/ninja" <<END
#!/bin/sh
case "\$*" in
-j*) exec $ninja "\$@" src/CMakeFiles/mo_server.dir/server/status/page_files.c.o src/CMakeFiles/mo_hub.dir/hub/label.c.o ;;
*) exec $ninja "\$@" ;; # what cmake tries out
esac
END
    chmod +x "$scratch/bin/ninja"
    (cd "$tree" && PATH="$scratch/bin:$PATH" CMAKE_FLAGS=-DMO_CUDA=none debian/rules build) >"$scratch/built" 2>&1
    local status=$?
    cat "$scratch/built"
    rm -rf "$tree"
    [ $status -eq 0 ] && grep -q -- '-fstack-protector-strong.*hub/label.c.o -c' "$scratch/built" && grep -q 'MO_PAGE_FOLDER.*page_files.c.o -c' "$scratch/built"
}
check "Debian's own way of building works, hardened and with the page" built_as_debian_does
check "packages are made" make_debs
check "lintian finds nothing" lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$scratch"/deb/*.deb
check "the tar is made" env MO_GZIP_LEVEL=1 tools/tarball.sh "$scratch" "$build"
notices_are_there() { # of what the page and the tar have in them; the libraries are many, their packages not fewer than a few
    dpkg-deb --fsys-tarfile "$scratch"/deb/moraine_*.deb | tar -xOf - ./usr/share/doc/moraine/notices.txt.gz | gzip -d | grep 'Khan Academy' >/dev/null &&
        tar -tzf "$scratch"/moraine-*.tar.gz >"$scratch/names" && grep -q '/share/doc/moraine/notices.txt$' "$scratch/names" &&
        [ "$(grep -c '/libraries/.*\.copyright$' "$scratch/names")" -ge 5 ] && grep -q '/libraries/LGPL' "$scratch/names"
}
check "notices of others' libraries go with them" notices_are_there
linked_in() {
    ! grep -E '/lib/lib(jansson|edit|pcre2-8|utf8proc|uring|microhttpd|png16|jpeg|webp|gif|bsd|md|tinfo)\.so' "$scratch/names"
}
check "the tar's program has libraries linked in of which there are archives" linked_in
unit=debian/moraine.service
check "the unit leaves little open" systemd-analyze security --offline=true --threshold=20 --no-pager "$unit"

files() { # of the root directory, but for what dpkg and the system keep of their own work
    (cd "$root" && find . \( -path ./proc -o -path ./dev -o -path ./sys -o -path ./tmp -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache/ldconfig \) -prune -o -print) |
        grep -v '^./etc/ld.so.cache$' | sort
}
# As the unit says: its environment, its user with nothing but its folders, its command line.
as_service() {
    local line command
    command=$(sed -n 's/^ExecStart=//p' "$unit")
    local -a words=()
    while read -r line; do
        words+=("$line")
    done < <(sed -n 's/^Environment=//p' "$unit"; sed -n 's/^\([A-Z_]*=.*\)/\1/p' "$root/etc/default/moraine" | tr -d '"')
    mkdir -p "$root/var/lib/moraine" "$root/var/cache/moraine"
    chown nobody "$root/var/lib/moraine" "$root/var/cache/moraine"
    inside env -C /var/lib/moraine "${words[@]}" setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all sh -c "exec $command"
}
service_answers() {
    local port
    port=$(free_port)
    sed -i "s/^MORAINE_OPTIONS=.*/MORAINE_OPTIONS=\"--port $port\"/" "$root/etc/default/moraine" # as an administrator would
    server_answers "$port" as_service
}
tar_answers() {
    mkdir -p "$root/opt" && tar -C "$root/opt" -xzf "$scratch"/moraine-*.tar.gz && mv "$root"/opt/moraine-* "$root/opt/moraine" &&
        inside sh -c 'LD_LIBRARY_PATH=/opt/moraine/lib ldd /opt/moraine/libexec/moraine' | tee /dev/stderr | awk '$2 == "=>" && $3 ~ /^\/(usr|lib)/ { print $1 }' |
        (! grep -vE '^(libc|libm|libdl|libpthread|librt|libresolv)\.so') && inside /opt/moraine/bin/moraine --version && answers /opt/moraine/bin/moraine
}

says_what_is_in_it() { # the same as the program of the build: CUDA kernels, page, libraries; the module for MPI is installed apart
    inside moraine --version >"$scratch/installed" && grep -q '^several machines *no' "$scratch/installed" &&
        diff <("$build/moraine" --version | grep -v '^several machines') <(grep -v '^several machines' "$scratch/installed")
}
# The image of the Containerfile, on the root directory in place of the one that it would fetch.
container() {
    local place=$scratch/image image
    images() { buildah --root "$place/root" --runroot "$place/run" --storage-driver vfs "$@"; }
    tools/image.sh "$place" "$scratch"/deb/moraine_*.deb "$kept" && image=$(images from --pull-never moraine) &&
        images run --isolation chroot "$image" -- sh -c 'id -un && moraine run -p "What is 27 + 15?" --temp 0 -n 12 --profile off' | tee "$scratch/answer" &&
        grep -qx moraine "$scratch/answer" && grep -q 42 "$scratch/answer"
}

rest=("the tar runs where nothing is installed" "packages are installed in a fresh root directory" "the installed program runs" "the unit is well formed"
    "the service's command line answers, as its user" "a program is compiled against the development files" "purging leaves nothing" "the installed program says what the build had in it" "the container's image is made and answers")
if ! can_make_root; then
    skip "a root directory needs root and mmdebstrap or debootstrap" "${rest[@]}"
elif ! make_root "$(depends "$scratch"/deb/moraine_*.deb "$scratch"/deb/libmoraine0*.deb)"; then
    skip "no Debian root directory can be made: $(tail -n 1 "$scratch/log")" "${rest[@]}"
else
    check "${rest[0]}" tar_answers
    rm -rf "$root/opt/moraine"
    files >"$scratch/before"
    cp "$scratch"/deb/*.deb "$root/tmp/"
    check "${rest[1]}" inside sh -c 'dpkg -i /tmp/*.deb'
    check "${rest[2]}" answers moraine
    check "${rest[7]}" says_what_is_in_it
    check "${rest[3]}" systemd-analyze verify --no-pager --man=no --root="$root" --recursive-errors=no moraine.service
    check "${rest[4]}" service_answers
    check "${rest[5]}" bash -c "cc -I '$root/usr/include' examples/complete.c -o '$scratch/complete' -L '$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)' -lmoraine -Wl,--unresolved-symbols=ignore-in-shared-libs"
    purge() {
        inside dpkg --purge moraine libmoraine-dev libmoraine0.2 && files | diff "$scratch/before" -
    }
    check "${rest[6]}" purge
    if command -v buildah >/dev/null; then
        check "${rest[8]}" container
    else
        skip "buildah is missing" "${rest[8]}"
    fi
fi
echo "1..$number"
