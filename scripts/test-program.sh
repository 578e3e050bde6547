#!/usr/bin/env bash
# Runs a test program for cargo, and appends its time and its tests' times to the file LONGHAUL_TEST_TIMES.
set -uo pipefail

name=${1##*/}
# Tests that mostly wait, for servers and timeouts, get three threads a core; those that compute keep one.
case $name in
    e2e-* | http-* | serve-*) export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))} ;;
esac
output=$(mktemp)
trap 'rm -f "$output"' EXIT
started=$EPOCHREALTIME
# The stable test harness reports times only with this variable; nothing is compiled with it.
RUSTC_BOOTSTRAP=1 "$@" -Z unstable-options --report-time | tee "$output"
status=${PIPESTATUS[0]}
{
    awk -v from="$started" -v to="$EPOCHREALTIME" -v name="${name%-*}" \
        'BEGIN { printf "program %.1f %s\n", to - from, name }'
    sed -nE 's/^test (.*) \.\.\. (ok|FAILED) <([0-9.]+)s>$/test \3 \1/p' "$output"
} >>"$LONGHAUL_TEST_TIMES"
exit "$status"
