#!/usr/bin/env bash
# gather.sh FOLDER: fetches and unpacks the sources listed in sources.tsv into FOLDER/{deb,src,npm}/NAME and writes
# FOLDER/versions.tsv (kind, name, version). Uses a private package index, so it needs no rights and installs nothing.
# What is already there is kept. Needs apt-get, dpkg-deb and npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: gather.sh FOLDER}"
folder=$(cd "$1" && pwd)
names() { awk -F'\t' -v kind="$1" '!/^#/ && $2 == kind {print $3}' "$here/sources.tsv" | sort -u; }
missing() { # KIND: the names that are not unpacked yet
    local name
    for name in $(names "$1"); do [ -e "$folder/$1/${name%@[0-9]*}/.done" ] || echo "$name"; done
}

apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$folder"/{deb,src,npm,fetched}

private_index() { # the machine's own Debian mirror and release, with sources
    [ -e "$apt/apt.conf" ] && return
    local release
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    local site
    site=$(apt-get indextargets --format '$(SITE)|$(CODENAME)|$(COMPONENT)' | awk -F'|' -v r="$release" \
        '$2 == r && $3 == "main" {print $1; exit}')
    [ -n "$site" ] || { echo "gather: apt knows no mirror of $release; run apt-get update first" >&2; exit 1; }
    printf 'deb %s %s main\ndeb-src %s %s main\n' "$site" "$release" "$site" "$release" >"$apt/sources.list"
    : >"$apt/status" # what is installed here must not choose the versions
    cat >"$apt/apt.conf.new" <<END
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
APT::Sandbox::User "";
END
    APT_CONFIG=$apt/apt.conf.new apt-get update -qq
    mv "$apt/apt.conf.new" "$apt/apt.conf"
}

fetch_debs() {
    local name file want
    mapfile -t want < <(missing deb)
    [ ${#want[@]} -eq 0 ] && return
    (cd "$folder/fetched" && APT_CONFIG=$apt/apt.conf apt-get download -qq "${want[@]}")
    for name in "${want[@]}"; do
        file=$(ls "$folder/fetched/${name}_"*.deb)
        mkdir -p "$folder/deb/$name"
        dpkg-deb --fsys-tarfile "$file" |
            tar x -C "$folder/deb/$name" --wildcards './usr/share/man/man*' 2>/dev/null || true # no pages: seen later
        dpkg-deb -f "$file" Version >"$folder/deb/$name/.done"
    done
}

fetch_sources() { # only what the authors published, without Debian's changes; checked against the index
    local name address file sum version want refused=()
    mapfile -t want < <(missing src)
    [ ${#want[@]} -eq 0 ] && return
    for name in "${want[@]}"; do
        rm -rf "$folder/src/$name" "$folder/fetched/$name"
        mkdir -p "$folder/src/$name" "$folder/fetched/$name"
        version=
        while read -r address file _ sum; do
            case "$file" in
            *.dsc) version=${file#*_} version=${version%.dsc} ;;
            *.orig*.asc) ;;
            *.orig.tar.*)
                APT_CONFIG=$apt/apt.conf /usr/lib/apt/apt-helper -qq download-file "${address//\'/}" "$folder/fetched/$name/$file" "$sum" &&
                    tar xf "$folder/fetched/$name/$file" -C "$folder/src/$name" &&
                    echo "$version" >"$folder/src/$name/.done"
                ;;
            esac
        done < <(APT_CONFIG=$apt/apt.conf apt-get source --print-uris -qq "$name")
        [ -e "$folder/src/$name/.done" ] || refused+=("$name")
    done
    [ ${#refused[@]} -eq 0 ] || { echo "gather: the mirror does not give the sources of ${refused[*]}" >&2; exit 1; }
}

fetch_npm() {
    local name bare file
    for name in $(missing npm); do
        bare=${name%@*}
        mkdir -p "$folder/npm/$bare"
        file=$(cd "$folder/fetched" && npm pack --silent "$name")
        tar xzf "$folder/fetched/$file" -C "$folder/npm/$bare"
        echo "${name##*@}" >"$folder/npm/$bare/.done"
    done
}

private_index
fetch_debs
fetch_sources
fetch_npm
for kind in deb src npm; do
    for name in $(names "$kind"); do
        name=${name%@[0-9]*}
        printf '%s\t%s\t%s\n' "$kind" "$name" "$(cat "$folder/$kind/$name/.done")"
    done
done >"$folder/versions.tsv"
