#!/usr/bin/env bash
# Installs what `make build` has built. Usage: install.sh [BINARIES]; BINARIES is the directory of the binary and the library.
# PREFIX (/usr/local) and SYSCONFDIR (/etc) say where, DESTDIR puts a directory in front of both. Configuration that is there stays.
set -euo pipefail
binaries=$(realpath "${1:-target/release}")
destination=${DESTDIR:+$(realpath -m "$DESTDIR")}
cd "$(dirname "$0")"

prefix=${PREFIX:-/usr/local}
sysconfdir=${SYSCONFDIR:-/etc}
zsh=${ZSH_FUNCTIONS:-$prefix/share/zsh/site-functions}

for file in sidestep libsidestep_preload.so; do
    [ -e "$binaries/$file" ] || { echo "install: $binaries/$file is missing: run make build first" >&2; exit 1; }
done
generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT
"$binaries/sidestep" generate "$generated"

# put MODE SOURCE TARGET
put() {
    install -D -m "$1" "$2" "$destination$3"
}

# unit NAME: with the paths of this installation.
unit() {
    sed -e "s|@BINDIR@|$prefix/bin|g" -e "s|@SYSCONFDIR@|$sysconfdir|g" "systemd/$1" >"$generated/unit"
    put 644 "$generated/unit" "$prefix/lib/systemd/system/$1"
}

# configuration FILE: unless there is one.
configuration() {
    [ -e "$destination$sysconfdir/sidestep/$1" ] || put 644 "etc/$1" "$sysconfdir/sidestep/$1"
}

put 755 "$binaries/sidestep" "$prefix/bin/sidestep"
put 644 "$binaries/libsidestep_preload.so" "$prefix/lib/sidestep/libsidestep_preload.so"
for page in "$generated"/man/*.1; do
    put 644 "$page" "$prefix/share/man/man1/$(basename "$page")"
done
put 644 "$generated/completions/sidestep.bash" "$prefix/share/bash-completion/completions/sidestep"
put 644 "$generated/completions/sidestep.fish" "$prefix/share/fish/vendor_completions.d/sidestep.fish"
put 644 "$generated/completions/_sidestep" "$zsh/_sidestep"
unit sidestep-dns.service
unit sidestep-run@.service
unit sidestep-broker.service
put 644 systemd/sysusers.conf "$prefix/lib/sysusers.d/sidestep.conf"
configuration dns.toml
configuration zones/localhost.zone
configuration run/nginx.env
