#!/bin/sh
# Installs the missing packages that vtax needs on Debian or Ubuntu.
# Usage: setup.sh build|test|bench|fuzz|kernel|pods
set -eu

packages_for() {
    case $1 in
    build) echo "gcc libc6-dev" ;;
    test) echo "gcc libc6-dev openssh-server openssh-client python3 python3-venv python3-pip iperf3 sockperf qperf qemu-system-x86 busybox-static iproute2 chromium chromium-driver telnet expect fio syslinux mtools systemd podman crun netavark iptables nftables passt slirp4netns" ;;
    kernel) echo "" ;;
    pods) echo "gcc libc6-dev etcd-server containerd runc containernetworking-plugins busybox-static iproute2 nftables openssl python3" ;;
    fuzz) echo "gcc g++ libc6-dev" ;;
    bench) echo "gcc libc6-dev iperf3 sockperf qperf iproute2 strace qemu-system-x86 fio" ;;
    *) echo "usage: setup.sh build|test|bench|fuzz|kernel|pods" >&2; exit 2 ;;
    esac
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing_of() {
    for package in "$@"; do
        installed "$package" || echo "$package"
    done
}

install() {
    if [ "$(id -u)" != 0 ]; then
        echo "setup: these packages are missing: $*; install them as root: apt-get install $*" >&2
        exit 69
    fi
    refresh
    # shellcheck disable=SC2046
    # openssh-server is for tests, which start their own server; apt must not start another one.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(newest) "$@" >/dev/null
}

# The QEMU and kernel of Debian 12 have no SR-IOV NIC; its backports do. They are in the same archive as the other
# packages.
offer_backports() {
    # shellcheck disable=SC1091
    [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ] || return 0
    [ -z "$(newest)" ] || return 0
    archive=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' | sed -n 's/^bookworm //p' | head -n 1)
    [ -n "$archive" ] || { echo "setup: no bookworm archive in apt's sources, so no backports" >&2; exit 69; }
    echo "setup: adding bookworm-backports to apt's sources, for QEMU and a kernel for guests" >&2
    printf 'Types: deb\nURIs: %s\nSuites: bookworm-backports\nComponents: main\nSigned-By: %s\n' \
        "$archive" /usr/share/keyrings/debian-archive-keyring.gpg >/etc/apt/sources.list.d/vtax-backports.sources
    apt-get update -qq
}

newest() {
    ! apt-get indextargets --format '$(RELEASE)' | grep -qx bookworm-backports || echo "-t bookworm-backports"
}

# Unpacks a kernel for guests where vtax looks for one. Nothing is installed, and /boot isn't changed.
guest_kernel() {
    cache="${XDG_CACHE_HOME:-$HOME/.cache}/vtax/kernel"
    if [ "$(id -u)" = 0 ] && [ ! -e "$cache" ]; then
        refresh
    fi
    # shellcheck disable=SC2046
    package=$(apt-cache $(newest) depends linux-image-amd64 2>/dev/null |
        sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\).*/\1/p' | head -n 1)
    if [ -z "$package" ]; then
        echo "setup: package linux-image-amd64 not found; name a kernel with --kernel or VTAX_KERNEL" >&2
        exit 69
    fi
    [ ! -e "$cache/$package" ] || return 0
    unpacked=$(mktemp -d)
    # shellcheck disable=SC2046
    (cd "$unpacked" && apt-get download -qq -o APT::Sandbox::User=root $(newest) "$package" && dpkg -x "$package"_*.deb tree)
    touch "$unpacked/tree/$package"
    # Private whatever the umask, like a cache that vtax creates.
    (umask 077 && mkdir -p "$(dirname "$cache")")
    rm -rf "$cache"
    mv "$unpacked/tree" "$cache"
    rm -rf "$unpacked"
}

# apt reports its sources only after it has fetched their lists.
refresh() {
    apt-get update -qq
    offer_backports
}

need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "setup: cargo not found; install Rust 1.95 or later with rustup and run this again" >&2
        exit 69
    fi
}

# Installs another implementation of HdrHistogram, with which crates/vtax-model/tests/interop.rs compares ours.
interop_environment() {
    environment="$(dirname "$0")/../target/interop-venv"
    made_of="hdrhistogram==0.10.8"
    [ "$(cat "$environment/made-of" 2>/dev/null)" != "$made_of" ] || return 0
    rm -rf "$environment"
    if ! python3 -m venv "$environment" ||
        ! "$environment/bin/pip" install --quiet --disable-pip-version-check "$made_of"; then
        echo "setup: cannot install $made_of with pip into $environment: see above" >&2
        exit 69
    fi
    echo "$made_of" >"$environment/made-of"
}

wanted=$(packages_for "${1:-}")
if command -v dpkg-query >/dev/null; then
    # shellcheck disable=SC2086 # a list of words
    missing=$(missing_of $wanted)
    # shellcheck disable=SC2086
    [ -z "$missing" ] || install $missing
else
    echo "setup: not Debian or Ubuntu; install the equivalents of: $wanted" >&2
fi
need_rust
case $1 in
test)
    interop_environment
    guest_kernel
    ;;
kernel | bench) guest_kernel ;;
esac
