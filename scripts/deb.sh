#!/bin/sh
# Builds a Debian package. The programs are statically linked, so it has no dependencies.
# Usage: deb.sh VTAX AGENT DIRECTORY    the package is DIRECTORY/vtax_VERSION_ARCHITECTURE.deb
set -eu
vtax=$(realpath "$1")
agent=$(realpath "$2")
folder=$(realpath "$3")
cd "$(dirname "$0")/.."
version=$("$vtax" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
sh scripts/install.sh "$vtax" "$agent" "$tree/usr"
gzip --best --no-name "$tree"/usr/share/man/man1/*.1
docs=$tree/usr/share/doc/vtax
mv "$docs/CHANGELOG.md" "$docs/changelog"
gzip --best --no-name "$docs/changelog"
{
    echo "vtax is licensed under the Apache License, version 2.0, or the MIT licence, at your option."
    echo "Reports contain parts of other projects; their licences are in LICENCES.txt."
    echo
    cat LICENSE-MIT
    echo
    echo "The Apache License is in /usr/share/common-licenses/Apache-2.0."
} >"$docs/copyright"
rm "$docs/LICENSE-APACHE" "$docs/LICENSE-MIT"

mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: vtax
Version: $version
Architecture: $architecture
Maintainer: The vtax developers <vtax@localhost>
Section: net
Priority: optional
Installed-Size: $(du -sk "$tree/usr" | cut -f1)
Recommends: openssh-client, qemu-system-x86
Suggests: iperf3, libvirt-clients
Description: network and disk overhead of virtualization
 vtax measures latency, bandwidth and CPU time of the methods that attach a
 guest or a zone to a network, on your own machine, with real packets. It
 reports confidence intervals and detection limits.
CONTROL
dpkg-deb --root-owner-group --build "$tree" "$folder/vtax_${version}_$architecture.deb" >/dev/null
echo "$folder/vtax_${version}_$architecture.deb"
