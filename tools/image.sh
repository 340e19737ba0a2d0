#!/usr/bin/env bash
# image.sh PLACE DEB [ROOT]: the container's image of the Containerfile with the Debian package DEB, named moraine, in buildah's storage in the folder
# PLACE. ROOT is a tar of a Debian 12 root directory that stands for the image which would be fetched otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(realpath -m "$1") deb=$2 root=${3:-}
mkdir -p "$place/context/build/deb"
cp Containerfile "$place/context/"
cp "$deb" "$place/context/build/deb/"
images() { buildah --root "$place/root" --runroot "$place/run" --storage-driver vfs "$@"; }
pull=--pull
if [ -n "$root" ]; then
    pull=--pull-never
    made=$(images from scratch)
    images add -q "$made" "$root" /
    images commit -q "$made" docker.io/library/debian:bookworm-slim
    images rm "$made" >/dev/null
fi
images bud --isolation chroot $pull -t moraine "$place/context"
