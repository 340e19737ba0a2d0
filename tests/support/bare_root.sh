# bare_root.sh: for test scripts with a folder $scratch: a fresh root directory of Debian 12 in $root, made once and kept in $build.

# make_root PACKAGES: Debian's smallest system with these packages (a,b,c) and what they depend on. $kept: the tar it is unpacked from.
make_root() {
    local wanted=$1 name
    name=root-bookworm-$(printf %s "$wanted" | sha256sum | cut -c 1-12)
    kept=$build/$name.tar
    if [ ! -e "$kept" ]; then
        if command -v mmdebstrap >/dev/null; then # half of debootstrap's time
            timeout 600 mmdebstrap --quiet --variant=apt --include="$wanted" bookworm "$scratch/root.tar" >"$scratch/log" 2>&1 || return 1
        else
            timeout 600 debootstrap --variant=minbase --include="$wanted" bookworm "$root" >"$scratch/log" 2>&1 || return 1
            rm -rf "$root"/var/cache/apt/archives/*.deb
            tar -C "$root" --one-file-system -cf "$scratch/root.tar" . && rm -rf "$root" || return 1
        fi
        mv "$scratch/root.tar" "$kept"
        find "$build" -maxdepth 1 -name 'root-bookworm-*.tar' -mtime +7 -delete # for packages of other days
    fi
    mkdir -p "$root" && tar -C "$root" -xf "$kept" --exclude='./dev/*'
}
# What is mounted goes with the process.
inside() { # command...
    unshare --mount --propagation private sh -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$root" \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
can_make_root() { [ "$(id -u)" -eq 0 ] && command -v mmdebstrap debootstrap >/dev/null; }

depends() { # package files...: what they depend on, for make_root
    local package
    for package in "$@"; do
        dpkg-deb -f "$package" Depends | tr ',' '\n' | sed 's/[(|].*//; s/ //g'
    done | grep -vE '^(libc6|moraine|libmoraine.*)?$' | sort -u | paste -sd ,
}
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
# server_answers PORT COMMAND...: what the command starts is ready in half a minute, and answers a question at the port.
server_answers() {
    local port=$1 status=1 line pid
    shift
    "$@" >"$scratch/service" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        grep -q ' ready ' "$scratch/service" && break
        sleep 0.1
    done
    line=$(python3 - "$port" <<'END'
import json, sys, urllib.request
body = {"messages": [{"role": "user", "content": "What is 27 + 15?"}], "temperature": 0, "max_tokens": 20}
request = urllib.request.Request("http://127.0.0.1:%s/v1/chat/completions" % sys.argv[1], json.dumps(body).encode(), {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"])
END
    ) && [[ $line == *42* ]] && status=0
    pkill -TERM -P "$pid" 2>/dev/null || kill -TERM "$pid"
    wait "$pid"
    cat "$scratch/service"
    echo "$line"
    return $status
}
answers() { # program inside
    [[ $(inside "$1" run -p "What is 27 + 15?" --temp 0 -n 12 --profile off) == *42* ]]
}
