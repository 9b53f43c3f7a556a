#!/bin/sh
# Builds the agent as users get it, puts it into DIRECTORY, and refuses one that is too large: the agent is carried into
# every guest and over every ssh link. Usage: agent.sh [DIRECTORY]    by default where cargo puts optimized programs
set -eu
host=$(rustc --print host-tuple)
target=$(echo "$host" | sed 's/-gnu$/-musl/')
# It has 2.32 MB (docs/benchmarks.md, docs/decisions/25-agent-with-musl.md).
most=2500000

# Without this target the agent is linked with glibc, which makes it a third larger
# (docs/decisions/25-agent-with-musl.md).
has_target() {
    [ -d "$(rustc --print target-libdir --target "$target")" ]
}
if ! has_target && ! rustup target add "$target"; then
    echo "agent: Rust's target $target is missing, so the agent is linked with glibc; it works, but is larger" >&2
    target=$host
    most=3700000
fi

# The addresses that the program adjusts when it starts are packed (DT_RELR): a byte or two each instead of 24. musl does
# that since 1.2.4, and Rust brings 1.2.5. A linker that doesn't know the option warns and does without.
# Tables for unwinding are left out. glibc looks for them at the start.
case $target in
*-musl) set -- "${1-}" -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,-T,scripts/agent.ld ;;
*) set -- "${1-}" ;;
esac
directory=${1:-target/$host/release}
shift
cargo rustc --locked --profile agent --package vtax-agent --bin vtax-agent --target "$target" -- "$@"
agent=target/$target/agent/vtax-agent
size=$(wc -c <"$agent")
if [ "$size" -ge "$most" ]; then
    echo "$agent has $size bytes, and $most are too many: find what grew with nm --size-sort" >&2
    exit 1
fi
mkdir -p "$directory"
ln -f "$agent" "$directory/vtax-agent"
