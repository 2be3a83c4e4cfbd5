#!/usr/bin/env bash
# A long mixed load on programs under `sidestep run`, with 1 % loss and new workers now and then (root). Argument: seconds, 600 if there
# is none.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh test >/dev/null
cargo build --quiet --release --package sidestep --package preload
cargo build --quiet --release --package tests --bins
binaries="${CARGO_TARGET_DIR:-$PWD/target}/release"
SIDESTEP_BIN="$binaries/sidestep" exec "$binaries/soak" "${1:-600}"
