#!/bin/sh
# Installs the programs, their manual pages, completions and licences in a directory.
# Usage: install.sh VTAX AGENT DIRECTORY    DIRECTORY is /usr/local, or the usr of a package
set -eu
vtax=$1
agent=$2
to=$3
cd "$(dirname "$0")/.."

install -D "$vtax" "$to/bin/vtax"
install -D "$agent" "$to/bin/vtax-agent"
# For users of Oracle's ldm. It isn't in the PATH, because other programs have this name, too.
install -d "$to/libexec/vtax"
ln -sf ../../bin/vtax "$to/libexec/vtax/ldm"
install -D -m 644 scripts/vtax-domains.service "$to/lib/systemd/system/vtax-domains.service"
share=$to/share
"$vtax" man --dir "$share/man/man1"
for shell in bash:bash-completion/completions/vtax zsh:zsh/site-functions/_vtax fish:fish/vendor_completions.d/vtax.fish; do
    file=$share/${shell#*:}
    install -d "$(dirname "$file")"
    "$vtax" completions "${shell%%:*}" >"$file"
done
install -D -m 644 -t "$share/doc/vtax" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT crates/vtax-plot/LICENCES.txt
