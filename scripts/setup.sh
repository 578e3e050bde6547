#!/usr/bin/env bash
# Installs what Longhaul needs on Debian 12: the pinned Rust toolchain and packages. Quick when all is there.
#
#   scripts/setup.sh build   what compiles it
#   scripts/setup.sh demo    and what `make demo` runs
#   scripts/setup.sh demo-browser
#                            and what `make demo-browser` runs
#   scripts/setup.sh browser and what builds the browser extension
#   scripts/setup.sh static  and what links it without shared libraries
#   scripts/setup.sh cross   and what compiles it for aarch64, and runs its tests
#   scripts/setup.sh test    and what the tests and benchmarks run
#
# System packages need root or sudo. No service is started, now or at the next boot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(gcc libc6-dev make ca-certificates)
# A target besides the host's.
target=
# Another Node.js than Debian's brings its own npm, and excludes Debian's.
node=()
command -v npm >/dev/null || node=(nodejs npm)
case "${1:-}" in
    build) ;;
    demo) packages+=(curl iproute2) ;;
    demo-browser) packages+=(curl iproute2 firefox-esr "${node[@]}") ;;
    browser) packages+=("${node[@]}") ;;
    static) packages+=(musl-tools) target=$(uname -m)-unknown-linux-musl ;;
    cross) packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user) target=aarch64-unknown-linux-gnu ;;
    test) packages+=(curl iproute2 git openssl nginx-light apache2-bin iperf3 fio util-linux e2fsprogs bsdutils mount tcpdump axel aria2
        ns2 lighttpd webfs
        globus-gridftp-server-progs globus-gass-copy-progs globus-proxy-utils proftpd-basic proftpd-mod-crypto slurm-wlm munge postgresql
        faketime jq time
        libcap2 libpam0g libwrap0 # these three for vsftpd
        firefox-esr chromium fonts-ipafont-gothic python3-venv "${node[@]}") ;;
    *) echo "usage: $0 build|demo|demo-browser|browser|static|cross|test" >&2; exit 64 ;;
esac

die() { echo "setup: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
# Packages that bring a service, and its name.
services=(nginx-common:nginx lighttpd:lighttpd webfs:webfs globus-gridftp-server-progs:globus-gridftp-server
    globus-gridftp-server-progs:globus-gridftp-sshftp proftpd-core:proftpd
    slurmctld:slurmctld slurmd:slurmd munge:munge postgresql-common:postgresql)

# vsftpd and proftpd exclude each other as packages; the tests need both, so vsftpd's program is unpacked here.
vsftpd=/opt/longhaul-test/vsftpd

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

    local service new=()
    for service in "${services[@]}"; do
        installed "${service%:*}" || new+=("$service")
    done
    # Asked by invoke-rc.d before it starts a service; 101 forbids it.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
        as_root chmod 755 /usr/sbin/policy-rc.d
    fi
    as_root apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install --no-install-recommends "${missing[@]}"
    # A service that was not there before shall not run after the next boot either.
    for service in "${new[@]}"; do
        ! installed "${service%:*}" || as_root update-rc.d "${service#*:}" disable
    done
}

unpack_vsftpd() {
    [ ! -x $vsftpd ] && [ ! -x /usr/sbin/vsftpd ] && command -v dpkg-query >/dev/null || return 0
    echo "setup: unpacking vsftpd to $vsftpd"
    local dir; dir=$(mktemp -d)
    [ "$(id -u)" != 0 ] || chown _apt "$dir"
    local download=(apt-get -q -o Acquire::Retries=3 download vsftpd)
    # The package lists may be old, or gone, where nothing else had to be installed.
    if (cd "$dir" && { "${download[@]}" || { as_root apt-get -q update && "${download[@]}"; } } && dpkg-deb -x vsftpd_*.deb files); then
        as_root install -D -m 755 "$dir/files/usr/sbin/vsftpd" $vsftpd
    fi
    rm -r "$dir"
    [ -x $vsftpd ] || die "vsftpd could not be downloaded"
}

# What drives the browsers and builds the extension, by the versions in the lock files.
install_node_packages() {
    local folder lock
    for folder in "$@"; do
        lock=$folder/node_modules/.package-lock.json
        [ ! $lock -nt $folder/package-lock.json ] || continue
        echo "setup: installing the packages of $folder/"
        npm ci --prefix $folder --no-audit --no-fund --silent
        touch $lock
    done
}

# A client of aria2's JSON-RPC.
aria2p=/opt/longhaul-test/aria2p
install_aria2p() {
    ! $aria2p/bin/python -c 'import aria2p, websocket' 2>/dev/null || return 0
    echo "setup: installing aria2p to $aria2p"
    as_root python3 -m venv $aria2p
    as_root $aria2p/bin/pip -q install aria2p==0.12.3 websocket-client==1.9.2
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

# The standard library for the target; a toolchain without rustup must have it already.
install_target() {
    command -v rustup >/dev/null || return 0
    ! rustup target list --installed | grep -qx "$target" || return 0
    rustup target add "$target"
}

install_packages
if [ "$1" = test ]; then
    unpack_vsftpd
    install_node_packages dashboard browser
    install_aria2p
fi
case $1 in browser | demo-browser) install_node_packages browser ;; esac
install_toolchain
[ -z "$target" ] || install_target
