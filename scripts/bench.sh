#!/usr/bin/env bash
# Every figure, one after the other, each with its conditions. Arguments: the figures wanted, otherwise all.
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
for name in "${@:-${all[@]}}"; do
    echo
    case $name in
        responder | zone) taskset --cpu-list "$(($(nproc) - 1))" "$binaries/$name" ;; # One core, always the same.
        segments) "$binaries/$name" && scripts/instructions.sh segments ;;
        *) "$binaries/$name" ;;
    esac
done
[ $# -gt 0 ] || scripts/instructions.sh answers
