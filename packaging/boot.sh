#!/usr/bin/env bash
# Boots systemd in namespaces of its own, on an overlay of this host's files in which a Debian package is installed (root).
#
# Usage: boot.sh PACKAGE. Prints `systemd PID`, and runs until it gets SIGTERM. Nothing stays: neither files nor mounts nor processes.
set -euo pipefail

# outside PACKAGE: the cgroup, the namespaces, and their end.
outside() {
    local package hierarchy tries
    package=$(realpath "$1")
    hierarchy=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)
    group=$hierarchy/sidestep-test-$$
    scratch=$(mktemp -d)
    mkdir "$group"
    trap end EXIT
    trap 'exit 0' TERM INT
    # systemd manages the cgroups below its own; it is there before it sees any as its root.
    bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
        unshare --fork --pid --mount --uts --ipc --net --cgroup "$0" --inside "$package" "$scratch" &
    namespaces=$!
    for tries in {1..200}; do
        init=$(pgrep --parent "$namespaces") && break
        sleep 0.05
    done
    echo "systemd $init"
    wait "$namespaces"
}

end() {
    local tries
    # The end of its first process is the end of a PID namespace.
    [ -z "${init:-}" ] || kill -KILL "$init" 2>/dev/null || true
    wait
    for tries in {1..100}; do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.05
    done
    rmdir "$scratch"
}

# inside PACKAGE SCRATCH: the files, and systemd.
inside() {
    local package=$1 scratch=$2 root=$2/root node
    mount --make-rprivate /
    mount -t tmpfs tmpfs "$scratch"
    mkdir "$scratch/upper" "$scratch/work" "$root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$root"
    cp "$package" "$root/package.deb"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" 2>/dev/null || {
        mount -t tmpfs tmpfs "$root/sys/fs/cgroup" && mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    }
    for directory in run tmp dev; do
        mount -t tmpfs tmpfs "$root/$directory"
    done
    chmod 1777 "$root/tmp"
    for node in "null 3" "zero 5" "random 8" "urandom 9"; do
        mknod -m 666 "$root/dev/${node% *}" c 1 "${node#* }"
    done
    mkdir "$root/dev/shm"
    ln -s /proc/self/fd "$root/dev/fd"

    # Nothing of this host starts there.
    rm -rf "$root"/etc/systemd/system/*.wants "$root/etc/fstab"
    echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
    chroot "$root" dpkg --force-depends --install /package.deb
    exec chroot "$root" env -i container=sidestep-test PATH="$PATH" \
        /lib/systemd/systemd --system --unit=basic.target --show-status=no </dev/null
}

case $1 in
    --inside) inside "$2" "$3" ;;
    *) outside "$1" ;;
esac
