#!/bin/sh
# Installs what vtax needs on Debian or Ubuntu and this machine lacks.
# Usage: setup.sh build|test|bench
set -eu

packages_for() {
    case $1 in
    build) echo "gcc libc6-dev" ;;
    test) echo "gcc libc6-dev openssh-server openssh-client python3 python3-venv python3-pip iperf3 sockperf qperf" ;;
    bench) echo "gcc libc6-dev iperf3 sockperf qperf iproute2 strace" ;;
    *) echo "usage: setup.sh build|test|bench" >&2; exit 2 ;;
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
    apt-get update -qq
    # openssh-server is for tests, which start a server of their own: none is to run beside them.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "setup: there is no cargo; install Rust 1.95 or later with rustup and run this again" >&2
        exit 69
    fi
}

# The other implementation of HdrHistogram that crates/vtax-model/tests/interop.rs compares ours with.
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
    echo "setup: not Debian or Ubuntu; make sure that you have the likes of: $wanted" >&2
fi
need_rust
[ "$1" != test ] || interop_environment
