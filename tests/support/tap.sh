# tap.sh: for test scripts that speak TAP, which have a folder $scratch. check WHAT COMMAND...: one test, with the end of what the command printed if it fails.
number=0 failures=0
check() {
    local what=$1
    shift
    number=$((number + 1))
    if "$@" >"$scratch/log" 2>&1; then
        echo "ok $number - $what"
    else
        echo "not ok $number - $what"
        failures=$((failures + 1))
        tail -n 40 "$scratch/log" | sed 's/^/# /'
    fi
}
