#!/usr/bin/env bash
# Runs every test; a few that fail are run once more, alone, and those that then pass are named.
#
# Tests of timing share the machine with each other, so some may fail for want of CPU time. A test that fails alone as well fails the
# run, thrice where the machine's host disturbed it; so do more than MOST_AGAIN failures, a test program that ends without naming a failed
# test, or wrong bytes that a fault has caused.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly MOST_AGAIN=5
# Where other guests of the host took CPU time: six of 2,300 failed at once so (26 November 2026).
readonly MOST_AGAIN_DISTURBED=12
# Tries alone there; a test of a path's rate failed the first of them (26 November 2026).
readonly TRIES_DISTURBED=3
cargo=${CARGO:-cargo}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# In a background job signals may be ignored, which programs inherit and respect; the tests send them.
run() {
    env --default-signal=HUP,INT,TERM "$cargo" test --locked --config "target.'cfg(all())'.runner = ['$PWD/scripts/test-threads.sh']" "$@" 2>&1
}

# Prints the CPU time since the machine's start, and the part that other guests of its host took: proc_stat(5).
cpu_times() { awk '$1 == "cpu" { printf "%.0f %.0f\n", $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9, $9 }' /proc/stat; }

# Whether other guests took CPU time since cpu_times printed ALL and STOLEN.
is_disturbed() { # ALL STOLEN
    local all stolen share
    read -r all stolen < <(cpu_times)
    share=$((100 * (stolen - $2) / (all - $1 + 1)))
    echo "test: other guests of this machine's host took $share % of the CPU time" >&2
    [ "$share" -ge 2 ]
}

# A crash, or wrong bytes: never excused.
is_unsafe() { grep -qE '\(signal: |^SAFETY VIOLATION' "$output"; }

read -r all stolen < <(cpu_times)
if run --workspace --no-fail-fast | tee "$output"; then exit 0; fi
most=$MOST_AGAIN tries=1
if is_disturbed "$all" "$stolen"; then most=$MOST_AGAIN_DISTURBED tries=$TRIES_DISTURBED; fi

mapfile -t targets < <(sed -n 's/^    `\(-.*\)`$/\1/p' "$output" | sort -u)
mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$output" | sed 's/ - should panic$//' | sort -u)
if [ ${#targets[@]} = 0 ] || [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt "$most" ] || is_unsafe; then
    echo "test: failed: ${failed[*]:-see above}" >&2
    exit 1
fi
for target in "${targets[@]}"; do
    echo "test: once more, alone: $target: ${failed[*]}"
    # One package alone would be compiled again, with the features that it alone asks for.
    read -ra arguments <<<"--workspace ${target#-p * }"
    for ((try = 1; ; try++)); do
        if run "${arguments[@]}" -- --exact --test-threads=1 "${failed[@]}" | tee "$output"; then break; fi
        echo "test: $target failed alone as well, try $try of $tries" >&2
        if [ "$try" -ge "$tries" ] || is_unsafe; then exit 1; fi
        sleep 20
    done
    # A target that failed without a failed test of its own has no excuse.
    ran=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$output" | awk '{sum += $1} END {print sum + 0}')
    [ "$ran" -gt 0 ] || { echo "test: $target failed, and no test of it did" >&2; exit 1; }
done
echo "test: WARNING: failed beside others and passed alone at last: ${failed[*]}" >&2
