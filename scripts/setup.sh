#!/usr/bin/env bash
# Installs what building, testing and the laboratory need on Debian, says so first, and installs nothing else.
# Servers that it installs are not started, now or at boot: the laboratory starts its own.
set -euo pipefail
cd "$(dirname "$0")/.."

# clang, libbpf-dev: the XDP program. nsd, knot, knot-dnsutils, bind9-dnsutils: who Sidestep is compared with, and who
# asks. curl, wrk, nginx: clients of the examples, and a server to compare them with. iproute2, ethtool, iputils-ping,
# tcpdump, procps: the laboratory. valgrind: instruction counts.
packages=(clang libbpf-dev nsd knot knot-dnsutils bind9-dnsutils curl nginx wrk iproute2 ethtool iputils-ping tcpdump valgrind procps make)
# Programs that `sidestep run` is tried with, and their clients (docs/programs.md).
packages+=(haproxy redis-server memcached libmemcached-tools postgresql wget iperf3 sockperf openssl openssh-server openssh-client)
packages+=(python3-venv libpython3.11-testsuite nodejs openjdk-17-jdk-headless dnsmasq-base bpftool nftables)

is_installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if ! command -v cargo >/dev/null; then
    echo "setup: there is no cargo: install a Rust toolchain first (https://rustup.rs)" >&2
    exit 1
fi
if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is not Debian: install what these Debian packages hold: ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
done
# What Debian does not have, or not with what is needed: beside what cargo builds, and gone with it.
tools=target/programs
python_packages=(aioquic==1.2.0 uvloop==0.21.0)

install_tools() {
    local stamp="$tools/python/.installed"
    [ "$(cat "$stamp" 2>/dev/null)" = "${python_packages[*]}" ] && return
    echo "setup: installing with pip into $tools/python: ${python_packages[*]}"
    rm -rf "$tools/python"
    mkdir -p "$tools"
    /usr/bin/python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}"
    echo "${python_packages[*]}" >"$stamp"
}

if [ ${#missing[@]} -eq 0 ]; then
    install_tools
    echo "setup: everything is installed"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: missing, and only root can install them: ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "setup: installing with apt-get: ${missing[*]}"

# Debian starts a server as soon as it is installed, unless this file says that it may not (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    echo "setup: $policy keeps apt-get from starting servers meanwhile; it is removed afterwards"
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null

# And at boot, where there is a systemd: only those that came just now.
if [ -d /run/systemd/system ]; then
    for package in nsd knot nginx haproxy redis-server memcached postgresql openssh-server; do
        service=${package/openssh-server/ssh}
        if printf '%s\n' "${missing[@]}" | grep -qx "$package"; then
            echo "setup: disabling the $service service"
            "${as_root[@]}" systemctl disable --quiet "$service"
        fi
    done
fi
install_tools
echo "setup: done"
