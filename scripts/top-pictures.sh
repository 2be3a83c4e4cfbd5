#!/usr/bin/env bash
# Makes docs/top.svg and docs/dns/top.svg from real runs: nginx under `sidestep run` at one end of a veth pair with wrk at the other, and
# `sidestep dns serve` on loopback under `sidestep gun`. Root, nginx, wrk; all of it in two network namespaces of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/two-ends.sh
source scripts/two-ends.sh

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
