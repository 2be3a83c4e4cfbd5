#!/usr/bin/env bash
# Makes a Debian package of what was built. Usage: deb.sh [BINARIES [OUTPUT]]; BINARIES is the directory of the binary and the library,
# OUTPUT where the package goes. Prints the package's path.
set -euo pipefail
output=$(realpath "${2:-target}")
binaries=$(realpath "${1:-target/release}")
cd "$(dirname "$0")"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
DESTDIR=$stage PREFIX=/usr SYSCONFDIR=/etc ./install.sh "$binaries"
strip --strip-debug "$stage/usr/bin/sidestep" "$stage/usr/lib/sidestep/libsidestep_preload.so"

documentation=$stage/usr/share/doc/sidestep
install -D -m 644 debian/copyright "$documentation/copyright"
gzip -9 -n <../CHANGELOG.md >"$documentation/changelog.gz"

# The newest version of the C library whose symbols are used.
libc=$(objdump -T "$stage/usr/bin/sidestep" "$stage/usr/lib/sidestep/libsidestep_preload.so" |
    grep -o 'GLIBC_[0-9.]*' | sort -V | tail -1)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' ../Cargo.toml)
architecture=$(dpkg --print-architecture)

install -d "$stage/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@LIBC@/${libc#GLIBC_}/" \
    debian/control.in >"$stage/DEBIAN/control"
install -m 755 debian/postinst debian/prerm debian/postrm "$stage/DEBIAN"
(cd "$stage" && find etc -type f -printf '/%p\n' | sort) >"$stage/DEBIAN/conffiles"
(cd "$stage" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"

package=$output/sidestep_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$stage" "$package" >/dev/null
echo "$package"
