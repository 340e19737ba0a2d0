# shellcheck shell=bash disable=SC2154,SC2015
# socket_ranks.sh: ranks that are started here, without mpirun, by tests that have a folder $scratch; they find each other by sockets (socket_module.c).

# with_sockets BUILD: a folder with that build's program and the module, whose name is printed.
with_sockets() {
    local folder
    folder=$(mktemp -d "$scratch/program-XXXXXX") || return 1
    cp "$1/moraine" "$folder/moraine" && cp "$1/tests/socket_module.so" "$folder/moraine-mpi.so" && echo "$folder"
}

# start_rank NUMBER OF COMMAND...: behind; its process number is $!.
start_rank() {
    env OMPI_COMM_WORLD_RANK="$1" OMPI_COMM_WORLD_SIZE="$2" SOCKET_RANKS="$scratch" "${@:3}" &
}

# end_of PROCESS: waits for a rank that should end by itself, or is stopped; false after some seconds.
end_of() {
    local i
    for ((i = 0; i < 300; i++)); do
        [ -e "/proc/$1" ] && grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null || { wait "$1" 2>/dev/null; return 0; }
        ! grep -q '^State:.T' "/proc/$1/status" 2>/dev/null || kill -KILL "$1"
        sleep 0.1
    done
    kill -KILL "$1"
    wait "$1" 2>/dev/null
    return 1
}
