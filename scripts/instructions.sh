#!/usr/bin/env bash
# Instructions that the responder takes for one answer, counted by callgrind: the same on every run, whatever else the machine does.
# The difference of two runs leaves out what making the zone and the queries takes.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || { echo "instructions: valgrind is missing: make setup" >&2; exit 1; }
cargo build --quiet --release --package bench --bin responder
binary="${CARGO_TARGET_DIR:-$PWD/target}/release/responder"
names=${1:-10000}

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" "$names" "$1" 2>&1 |
        awk '/Collected/ { print $4 }'
}

less=$(count 128000)
more=$(count 256000)
echo "instructions an answer, $names names, type A, without EDNS: $(((more - less) / 128000))"
