#!/usr/bin/env bash
# Makes docs/doctor.svg and docs/gun.png from real runs on a veth pair: what `sidestep doctor` says of one end, and the report of `sidestep gun dns` as
# Chromium shows it, of a server that is stopped for half a second. Root, and what `scripts/setup.sh docs` installs; all of it in two network namespaces of
# its own.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/two-ends.sh
source scripts/two-ends.sh

ip netns exec "$server" ethtool -K eth0 gro off
# Its exit status says that something is bad, on a machine where something is.
ip netns exec "$server" "$target/sidestep" doctor eth0 --svg docs/doctor.svg || [ $? -eq 1 ]

at "$server" "$target/sidestep" dns serve --user root --device eth0 --zone specs/zones/example.com.zone
dns=$!
until_true ip netns exec "$client" "$target/sidestep" dns query @10.53.0.1 www.example.com
(
    sleep 12
    kill -STOP "$dns"
    sleep 0.5
    kill -CONT "$dns"
) &
started+=($!)
ip netns exec "$client" "$target/sidestep" gun dns 10.53.0.1 --device eth0 --name 'h{0-9999}.example.com' --rate 5k \
    --duration 20s --html "$scratch/report.html"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" \
    --window-size=900,1250 --screenshot="$scratch/report.png" "file://$scratch/report.html" 2>"$scratch/chromium" ||
    { cat "$scratch/chromium"; exit 1; }
# A picture of text needs few colours.
pngquant --force --speed 1 --output docs/gun.png 24 "$scratch/report.png"
