#!/usr/bin/env bash
# A long mixed load on programs under `sidestep run`, with 1 % loss, new workers, and programs and brokers that are stopped and killed (root).
# Arguments: seconds, 600 if there are none, and the seed of what happens when.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh test >/dev/null
cargo build --quiet --release --package sidestep --package preload
cargo build --quiet --release --package tests --bins
binaries="${CARGO_TARGET_DIR:-$PWD/target}/release"
SIDESTEP_BIN="$binaries/sidestep" exec "$binaries/soak" "${1:-600}" "${2:-17}"
