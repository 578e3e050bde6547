#!/usr/bin/env bash
# Makes the archive of a program for a target: program, manuals, completions, licences.
#
#   scripts/dist.sh PROGRAM TARGET OUT_DIR
set -euo pipefail
[ $# = 3 ] || { echo "usage: $0 PROGRAM TARGET OUT_DIR" >&2; exit 64; }
program=$(realpath "$1") target=$2 out=$3
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=longhaul-$version-$target
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$name
install -D -m 755 "$program" "$root/bin/longhaul"
strip --strip-unneeded "$root/bin/longhaul"
install -d "$root/share/man/man1" "$root/share/completions"
"$program" man "$root/share/man/man1"
for shell in bash zsh fish; do "$program" completions $shell > "$root/share/completions/longhaul.$shell"; done
install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$root"
mkdir -p "$out"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
tar --create --gzip --file "$out/$name.tar.gz" --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime "@$epoch" "$name"
echo "$out/$name.tar.gz"
