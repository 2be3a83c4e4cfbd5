#!/usr/bin/env bash
# Every figure, one after the other, each with its conditions. Arguments: the figures wanted, otherwise all. What a figure's program takes
# stands behind it: veth,3,a,nxdomain.
#
# What is found is added to docs/benchmarks.tsv, and docs/benchmarks.md is written anew from that. PUBLISH=no leaves both alone: for a
# machine that does other work too. SIDESTEP_PEERS names a directory with newer nsd, knotd and kxdpgun than those of the system.
set -euo pipefail
cd "$(dirname "$0")/.."

# Those that compare servers first: a machine that has worked for long is a slower one.
all=(veth latency http run)
for file in bench/src/bin/*; do
    name=$(basename "$file" .rs)
    [[ " ${all[*]} " == *" $name "* ]] || all+=("$name")
done

cargo build --quiet --release --package sidestep --package bench --bins
cargo build --quiet --release --package preload
cargo build --quiet --release --package native --examples
binaries="${CARGO_TARGET_DIR:-$PWD/target}/release"
export SIDESTEP_BIN="$binaries/sidestep" SIDESTEP_EXAMPLES="$binaries/examples"
[ "${PUBLISH:-yes}" = no ] || export SIDESTEP_BENCH_PAGE="$PWD/docs/benchmarks.md"

measure() {
    local figure
    IFS=, read -ra figure <<< "$1"
    local program="$binaries/${figure[0]}" arguments=("${figure[@]:1}")
    case ${figure[0]} in
        responder | zone | gun) taskset --cpu-list "$(($(nproc) - 1))" "$program" "${arguments[@]}" ;; # One core, always the same.
        segments) "$program" && scripts/instructions.sh segments ;;
        answers) scripts/instructions.sh answers ;;
        *) "$program" "${arguments[@]}" ;;
    esac
}

# One that fails does not keep the others from being measured: that takes hours.
failed=()
[ $# -gt 0 ] || set -- "${all[@]}" answers
for name in "$@"; do
    echo
    measure "$name" || failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] || { echo "bench: FAILED: ${failed[*]}" >&2; exit 1; }
