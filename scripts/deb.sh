#!/usr/bin/env bash
# Makes a Debian package of a built program: the program, manuals, completions, systemd units, advice for sysctl.
#
#   scripts/deb.sh PROGRAM OUT_DIR
#
# Nothing is enabled, started or applied by installing it.
set -euo pipefail
[ $# = 2 ] || { echo "usage: $0 PROGRAM OUT_DIR" >&2; exit 64; }
program=$(realpath "$1") out=$2
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH=$epoch
maintainer="${DEBFULLNAME:-The Longhaul authors} <${DEBEMAIL:-longhaul@example.org}>"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
put() { install -D -m "$1" "$2" "$root$3"; }
compress() { gzip -9n "$@"; }

put 755 "$program" /usr/bin/longhaul
strip --strip-unneeded "$root/usr/bin/longhaul"

install -d "$root/usr/share/man/man1"
"$program" man "$root/usr/share/man/man1"
compress "$root"/usr/share/man/man1/*.1

for shell in bash zsh fish; do "$program" completions $shell > "$root/$shell"; done
put 644 "$root/bash" /usr/share/bash-completion/completions/longhaul
put 644 "$root/zsh" /usr/share/zsh/vendor-completions/_longhaul
put 644 "$root/fish" /usr/share/fish/vendor_completions.d/longhaul.fish
rm "$root"/{bash,zsh,fish}

put 644 packaging/longhaul-serve.service /lib/systemd/system/longhaul-serve.service
put 644 packaging/longhaul-serve.default /etc/default/longhaul-serve
put 644 packaging/longhaul-agent.service /usr/lib/systemd/user/longhaul-agent.service

doc=/usr/share/doc/longhaul
put 644 packaging/copyright $doc/copyright
put 644 README.md $doc/README.md
put 644 CHANGELOG.md $doc/CHANGELOG.md
{
    echo "longhaul ($version) unstable; urgency=medium"
    printf '\n  * What is new stands in CHANGELOG.md.\n\n'
    echo " -- $maintainer  $(date -R --utc --date "@$epoch")"
} > "$root$doc/changelog"
compress "$root$doc/changelog" "$root$doc/CHANGELOG.md"
put 644 packaging/90-longhaul.conf $doc/examples/90-longhaul.conf

# The oldest C library that has every symbol the program uses; a static one needs none.
glibc=$(objdump -T "$program" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1 || true)
depends=()
[ -z "$glibc" ] || depends=("Depends: libc6 (>= $glibc), libgcc-s1")

install -d "$root/DEBIAN"
printf '%s\n' /etc/default/longhaul-serve > "$root/DEBIAN/conffiles"
{
    echo "Package: longhaul"
    echo "Version: $version"
    echo "Architecture: $architecture"
    echo "Maintainer: $maintainer"
    echo "Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)"
    printf '%s\n' "${depends[@]}"
    echo "Recommends: ca-certificates"
    echo "Section: net"
    echo "Priority: optional"
    echo "Description: moves large files across long fat networks"
    echo " Fetches, sends and serves files over HTTP, FTP and GridFTP, with as many"
    echo " connections as pay, paced to what the path holds. Transfers resume, are"
    echo " verified, and end with what limited them."
} | grep -v '^$' > "$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
chmod 644 "$root"/DEBIAN/*
find "$root" -newermt "@$epoch" -exec touch --no-dereference --date "@$epoch" {} +

mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/longhaul_${version}_${architecture}.deb" >/dev/null
echo "$out/longhaul_${version}_${architecture}.deb"
