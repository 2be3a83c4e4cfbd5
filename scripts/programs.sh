#!/usr/bin/env bash
# Runs the matrix of real programs twice, on the kernel and by `sidestep run`, and writes what it found into docs/programs.md (root).
# Arguments go to the tests: names of those wanted, for instance. With names, the page is left as it is and the table printed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh test >/dev/null
cargo build --quiet --release --package sidestep --package preload
cargo build --quiet --release --package tests --bins
binaries="${CARGO_TARGET_DIR:-$PWD/target}/release"
export SIDESTEP_BIN="$binaries/sidestep"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export SIDESTEP_PROGRAMS_RESULTS="$scratch/results"

status=0
for network in kernel run; do
    # One at a time: these figures are compared.
    SIDESTEP_PROGRAMS=$network cargo test --quiet --release --package tests --test programs -- --test-threads=1 "$@" || status=$?
done
if [ $# -eq 0 ] && [ $status -eq 0 ]; then
    "$binaries/program_table" "$SIDESTEP_PROGRAMS_RESULTS" docs/programs.md
else
    "$binaries/program_table" "$SIDESTEP_PROGRAMS_RESULTS"
fi
exit $status
