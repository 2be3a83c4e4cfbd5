#!/usr/bin/env bash
# Makes docs/audit-verdicts.md and docs/audit.png from real runs: what the laboratory's packaged resolvers are found to do, and the report of the last
# run as Chromium shows it. Root, and what `scripts/setup.sh docs` installs. AUDIT_RUNS says how many runs there are (3).
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --quiet --package sidestep --bins
SIDESTEP_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sidestep"
export SIDESTEP_BIN SIDESTEP_AUDIT_HTML="$scratch/report.html" SIDESTEP_AUDIT_TABLE=1
log="${AUDIT_LOG:-$scratch/log}"
rm -f docs/audit-verdicts.md "$log" # A verdict that is not seen any more leaves the table.
for _ in $(seq "${AUDIT_RUNS:-3}"); do
    cargo test --quiet --package tests --test audit packaged_resolvers -- --nocapture >>"$log" || { cat "$log"; exit 1; }
done
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" \
    --window-size=1000,1150 --screenshot="$scratch/report.png" "file://$SIDESTEP_AUDIT_HTML" 2>"$scratch/chromium" ||
    { cat "$scratch/chromium"; exit 1; }
# A picture of text needs few colours.
pngquant --force --speed 1 --output docs/audit.png 24 "$scratch/report.png"
