#!/usr/bin/env bash
# Fetches one file with longhaul and with curl across the same emulated path, compares both copies
# with the original, and prints what each took.
#
#   scripts/demo.sh PATH-TO-LONGHAUL      DEMO_MIB sets the file's size
#
# `client` and the functions below it run on the client of the path; the rest outside.
set -euo pipefail

rate=10Gbit rtt=200ms port=8080
die() { echo "demo: $*" >&2; exit 1; }

# Runs a command for at most a minute; sets $seconds and $cpu (user + system time of the command).
stopwatch() {
    local TIMEFORMAT='%R %U %S' user system
    # The command keeps this terminal as its standard error (3): that is where it shows progress.
    { time timeout --foreground 60 "$@" 2>&3; } 3>&2 2>"$DEMO_DIR/time" || die "failed: $*"
    read -r seconds user system <"$DEMO_DIR/time"
    cpu=$(awk "BEGIN { print $user + $system }")
}

same() {
    cmp "$DEMO_DIR/site/data" "$1" || die "$1 differs from what was served"
    echo "The copy equals the original."
}

client() {
    local url="http://${LAB_SERVER:?}:$port/data" copy="$DEMO_DIR/copy" seconds cpu connect tries=100
    unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
    until connect=$(curl -sSf -m 5 -o /dev/null -I -w '%{time_connect}' "$url" 2>"$DEMO_DIR/wait"); do
        ((tries--)) || die "the server does not answer: $(cat "$DEMO_DIR/wait" "$DEMO_DIR/server.log")"
        sleep 0.1
    done
    echo "==> The server answers; a connection takes $connect s. longhaul get:"
    sync
    stopwatch "$LONGHAUL" get --no-memory "$url" -o "$copy"
    local longhaul=$seconds longhaul_cpu=$cpu
    same "$copy"

    echo "==> curl, on the same path:"
    rm "$copy"
    sync
    local meter=(); [ -t 2 ] || meter=(-sS)
    stopwatch curl "${meter[@]}" -f -o "$copy" "$url"
    local curl=$seconds curl_cpu=$cpu
    stopwatch sync "$copy"
    same "$copy"

    awk -v bytes="$(stat -c %s "$copy")" -v path="$DEMO_PATH" \
        -v l="$longhaul" -v lc="$longhaul_cpu" -v c="$curl" -v cc="$curl_cpu" -v flush="$seconds" '
        function row(name, s, cpu) {
            printf "  %-14s %8.2f s %8.2f Gbit/s %10.2f s %10.2f s\n", name, s, bytes * 8 / s / 1e9, cpu, cpu / bytes * 2^30
        }
        BEGIN {
            printf "\n%.2f GiB, disk to disk, one stream, %s\n\n", bytes / 2^30, path
            printf "  %-14s %10s %15s %12s %12s\n", "", "time", "goodput", "CPU", "CPU per GiB"
            row("longhaul get", l, lc)
            row("curl", c, cc)
            printf "  %-14s %9.2fx %14.2fx %11.2fx\n\n", "longhaul/curl", l / c, c / l, lc / cc
            printf "CPU is the client'\''s, user and system. The time of longhaul includes flushing the file to the\n"
            printf "disk (fsync); curl does not do that: flushing its copy took another %.2f s.\n", flush
            printf "One run of each; `make bench` repeats and alternates them.\n"
        }'
}

# Prints the size of the file in MiB: 4 GiB, or what memory, disk and time allow. It is written three
# times, for which there are 90 s.
choose_size() {
    local disk memory start end
    disk=$(df --output=avail -m "$DEMO_DIR" | tail -n1)
    memory=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
    start=$(date +%s%N)
    head -c 128M /dev/urandom >"$DEMO_DIR/site/data" && sync "$DEMO_DIR/site/data"
    end=$(date +%s%N)
    awk -v disk="$disk" -v memory="$memory" -v took=$(((end - start) / 1000000)) 'BEGIN {
        mib = 4096
        if (mib > disk / 3) mib = disk / 3
        if (mib > memory / 2) mib = memory / 2
        if (mib > 128 * 90000 / 3 / took) mib = 128 * 90000 / 3 / took
        print int(mib / 64) * 64
    }'
}

# Runs a command in the background, so that a signal to us is heard at once, and waits for it.
supervise() {
    "$@" 9>&- &
    child=$!
    local status=0
    wait $child || status=$?
    child=
    return $status
}
child=
clean_up() {
    trap '' INT TERM HUP
    if [ -n "$child" ] && kill -TERM "$child" 2>/dev/null; then wait "$child" || true; fi
    rm -rf "$DEMO_DIR"
}

main() {
    export LONGHAUL DEMO_DIR DEMO_PATH
    LONGHAUL=$(realpath -e "${1:?usage: demo.sh PATH-TO-LONGHAUL}")
    # Next to the program: on a disk, which /tmp often is not.
    DEMO_DIR=$(dirname "$LONGHAUL")/demo
    exec 9>"$DEMO_DIR.lock"
    flock -n 9 || die "another demo runs in $DEMO_DIR"
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # There only where the last demo was killed.
    rm -rf "$DEMO_DIR"
    mkdir -p "$DEMO_DIR/site"

    local mib=${DEMO_MIB:-$(choose_size)}
    [ "$mib" -ge 64 ] || die "too little free disk space or memory: 1 GiB of disk would do"
    echo "==> Writing $mib MiB of random data"
    head -c "${mib}M" /dev/urandom >"$DEMO_DIR/site/data"
    sync "$DEMO_DIR/site/data"

    local why
    if why=$(timeout 30 "$LONGHAUL" lab exec --rate $rate --rtt $rtt --hosts tuned -- true 2>&1); then
        echo "==> Bringing up a path of $rate, RTT $rtt, between two emulated hosts"
        DEMO_PATH="$rate, RTT $rtt, tuned hosts"
        # shellcheck disable=SC2016 # LAB_SERVER is known there, not here.
        supervise "$LONGHAUL" lab exec --rate $rate --rtt $rtt --hosts tuned \
            --server 'exec "$LONGHAUL" serve "$DEMO_DIR/site" --listen "$LAB_SERVER:'$port'" 2>"$DEMO_DIR/server.log"' -- "$(realpath "$0")" --client
    else
        echo "==> No emulated path here (TUN devices and namespaces are not permitted): on loopback instead."
        echo "    $why"
        DEMO_PATH="loopback, no delay: this shows the disk, not a long path"
        port=$((20000 + RANDOM % 10000))
        "$LONGHAUL" serve "$DEMO_DIR/site" --listen 127.0.0.1:$port 2>"$DEMO_DIR/server.log" 9>&- &
        child=$!
        LAB_SERVER=127.0.0.1 client
    fi
}

if [ "${1:-}" = --client ]; then client; else main "$@"; fi
