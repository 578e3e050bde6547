#!/usr/bin/env bash
# Fetches a file from two servers of 400 Mbit/s each at once, three times in each order: one far, at an RTT of 60 ms, the other
# behind a loopback of that rate.
#
#   scripts/mirrors.sh PATH-TO-LONGHAUL      as root, with jq; about 4 minutes; MIRRORS_MIB sets the file's size
set -euo pipefail

die() { echo "mirrors: $*" >&2; exit 1; }

# Runs on the client of the path.
client() {
    local far="http://$LAB_SERVER:8080/data" here=http://127.0.0.1:8081/data order url tries=100
    ip link set lo mtu 1500
    tc qdisc add dev lo root tbf rate 400mbit burst 128kb latency 100ms
    "$LONGHAUL" serve "$MIRRORS_DIR/data" --listen 127.0.0.1:8081 2>"$MIRRORS_DIR/here.log" &
    # The namespace ends with this shell, its processes do not.
    trap 'kill %1' EXIT
    for url in "$far" "$here"; do
        until curl -sSf -m 5 -o /dev/null -I "$url" 2>"$MIRRORS_DIR/wait"; do
            ((tries--)) || die "$url does not answer: $(cat "$MIRRORS_DIR/wait")"
            sleep 0.1
        done
    done
    for order in "$far $here" "$here $far" "$far $here" "$here $far" "$far $here" "$here $far"; do
        read -r first second <<<"$order"
        rm -f "$MIRRORS_DIR/copy"
        sync
        "$LONGHAUL" get --no-memory --json -o "$MIRRORS_DIR/copy" --mirror "$second" "$first" >"$MIRRORS_DIR/events"
        cmp "$MIRRORS_DIR/data/data" "$MIRRORS_DIR/copy"
        jq -r --arg first "$first" 'select(.event == "done") | .goodput_bps
            | "\($first) first: \(. / 1e6 | round) Mbit/s, \(. / 8e5 | round / 1e3) of both"' "$MIRRORS_DIR/events"
    done
}

main() {
    export LONGHAUL MIRRORS_DIR
    LONGHAUL=$(realpath -e "${1:?usage: mirrors.sh PATH-TO-LONGHAUL}")
    # Next to the program: on a disk, which /tmp often is not.
    MIRRORS_DIR=$(mktemp -d "$(dirname "$LONGHAUL")/mirrors.XXXXXX")
    trap 'rm -rf "$MIRRORS_DIR"' EXIT
    mkdir "$MIRRORS_DIR/data"
    head -c "${MIRRORS_MIB:-2048}M" /dev/urandom >"$MIRRORS_DIR/data/data"
    sync "$MIRRORS_DIR/data/data"
    # shellcheck disable=SC2016 # LAB_SERVER is known there, not here.
    "$LONGHAUL" lab exec --rate 400Mbit --rtt 60ms --queue 3MB \
        --server 'exec "$LONGHAUL" serve "$MIRRORS_DIR/data" --listen "$LAB_SERVER:8080" 2>"$MIRRORS_DIR/server.log"' \
        --server-port 8080 -- "$(realpath "$0")" --client
}

if [ "${1:-}" = --client ]; then client; else main "$@"; fi
