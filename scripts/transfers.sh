#!/usr/bin/env bash
# Zones that change for a while, with Sidestep, NSD, Knot and BIND as primaries and secondaries of each other, cut wires, and servers that
# are stopped, ended and killed. All have to be equal at the end, and always have a consistent version.
# Arguments: seconds, 600 if there are none, records of a zone (100000), the seed of what happens when, and a directory for logs and zones.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh test >/dev/null
[ -n "${SIDESTEP_BIN:-}" ] || cargo build --quiet --release --package sidestep
cargo build --quiet --release --package tests --bin transfers
binaries="${CARGO_TARGET_DIR:-$PWD/target}/release"
export SIDESTEP_BIN="${SIDESTEP_BIN:-$binaries/sidestep}"
exec "$binaries/transfers" "${1:-600}" "${2:-100000}" "${3:-17}" ${4:+"$4"}
