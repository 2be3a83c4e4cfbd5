#!/usr/bin/env bash
# Makes docs/audit.png: the report that the laboratory's packaged resolvers get, as Chromium shows it. Root, and Debian's chromium and
# imagemagick.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --quiet --package sidestep --bins
SIDESTEP_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sidestep"
export SIDESTEP_BIN SIDESTEP_AUDIT_HTML="$scratch/report.html"
cargo test --quiet --package tests --test audit packaged
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" \
    --window-size=1100,1500 --screenshot="$scratch/report.png" "file://$SIDESTEP_AUDIT_HTML"
# A picture of text needs few colours.
if command -v convert >/dev/null; then
    convert "$scratch/report.png" -colors 32 -define png:compression-level=9 docs/audit.png
else
    cp "$scratch/report.png" docs/audit.png
fi
