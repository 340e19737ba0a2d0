#!/usr/bin/env bash
# release.sh OUT BUILD: what is published of a version, in the directory OUT: the tarball, the Debian packages and the container's image, with
# SHA256SUMS of all. Built in BUILD, once, with Debian's flags for hardened programs. CUDA in the environment decides about kernels: `all` where
# there is an nvcc, otherwise `none`; a build without them says so.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "$1") build=$2
if [ -z "${CUDA:-}" ]; then
    CUDA=none
    if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then CUDA=all; fi
fi
[ "$CUDA" = all ] || echo "release: kernels for $CUDA; a release for everybody has CUDA=all, which needs nvcc"
command -v buildah >/dev/null || { echo "release: buildah is missing, which makes the image" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
. tests/support/bare_root.sh

hardened() { DEB_BUILD_MAINT_OPTIONS=hardening=+all dpkg-buildflags --get "$1"; }
# The folder of the libraries is Debian's, the prefix that of the packages; the tarball's program finds its files from where it is.
MO_TARGETS="moraine-cli moraine-shared manual" tools/build.sh "$build" -DBUILD_TESTING=OFF -DMO_PAGE=ON -DMO_MPI=OFF -DMO_CUDA="$CUDA" \
    -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" \
    -DCMAKE_C_FLAGS="$(hardened CFLAGS) $(hardened CPPFLAGS)" -DCMAKE_EXE_LINKER_FLAGS="$(hardened LDFLAGS)" -DCMAKE_SHARED_LINKER_FLAGS="$(hardened LDFLAGS)"
rm -rf "$out"
mkdir -p "$out"
echo "release: tarball"
tools/tarball.sh "$out" "$build"
echo "release: Debian packages"
MORAINE_PACK= tools/deb.sh "$scratch/deb" "$build" >/dev/null
cp "$scratch"/deb/*.deb "$out/"
echo "release: image"
# From the root directory that mmdebstrap makes where that is possible, so that no registry is asked; it is the same system.
base=()
if can_make_root && make_root "$(depends "$out"/moraine_*.deb)"; then
    base=("$kept")
fi
tools/image.sh "$scratch/image" "$out"/moraine_*.deb "${base[@]}" >"$scratch/image.log" 2>&1 || { tail -n 40 "$scratch/image.log" >&2; exit 1; }
name=$(basename "$out"/moraine-*.tar.gz .tar.gz)
buildah --root "$scratch/image/root" --runroot "$scratch/image/run" --storage-driver vfs push -q moraine "oci-archive:$out/$name.oci.tar:moraine"
(cd "$out" && sha256sum -- * >"$scratch/sums" && mv "$scratch/sums" SHA256SUMS)
ls -lh "$out"
echo "release: $out; make release-test starts each of them in a bare root directory"
