# cgroup.sh: for benchmarks that source it: a command inside a memory cgroup with a limit, version 1 or 2.

inside() { # LIMIT in GiB, command...: in a memory cgroup, if one can be made
    local limit=$(($1 * 1024 * 1024 * 1024)) group=
    local v1 v2
    v1=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    v2=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    shift
    if mkdir -p "$v1/moraine-bench" 2>/dev/null && echo "$limit" >"$v1/moraine-bench/memory.limit_in_bytes" 2>/dev/null; then
        group=$v1/moraine-bench/tasks
    elif [ -e "$v2/cgroup.controllers" ] && mkdir -p "$v2/moraine-bench" 2>/dev/null && echo "$limit" >"$v2/moraine-bench/memory.max" 2>/dev/null; then
        group=$v2/moraine-bench/cgroup.procs
    else
        echo "(no memory cgroup can be made here)" >&2
    fi
    bash -c '[ -z "$0" ] || echo $$ >"$0"; exec "$@"' "$group" "$@"
}
