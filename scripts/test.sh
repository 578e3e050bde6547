#!/usr/bin/env bash
# Runs tests once, and prints where the time went; the arguments go to `cargo test`.
#
#   scripts/test.sh --workspace                  what `make test` runs
#   scripts/test.sh -p longhaul --test e2e -- put::
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LONGHAUL_TEST_TIMES=$(mktemp)
export LONGHAUL_TEST_TIMES
trap 'rm -f "$LONGHAUL_TEST_TIMES"' EXIT

# The same properties' cases each time, so that a failure is of the change; PROPTEST_RNG_SEED=N draws others.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-1}"

status=0
# In a background job signals may be ignored, which programs inherit and respect; the tests send them.
env --default-signal=HUP,INT,TERM "${CARGO:-cargo}" test --locked --no-fail-fast \
    --config "target.'cfg(all())'.runner = ['$PWD/scripts/test-program.sh']" "$@" || status=$?

slowest() { # KIND
    echo "test: the ten slowest $1s, in seconds:"
    sed -n "s/^$1 //p" "$LONGHAUL_TEST_TIMES" | sort -rn | head -n 10 | sed 's/^/test:   /' || true
}
slowest program
slowest test
exit "$status"
