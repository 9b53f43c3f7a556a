#!/bin/sh
# Builds the documentation of all crates. For rustdoc, cargo first checks each crate's dependencies. It does so here in the
# same way as `cargo clippy -- -D warnings`, whose results it then reuses. CLIPPY_ARGS is how cargo-clippy passes arguments
# to its driver; if that format changes, the crates are merely checked twice.
set -eu
driver=$(rustc --print sysroot)/bin/clippy-driver
if [ -x "$driver" ]; then
    export RUSTC_WORKSPACE_WRAPPER="$driver"
    export CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
fi
cargo doc --locked --workspace --no-deps --document-private-items
