#!/usr/bin/env bash
# Servers with threads, and others that the tests do not have, on the kernel and under `sidestep run`, in turns: requests a second with connections that are kept, and with one for each
# request. Server and client share all cores. Those that are not installed are left out. Prints a table in Markdown.
#
# Arguments: rounds (3), seconds of each load (3), and names of servers, otherwise all.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "$0: needs root" >&2; exit 1; }
rounds=${1:-3} seconds=${2:-3}
shift $(($# < 2 ? $# : 2))
wanted=" $* "

cargo build --quiet --release --package sidestep --bins
cargo build --quiet --release --package preload
sidestep="${CARGO_TARGET_DIR:-$PWD/target}/release/sidestep"
scratch=$(mktemp -d)
chmod 755 "$scratch"
server=ss-$$-thr-s client=ss-$$-thr-c
finish() {
    for side in "$server" "$client"; do
        ip netns pids "$side" 2>/dev/null | xargs --no-run-if-empty kill -KILL || true
        ip netns del "$side" 2>/dev/null || true
    done
    rm -rf "$scratch"
}
trap finish EXIT

ip netns add "$server"
ip netns add "$client"
ip link add eth0 netns "$server" numrxqueues 2 numtxqueues 2 type veth peer name eth0 netns "$client" numrxqueues 2 numtxqueues 2
ip -n "$server" address add 10.53.0.1/24 dev eth0
ip -n "$client" address add 10.53.0.2/24 dev eth0
for side in "$server" "$client"; do
    ip -n "$side" link set lo up
    ip -n "$side" link set eth0 up
done
# wrk closes last, and would run out of ports.
ip netns exec "$client" sysctl --quiet --write net.ipv4.ip_local_port_range="1025 65000" net.ipv4.tcp_tw_reuse=1

mkdir "$scratch/www" "$scratch/varnish"
echo hello >"$scratch/www/index.html"
cat >"$scratch/haproxy" <<'END'
global
    nbthread 2
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 10s
frontend pages
    bind :8080
    http-request return status 200 content-type text/plain string hello
END
apache() {
    cat <<END
ServerRoot $scratch
PidFile $scratch/apache-$1.pid
ErrorLog $scratch/apache-$1.log
ServerName server
Listen 8080
LoadModule mpm_$1_module /usr/lib/apache2/modules/mod_mpm_$1.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
User nobody
Group nogroup
MaxKeepAliveRequests 0
StartServers 2
ThreadsPerChild 25
DocumentRoot $scratch/www
END
}
apache event >"$scratch/event"
apache worker >"$scratch/worker"
cat >"$scratch/varnish.vcl" <<'END'
vcl 4.1;
backend default none;
sub vcl_recv { return (synth(200, "OK")); }
END
cat >"$scratch/h2o" <<END
listen: 8080
user: nobody
num-threads: 2
hosts:
  default:
    paths:
      /:
        file.dir: $scratch/www
END
cat >"$scratch/lighttpd" <<END
server.document-root = "$scratch/www"
server.port = 8080
index-file.names = ("index.html")
server.max-keep-alive-requests = 100000000
END
cat >"$scratch/page.py" <<'END'
def page(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain'), ('Content-Length', '6')])
    return [b'hello\n']
END
echo "run lambda { |env| [200, { 'Content-Type' => 'text/plain' }, [\"hello\n\"]] }" >"$scratch/page.ru"
node='require("http").createServer((request, answer) => answer.end("hello\n")).listen(8080)'

# Names, and how each is started in the scratch directory.
servers=(
    "haproxy, 2 threads|haproxy -db -f $scratch/haproxy"
    "apache2, mpm_event|apache2 -DFOREGROUND -f $scratch/event"
    "apache2, mpm_worker|apache2 -DFOREGROUND -f $scratch/worker"
    "varnish|varnishd -F -a :8080 -f $scratch/varnish.vcl -n $scratch/varnish -p thread_pools=2"
    "h2o, 2 threads|h2o -c $scratch/h2o"
    "lighttpd|lighttpd -D -f $scratch/lighttpd"
    "gunicorn, 2 workers of 4 threads|gunicorn -w 2 -k gthread --threads 4 -b 0.0.0.0:8080 page:page"
    "waitress, 8 threads|waitress-serve --port=8080 --threads=8 page:page"
    "puma, 8 threads|puma -t 8:8 -b tcp://0.0.0.0:8080 page.ru"
    "node|node -e '$node'"
)

# load ARGUMENTS...: requests a second.
load() {
    ip netns exec "$client" wrk -t2 -c32 -d"$seconds" "$@" http://10.53.0.1:8080/ | awk '
        /Requests\/sec/ { rate = $2 }
        /Non-2xx|Socket errors/ { print "threads.sh: " $0 > "/dev/stderr" }
        END { print int(rate) }'
}
# measure COMMAND PREFIX FILE: adds both rates of a fresh server to the file.
measure() {
    printf 'mount -t bpf bpf /sys/fs/bpf\ncd %q\nexec %s %s\n' "$scratch" "$2" "$1" >"$scratch/start"
    ip netns exec "$server" unshare --mount bash "$scratch/start" </dev/null >"$scratch/log" 2>&1 &
    local pid=$!
    for _ in $(seq 100); do
        ip netns exec "$client" wrk -t1 -c1 -d1 http://10.53.0.1:8080/ 2>/dev/null | grep -q "requests in" && break
        sleep 0.1
    done
    echo "$(load) $(load -H 'Connection: close')" >>"$3"
    ip netns pids "$server" | xargs --no-run-if-empty kill || true
    sleep 1
    ip netns pids "$server" | xargs --no-run-if-empty kill -KILL 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}
# median FILE COLUMN.
median() { awk -v column="$2" '{ print $column }' "$1" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

echo "| server | kernel, kept | sidestep run, kept | ratio | kernel, one for each | sidestep run, one for each | ratio |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
for entry in "${servers[@]}"; do
    name=${entry%%|*} command=${entry#*|}
    program=${command%% *}
    if [ "$wanted" != "  " ] && [[ "$wanted" != *" $program "* ]]; then continue; fi
    if ! command -v "$program" >/dev/null; then
        echo "$0: $program is not installed" >&2
        continue
    fi
    rm -f "$scratch/kernel" "$scratch/run"
    for _ in $(seq "$rounds"); do
        measure "$command" "" "$scratch/kernel"
        measure "$command" "$sidestep run --" "$scratch/run"
    done
    awk -v name="$name" -v a="$(median "$scratch/kernel" 1)" -v b="$(median "$scratch/run" 1)" \
        -v c="$(median "$scratch/kernel" 2)" -v d="$(median "$scratch/run" 2)" \
        'BEGIN { printf "| %s | %d | %d | %.2f | %d | %d | %.2f |\n", name, a, b, b / (a ? a : 1), c, d, d / (c ? c : 1) }'
done
