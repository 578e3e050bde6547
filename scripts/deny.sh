#!/usr/bin/env bash
# Checks the dependencies with cargo-deny against deny.toml; installs it, outside the source tree, where missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=0.20.2
root=${XDG_CACHE_HOME:-$HOME/.cache}/longhaul/cargo-deny-$version
if [ ! -x "$root/bin/cargo-deny" ]; then
    # Without optimisation: it builds in a third of the time and still runs in a second.
    env -u CARGO_TARGET_DIR cargo install --quiet --locked --root "$root" --profile dev \
        --config profile.dev.debug=false cargo-deny --version $version
fi
deny() { "$root/bin/cargo-deny" --log-level error check --hide-inclusion-graph "$@"; }

deny licenses bans sources

# The advisories are a git repository, which not every machine can reach. That is no fault of what is checked.
database=https://github.com/RustSec/advisory-db
if GIT_TERMINAL_PROMPT=0 timeout 30 git ls-remote -q $database HEAD >/dev/null 2>&1; then
    deny advisories
elif [ "${CI:-}" = true ]; then
    cat <<EOF
WARNING: SECURITY ADVISORIES WERE NOT CHECKED: $database cannot be reached from here.
WARNING: That the rest passes says nothing about them. With a network: scripts/deny.sh
EOF
else
    echo "advisories: skipped: $database cannot be reached from here"
fi
