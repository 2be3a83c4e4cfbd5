#!/usr/bin/env bash
# Makes docs/audit.png: the report that the laboratory's packaged resolvers get, as Chromium shows it. Root, and what
# `scripts/setup.sh docs` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --quiet --package sidestep --bins
SIDESTEP_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sidestep"
export SIDESTEP_BIN SIDESTEP_AUDIT_HTML="$scratch/report.html"
cargo test --quiet --package tests --test audit packaged -- --nocapture >"${AUDIT_LOG:-$scratch/log}" || { cat "${AUDIT_LOG:-$scratch/log}"; exit 1; }
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" \
    --window-size=1000,1150 --screenshot="$scratch/report.png" "file://$SIDESTEP_AUDIT_HTML"
# A picture of text needs few colours.
pngquant --force --speed 1 --output docs/audit.png 24 "$scratch/report.png"
