#!/bin/sh
# Rebuilds the drawing library of vtax-plot: the bundles for QuickJS and for pages, the font, and their licences.
# Requires node, npm and python3, and the registries of npm and PyPI. Building vtax needs none of them: the results are
# committed. Versions are pinned in crates/vtax-plot/js/package.json, its lock file, and below.
# Usage: vega.sh
set -eu

cd "$(dirname "$0")/../crates/vtax-plot/js"
npm ci --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet fonttools==4.68.0 brotli==1.2.1

mkdir -p ../bundle ../fonts
"$tools/bin/python" font.py
node build.mjs
ls -l ../bundle ../fonts
