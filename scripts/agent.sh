#!/bin/sh
# Builds the release agent, copies it to DIRECTORY, and fails if it is too large: the agent is copied into every guest
# and over every SSH connection. Usage: agent.sh [DIRECTORY]    default: cargo's release directory
set -eu
host=$(rustc --print host-tuple)
target=$(echo "$host" | sed 's/-gnu$/-musl/')
# The agent's size is 2.32 MB (docs/benchmarks.md, docs/decisions/25-agent-with-musl.md).
most=2500000

# Without this target, the agent is linked with glibc and a third larger (docs/decisions/25-agent-with-musl.md).
has_target() {
    [ -d "$(rustc --print target-libdir --target "$target")" ]
}
if ! has_target && ! rustup target add "$target"; then
    echo "agent: Rust target $target is missing, so the agent is linked with glibc; it works, but is larger" >&2
    target=$host
    most=3700000
fi

# Relative relocations are packed (DT_RELR): one or two bytes each instead of 24. musl has supported that since 1.2.4,
# and Rust ships 1.2.5. A linker without this option prints a warning and ignores it.
# Unwind tables are omitted with musl only, because glibc looks for them at startup.
case $target in
*-musl) set -- "${1-}" -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,-T,scripts/agent.ld ;;
*) set -- "${1-}" ;;
esac
built=${CARGO_TARGET_DIR:-target}
directory=${1:-$built/$host/release}
shift
cargo rustc --locked --profile agent --package vtax-agent --bin vtax-agent --target "$target" -- "$@"
agent=$built/$target/agent/vtax-agent
size=$(wc -c <"$agent")
if [ "$size" -ge "$most" ]; then
    echo "$agent is too large: $size bytes, the limit is $most; find what grew with nm --size-sort" >&2
    exit 1
fi
mkdir -p "$directory"
ln -f "$agent" "$directory/vtax-agent"
