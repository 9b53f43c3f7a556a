#!/bin/sh
# Reports wording that prose.txt refuses, as FILE:LINE:TEXT with a replacement, and fails if there is any.
# Usage: prose.sh
set -eu
cd "$(dirname "$0")/.."
list=scripts/prose.txt
found=$(mktemp)
trap 'rm -f "$found"' EXIT
tab=$(printf '\t')

# Snapshots follow the sources. The corpus and vendored files are not our prose.
in_scope() {
    git grep -nP -e "$1" -- '*.rs' '*.md' '*.toml' '*.sh' Makefile '*.js' \
        ':!tests/corpus' ':!scripts/prose.*' ':!crates/vtax-plot/js' ':!tests/browser/axe.min.js' || [ $? = 1 ]
}

excepted() {
    grep '^!' "$list" | while IFS="$tab" read -r file part; do
        case $1 in "${file#!}":*"$part"*) echo yes ;; esac
    done
}

grep -v '^#\|^!\|^$' "$list" | while IFS="$tab" read -r pattern instead; do
    in_scope "$pattern" | while IFS= read -r line; do
        [ -n "$(excepted "$line")" ] || printf '%s\n    instead: %s\n' "$line" "$instead"
    done
done >"$found"

if [ -s "$found" ]; then
    cat "$found"
    echo "prose: $(grep -c '^    instead:' "$found") lines; reword them, or name an exception in $list" >&2
    exit 1
fi
