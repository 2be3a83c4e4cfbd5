#!/usr/bin/env bash
# Makes docs/top.svg and docs/dns/top.svg from real runs: nginx under `sidestep run` at one end of a veth pair with wrk at the other, and
# `sidestep dns serve` on loopback under `sidestep gun`. Root, nginx, wrk; all of it in two network namespaces of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --package sidestep --bins
cargo build --quiet --package preload
target="${CARGO_TARGET_DIR:-$PWD/target}/debug"
export SIDESTEP_PRELOAD="$target/libsidestep_preload.so"
scratch=$(mktemp -d)
export SIDESTEP_RUNTIME_DIR="$scratch/run"
mkdir -m 755 "$SIDESTEP_RUNTIME_DIR"
server=ss-$$-top-s client=ss-$$-top-c
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait || true
    ip netns del "$server" || true
    ip netns del "$client" || true
    rm -rf "$scratch"
}
trap finish EXIT

# at NAMESPACE COMMAND...: starts it in the background.
at() {
    ip netns exec "$@" >>"$scratch/log" 2>&1 &
    started+=($!)
}
# until_true COMMAND...: waits until it succeeds, for a minute at most.
until_true() {
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "top-pictures: never: $*" >&2
    cat "$scratch/log" >&2
    return 1
}

ip netns add "$server"
ip netns add "$client"
ip -n "$server" link add eth0 type veth peer name eth0 netns "$client"
ip -n "$server" addr add 10.53.0.1/24 dev eth0
ip -n "$client" addr add 10.53.0.2/24 dev eth0
for side in "$server" "$client"; do ip -n "$side" link set eth0 up; ip -n "$side" link set lo up; done

mkdir "$scratch/www"
echo "Hello, world!" >"$scratch/www/index.html"
cat >"$scratch/nginx.conf" <<CONF
user root;
daemon off;
worker_processes 1;
pid $scratch/nginx.pid;
error_log $scratch/error.log;
events { worker_connections 256; }
http { access_log off; keepalive_requests 100000000; server { listen 80; root $scratch/www; } }
CONF
at "$server" "$target/sidestep" run --device eth0 -- nginx -c "$scratch/nginx.conf"
run=$!
at "$server" "$target/sidestep" dns serve --user root --cores 0 --zone specs/zones/example.com.zone
dns=$!
until_true ip netns exec "$client" curl -sf http://10.53.0.1/
until_true ip netns exec "$server" "$target/sidestep" dns query @127.0.0.1 -p 5300 www.example.com
worker=$(pgrep -P "$(pgrep -P "$run" nginx)")

at "$client" wrk -t 1 -c 8 -d 60 http://10.53.0.1/
{
    for name in www www www mail ns1 'h{random}'; do echo "$name.example.com A"; done
    echo "example.com MX"
    echo "www.example.com AAAA"
} >"$scratch/names"
at "$server" "$target/sidestep" gun dns 127.0.0.1:5300 --names "$scratch/names" --order random --rate 8k --duration 60s
sleep 3
"$target/sidestep" top --interval 2 --sockets "$worker" --svg docs/top.svg
"$target/sidestep" dns top --interval 3 --pid "$dns" --svg docs/dns/top.svg
