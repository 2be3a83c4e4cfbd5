#!/usr/bin/env bash
# Tests the package: its contents, an installation into an empty root, and its services under a systemd of their own (root).
# Usage: test.sh BINARIES, the directory of the binary and the library.
set -euo pipefail
binaries=$(realpath "$1")
cd "$(dirname "$0")"

scratch=$(mktemp -d)
end() {
    [ -z "${system:-}" ] || { kill "$system" && wait "$system" || true; }
    rm -rf "$scratch"
}
trap end EXIT

fail() {
    echo "packaging: FAILED: $*" >&2
    exit 1
}

# contains TEXT WANTED
contains() {
    [[ $1 == *"$2"* ]] || fail "\"$2\" is not in: $1"
}

# Nobody downloads this package: compressing it saves nothing.
package=$(DPKG_DEB_COMPRESSOR_TYPE=none ./deb.sh "$binaries" "$scratch")
contents=$(dpkg-deb --contents "$package")
for file in usr/bin/sidestep usr/lib/sidestep/libsidestep_preload.so usr/lib/sysusers.d/sidestep.conf \
    usr/lib/systemd/system/sidestep-dns.service usr/lib/systemd/system/sidestep-run@.service; do
    contains "$contents" " ./$file"
done
expected=$'/etc/sidestep/dns.toml\n/etc/sidestep/run/nginx.env\n/etc/sidestep/zones/localhost.zone'
[ "$(dpkg-deb --info "$package" conffiles)" = "$expected" ] || fail "other configuration files than $expected"

# Configuration that is there stays.
install -D /dev/null "$scratch/again/etc/sidestep/dns.toml"
make --silent --directory .. install BINARIES="$binaries" DESTDIR="$scratch/again" PREFIX=/opt/sidestep
[ ! -s "$scratch/again/etc/sidestep/dns.toml" ] || fail "make install overwrote dns.toml"
contains "$(cat "$scratch/again/opt/sidestep/lib/systemd/system/sidestep-dns.service")" "ExecStart=/opt/sidestep/bin/sidestep "

# An empty root.
root=$scratch/root
mkdir -p "$root"/var/lib/dpkg/{info,updates,triggers}
touch "$root/var/lib/dpkg/status"
dpkg --root="$root" --force-script-chrootless --force-depends --install "$package" >"$scratch/dpkg" 2>&1 ||
    fail "$(cat "$scratch/dpkg")"
contains "$(cat "$root/etc/passwd")" "sidestep:"
contains "$("$root/usr/bin/sidestep" --version)" "sidestep "
contains "$("$root/usr/bin/sidestep" dns check --config "$root/etc/sidestep/dns.toml")" "zone localhost. serial 1"

# A system.
./boot.sh "$package" >"$scratch/boot" 2>&1 &
system=$!

# inside LINE: runs a line of shell there.
inside() {
    nsenter --target "$init" --mount --uts --ipc --net --pid --cgroup --root --wd -- sh -c "$1"
}

# wait_for COMMAND...: until it succeeds.
wait_for() {
    local tries
    for tries in {1..600}; do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "this does not succeed: $*: $(cat "$scratch/boot"; inside "journalctl --no-pager | tail -30")"
}

has_systemd() {
    init=$(sed -n 's/^systemd //p' "$scratch/boot") && [[ $(readlink "/proc/$init/exe") == */systemd ]]
}

localhost_is() {
    [ "$(inside "dig @127.0.0.1 -p 5300 +short +tries=1 localhost A")" = "$1" ]
}

wait_for has_systemd
wait_for inside "systemctl is-system-running --wait | grep -E 'running|degraded'"
inside "systemd-analyze verify sidestep-dns.service sidestep-run@nginx.service"
inside "systemctl start sidestep-dns"
wait_for localhost_is 127.0.0.1
contains "$(inside 'ps -o user= -p $(systemctl show --property MainPID --value sidestep-dns)')" sidestep
inside "sed -i s/127.0.0.1/127.0.0.2/ /etc/sidestep/zones/localhost.zone && systemctl reload sidestep-dns"
wait_for localhost_is 127.0.0.2

# An interface, with the capabilities of the unit.
inside "ip link add veth0 type veth peer name veth1 && ip address add 10.9.0.1/24 dev veth0"
inside "ip link set veth0 up && ip link set veth1 up"
inside "sed -i 's/^#device = .*/device = \"veth0\"/' /etc/sidestep/dns.toml && systemctl restart sidestep-dns"
wait_for inside "ip link show veth0 | grep prog/xdp"
inside "systemctl stop sidestep-dns"
[ "$(inside "systemctl show --property Result --value sidestep-dns")" = success ] || fail "sidestep-dns ends badly"

inside "systemctl start sidestep-run@nginx"
wait_for inside "curl --silent --fail http://127.0.0.1/"
wait_for inside "sidestep status | grep '0.0.0.0:80 .*accelerated'"
inside "systemctl stop sidestep-run@nginx"
[ "$(inside "systemctl show --property Result --value sidestep-run@nginx")" = success ] || fail "sidestep-run@nginx ends badly"
echo "packaging: ok"
