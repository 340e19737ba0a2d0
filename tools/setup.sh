#!/usr/bin/env bash
# Installs the Debian packages that are missing: `setup.sh build` for the program, `setup.sh check` for its test programs too,
# `setup.sh package` for packages of it, `setup.sh release` for these and an image, `setup.sh test` for everything the test run uses. Says what it installs; does nothing when all is there.
set -euo pipefail

build=(gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libpcre2-dev libutf8proc-dev libedit-dev liburing-dev libmicrohttpd-dev libcurl4-gnutls-dev nettle-dev scdoc
    libpng-dev libjpeg62-turbo-dev libwebp-dev libgif-dev
    esbuild node-marked node-highlight.js libjs-katex)
test=(libcmocka-dev g++ clang clang-format clang-tidy cppcheck libclang-rt-14-dev qemu-user git zsh fish python3-pexpect python3-jsonschema chromium libopenmpi-dev openmpi-bin)
package=(dpkg-dev debhelper)

case "$(uname -m)" in
x86_64) foreign=arm64 compiler=gcc-aarch64-linux-gnu ;;
aarch64) foreign=amd64 compiler=gcc-x86-64-linux-gnu ;;
*) foreign= compiler= ;;
esac

want=("${build[@]}")
if [ "${1:-build}" = check ]; then
    want+=(libcmocka-dev)
fi
if [ "${1:-build}" = package ] || [ "${1:-build}" = release ]; then
    want+=("${package[@]}")
fi
if [ "${1:-build}" = release ]; then
    want+=(mmdebstrap buildah crun)
fi
if [ "${1:-build}" = test ]; then
    want+=("${test[@]}" "${package[@]}" lintian mmdebstrap buildah crun systemd)
    if [ -n "$foreign" ]; then
        want+=("$compiler" "libcmocka-dev:$foreign" "libjansson-dev:$foreign" "libpcre2-dev:$foreign" "libutf8proc-dev:$foreign" "libedit-dev:$foreign" "liburing-dev:$foreign" "libmicrohttpd-dev:$foreign"
            "libpng-dev:$foreign" "libjpeg62-turbo-dev:$foreign" "libwebp-dev:$foreign" "libgif-dev:$foreign")
    fi
fi

native=$(dpkg --print-architecture 2>/dev/null || true)
installed() { # NAME or NAME:ARCHITECTURE
    local name=${1%%:*} architecture=$native
    case "$1" in *:*) architecture=${1##*:} ;; esac
    dpkg-query -W -f='${Architecture} ${db:Status-Status}\n' "$name" 2>/dev/null |
        grep -Eq "^($architecture|all) installed\$"
}

missing=()
for package in "${want[@]}"; do
    installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "setup: these packages are missing and this is not a Debian machine: ${missing[*]}" >&2
    exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: run as root, or install sudo, to install: ${missing[*]}" >&2; exit 1; }
    root=(sudo)
fi
echo "setup: installing ${missing[*]}" >&2
if [ "${1:-build}" = test ] && [ -n "$foreign" ] && ! dpkg --print-foreign-architectures | grep -x "$foreign" >/dev/null; then
    "${root[@]}" dpkg --add-architecture "$foreign"
fi
"${root[@]}" apt-get update -qq
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
