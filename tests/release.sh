#!/usr/bin/env bash
# release.sh OUT: starts what `make release` has left in OUT, each in a bare root directory of Debian: the tarball where nothing is
# installed, the Debian packages with what they depend on, the image by buildah. Each runs the built-in model and serves it. Speaks TAP.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(realpath "$1")
build=$(dirname "$out") # where root directories are kept
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
. tests/support/tap.sh
. tests/support/bare_root.sh
can_make_root && command -v buildah >/dev/null || { echo "release-test: root, mmdebstrap and buildah are needed" >&2; exit 1; }

serves() { # program inside
    local port
    port=$(free_port)
    server_answers "$port" inside "$1" serve --port "$port"
}
tarball() {
    mkdir -p "$root/opt" && tar -C "$root/opt" -xzf "$out"/moraine-*.tar.gz && mv "$root"/opt/moraine-* "$root/opt/moraine" && inside /opt/moraine/bin/moraine --version
}
packages() {
    cp "$out"/*.deb "$root/tmp/" && inside sh -c 'dpkg -i /tmp/*.deb' && inside moraine --version
}
images() { buildah --root "$scratch/image/root" --runroot "$scratch/image/run" --storage-driver vfs "$@"; }
image() {
    container=$(images from --pull-never "oci-archive:$out/$(basename "$out"/*.oci.tar)") && images run --isolation chroot "$container" -- moraine --version
}
image_answers() {
    [[ $(images run --isolation chroot "$container" -- moraine run -p "What is 27 + 15?" --temp 0 -n 12 --profile off) == *42* ]]
}
image_serves() {
    local port
    port=$(free_port)
    server_answers "$port" buildah --root "$scratch/image/root" --runroot "$scratch/image/run" --storage-driver vfs run --isolation chroot "$container" -- \
        moraine serve --host 127.0.0.1 --port "$port"
}

check "the checksums are right and name every file" bash -c "cd '$out' && sha256sum -c SHA256SUMS && test \$(ls | grep -vcx SHA256SUMS) -eq \$(wc -l <SHA256SUMS)"
check "a bare root directory is made" make_root ca-certificates
check "the tarball starts in it" tarball
check "its program answers" answers /opt/moraine/bin/moraine
check "its server answers" serves /opt/moraine/bin/moraine
rm -rf "$root"
check "a root directory with what the packages depend on is made" make_root "$(depends "$out"/moraine_*.deb "$out"/libmoraine0*.deb)"
check "the packages are installed" packages
check "the installed program answers" answers moraine
check "the installed server answers" serves moraine
check "the image starts" image
check "its program answers" image_answers
check "its server answers" image_serves
echo "1..$number"
[ "$failures" -eq 0 ]
