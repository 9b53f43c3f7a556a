#!/bin/sh
# Runs the fuzz targets with libFuzzer, which traces the code that each input reaches. Saves a selection of the inputs
# that reach new code as the corpus (tests/corpus). Requires a C++ compiler and stable Rust.
# Usage: fuzz.sh RUNS [TARGET...]    a target is the end of a test's name, e.g. fuzz_studies
set -eu

runs=$1
shift
cd "$(dirname "$0")/.."

# LLVM's names for the options that `cargo fuzz` passes to a nightly compiler.
coverage="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    coverage="$coverage -Cllvm-args=-sanitizer-coverage-$option"
done
export RUSTFLAGS="--cfg fuzzing $coverage"
export CARGO_INCREMENTAL=0
# Targets write their files to memory, which is up to ten times faster.
[ ! -d /dev/shm ] || export TMPDIR=/dev/shm

# Limits of a target's corpus in the repository: number of inputs, bytes per input, bytes in total.
inputs=32
longest=4096
most=12288

# The lines `Executable unittests src/lib.rs (PROGRAM)`.
programs() {
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$1"
}

targets_of() {
    "$1" --list --format terse 2>/dev/null | sed -n 's/^\(.*fuzz_[a-z_]*\): test$/\1/p'
}

wanted() {
    name=$1
    shift
    [ $# != 0 ] || return 0
    for wish in "$@"; do
        case $name in *"$wish") return 0 ;; esac
    done
    return 1
}

# Copies inputs of all sizes to the corpus. After the merge, each input reaches code that the others don't.
keep() {
    folder=$1
    into=tests/corpus/$(basename "$folder")
    rm -rf "$into"
    mkdir -p "$into"
    find "$folder" -type f ! -name 'seed-*' -size -$((longest + 1))c -printf '%s %f\n' | sort -n >target/fuzz/merged.list
    step=$((($(wc -l <target/fuzz/merged.list) + inputs - 1) / inputs))
    left=$most
    awk -v step="$step" 'NR % step == 0' target/fuzz/merged.list | while read -r size file; do
        [ "$size" -le "$left" ] || break
        left=$((left - size))
        cp "$folder/$file" "$into/"
    done
}

mkdir -p target/fuzz
log=target/fuzz/build.log
# Only crates with targets, because the tests of others aren't linked with libFuzzer.
packages=$(grep -l '^vtax-fuzz' crates/*/Cargo.toml | sed 's|crates/\(.*\)/Cargo.toml|--package=\1|')
# shellcheck disable=SC2086
if ! cargo test --locked $packages --lib --bin vtax --profile fuzz --target-dir target/fuzz/build --no-run 2>"$log"; then
    cat "$log" >&2
    exit 1
fi
for program in $(programs "$log"); do
    for target in $(targets_of "$program"); do
        wanted "$target" "$@" || continue
        echo "fuzz: $target" >&2
        rm -rf target/fuzz/merged
        "$program" --exact "$target" --nocapture -- -runs="$runs" -print_final_stats=1
        "$program" --exact "$target" --nocapture -- -set_cover_merge=1 -use_counters=0
        keep target/fuzz/merged/*
    done
done
