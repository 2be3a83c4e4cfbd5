#!/usr/bin/env bash
# Installs what one purpose needs on Debian, says so first, and installs nothing else:
#   scripts/setup.sh build | demo | bench | test | docs       default: test, which includes those before it; docs includes all
# Servers that it installs are not started, now or at boot: the laboratory starts its own.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-test}
# clang compiles the XDP program against the headers of libbpf; gcc links.
build=(gcc libc6-dev clang libbpf-dev make)
# The laboratory; nginx and the DNS servers that Sidestep is compared with; the clients that load them.
demo=(iproute2 ethtool iputils-ping procps openssl nginx nsd knot knot-dnsutils bind9-dnsutils curl wrk)
# More servers, resolvers and clients to measure; valgrind counts instructions; BIND's tools sign zones;
# Knot's module answers by network.
bench=(redis-server sockperf valgrind bind9-utils bind9 unbound pdns-recursor knot-resolver
    knot-module-geoip)
# DPDK and its virtual ports.
dpdk=(libdpdk-dev pkg-config)
# Programs that `sidestep run` is tried with, and their clients (docs/programs.md); tools that the tests use.
test=(haproxy memcached libmemcached-tools postgresql wget iperf3 openssh-server openssh-client python3-venv
    libpython3.11-testsuite nodejs openjdk-17-jdk-headless dnsmasq-base bpftool nftables tcpdump systemd fstrm-bin
    softhsm2 etcd-server etcd-client)

# scripts/audit-picture.sh and scripts/instruments-pictures.sh take pictures of reports.
docs=(chromium pngquant)

case $purpose in
    build) packages=("${build[@]}") ;;
    demo) packages=("${build[@]}" "${demo[@]}") ;;
    bench) packages=("${build[@]}" "${demo[@]}" "${bench[@]}") ;;
    test) packages=("${build[@]}" "${demo[@]}" "${bench[@]}" "${dpdk[@]}" "${test[@]}") ;;
    docs) packages=("${build[@]}" "${demo[@]}" "${bench[@]}" "${dpdk[@]}" "${test[@]}" "${docs[@]}") ;;
    *)
        echo "usage: scripts/setup.sh [build | demo | bench | test | docs]" >&2
        exit 2
        ;;
esac

is_installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Python packages that Debian lacks or has too old. They go into the target directory, and `cargo clean` removes them.
install_python_packages() {
    local python_packages=(aioquic==1.2.0 uvloop==0.21.0) directory=target/programs/python
    local stamp="$directory/.installed"
    [ "$(cat "$stamp" 2>/dev/null)" = "${python_packages[*]}" ] && return
    echo "setup: installing with pip into $directory: ${python_packages[*]}"
    rm -rf "$directory"
    mkdir -p "$(dirname "$directory")"
    /usr/bin/python3 -m venv "$directory"
    "$directory/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}"
    echo "${python_packages[*]}" >"$stamp"
}

# Installs the Debian packages that the arguments name.
install_packages() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: only root can install packages, and sudo is missing. Install as root: $*" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    echo "setup: installing with apt-get for $purpose: $*"

    # Debian starts a server as soon as it is installed, unless this file forbids it (invoke-rc.d(8)).
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        echo "setup: while apt-get runs, $policy keeps it from starting servers; setup removes the file afterwards"
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        # shellcheck disable=SC2064 # Expanded now: the names are local.
        trap "${as_root[*]} rm -f $policy" EXIT
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq --yes --no-install-recommends "$@" >/dev/null

    # Keep systemd from starting, at boot, the servers that were just installed.
    [ -d /run/systemd/system ] || return 0
    local package service
    for package in nsd knot nginx haproxy redis-server memcached postgresql openssh-server bind9 unbound pdns-recursor knot-resolver \
        etcd-server; do
        if [[ " $* " == *" $package "* ]]; then
            case $package in
                openssh-server) service=ssh ;;
                bind9) service=named ;;
                knot-resolver) service=kresd@1 ;;
                etcd-server) service=etcd ;;
                *) service=$package ;;
            esac
            echo "setup: disabling the service $service"
            "${as_root[@]}" systemctl disable --quiet "$service"
        fi
    done
}

if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing: install a Rust toolchain first (https://rustup.rs)" >&2
    exit 1
fi
if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is not Debian: install the programs of these Debian packages yourself: ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
case $purpose in test | docs) install_python_packages ;; esac
echo "setup: everything for $purpose is installed"
