#!/bin/sh
# Builds the documentation of all crates. rustdoc needs the checked dependencies of each crate: they are checked in the
# same way as by `cargo clippy -- -D warnings`, so that cargo reuses what it has checked instead of checking it again.
# CLIPPY_ARGS is how cargo-clippy passes these arguments to its driver. If that changes, everything is just checked twice.
set -eu
driver=$(rustc --print sysroot)/bin/clippy-driver
if [ -x "$driver" ]; then
    export RUSTC_WORKSPACE_WRAPPER="$driver"
    export CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
fi
cargo doc --locked --workspace --no-deps --document-private-items
