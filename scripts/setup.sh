#!/usr/bin/env bash
# Installs what Longhaul needs on Debian 12: the pinned Rust toolchain and packages. Quick when all is there.
#
#   scripts/setup.sh build   what compiles it
#   scripts/setup.sh demo    and what `make demo` runs
#   scripts/setup.sh test    and what the tests and benchmarks run
#
# System packages need root or sudo. No service is started, now or at the next boot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(gcc libc6-dev make ca-certificates)
case "${1:-}" in
    build) ;;
    demo) packages+=(curl iproute2) ;;
    test) packages+=(curl iproute2 git openssl nginx-light apache2-bin iperf3 fio util-linux e2fsprogs bsdutils mount axel aria2 ns2) ;;
    *) echo "usage: $0 build|demo|test" >&2; exit 64 ;;
esac

die() { echo "setup: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_packages() {
    command -v dpkg-query >/dev/null || { echo "setup: not Debian; make sure that these are there: ${packages[*]}"; return; }
    local missing=() package
    for package in "${packages[@]}"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "as root, run: apt-get install ${missing[*]}"
    echo "setup: installing ${missing[*]}"

    local had_nginx=no; ! installed nginx-common || had_nginx=yes
    # Asked by invoke-rc.d before it starts a service; 101 forbids it.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
        as_root chmod 755 /usr/sbin/policy-rc.d
    fi
    as_root apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}"
    # An nginx that was not there before shall not run after the next boot either.
    [ $had_nginx = yes ] || ! installed nginx-common || as_root update-rc.d nginx disable
}

install_toolchain() {
    local channel; channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
    command -v cargo >/dev/null || die "cargo is missing; install Rust from https://rustup.rs"
    if command -v rustup >/dev/null; then
        # Answers only where the toolchain and both components are there.
        if ! (rustup run "$channel" cargo clippy --version && rustup run "$channel" cargo fmt --version) >/dev/null 2>&1; then
            rustup toolchain install "$channel" --profile minimal --component clippy,rustfmt --no-self-update
        fi
    elif [ "$(printf '%s\n' "$channel" "$(cargo --version | cut -d' ' -f2)" | sort -V | head -n1)" != "$channel" ]; then
        die "$(cargo --version) is older than $channel; install Rust from https://rustup.rs"
    fi
}

install_packages
install_toolchain
