# shellcheck shell=bash
# For scripts that make pictures of real runs: a veth pair between two network namespaces of the script's own, `$server` with 10.53.0.1 and
# `$client` with 10.53.0.2, both with an interface eth0; and the built command, `$target/sidestep`. The script that reads this file has gone to
# the project's folder, and is root. All that it starts by `at` ends with it.

cargo build --quiet --package sidestep --bins
cargo build --quiet --package preload
target="${CARGO_TARGET_DIR:-$PWD/target}/debug"
export SIDESTEP_PRELOAD="$target/libsidestep_preload.so"
scratch=$(mktemp -d)
export SIDESTEP_RUNTIME_DIR="$scratch/run"
mkdir -m 755 "$SIDESTEP_RUNTIME_DIR"
server=ss-$$-pic-s client=ss-$$-pic-c
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
    echo "$0: never: $*" >&2
    cat "$scratch/log" >&2
    return 1
}

# With two queues each, of which one is in use.
queues=(numtxqueues 2 numrxqueues 2)
ip netns add "$server"
ip netns add "$client"
ip -n "$server" link add eth0 "${queues[@]}" type veth peer name eth0 "${queues[@]}" netns "$client"
ip -n "$server" addr add 10.53.0.1/24 dev eth0
ip -n "$client" addr add 10.53.0.2/24 dev eth0
for side in "$server" "$client"; do
    ip netns exec "$side" ethtool -L eth0 rx 1 tx 1
    ip -n "$side" link set eth0 up
    ip -n "$side" link set lo up
done
