#!/usr/bin/env bash
# Downloads one file by a click in a real Firefox, across an emulated path of 10 Gbit/s and 200 ms.
#
#   scripts/demo-browser.sh PATH-TO-LONGHAUL [OUT]     DEMO_MIB sets the file's size (4096)
#
# Leaves pictures and the HTML report in OUT (out/demo-browser). Needs root, firefox-esr and node.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LONGHAUL=$(realpath -e "${1:?usage: demo-browser.sh PATH-TO-LONGHAUL [OUT]}")
out=${2:-out/demo-browser}
mib=${DEMO_MIB:-4096}
rm -rf "$out"
mkdir -p "$out/site"
out=$(realpath "$out")
export LONGHAUL DEMO_OUT=$out DEMO_SITE=$out/site DEMO_BYTES=$((mib << 20))
trap 'rm -rf "$DEMO_SITE"' EXIT

echo "==> Writing $mib MiB of random data"
head -c "${mib}M" /dev/urandom >"$DEMO_SITE/observations.tar"
cat >"$DEMO_SITE/index.html" <<'HTML'
<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Observations</title>
<body style="font: 16px/1.5 sans-serif; margin: 40px">
<h1>Observations</h1>
<p>From a server 200 ms away.</p>
<p><a id="file" href="observations.tar">observations.tar</a></p>
HTML

echo "==> One click in Firefox"
# shellcheck disable=SC2016 # These names are known on the hosts of the path.
"$LONGHAUL" lab exec --rate 10Gbit --rtt 200ms --hosts tuned \
    --server 'exec "$LONGHAUL" serve "$DEMO_SITE" --listen "$LAB_SERVER:8080" 2>"$DEMO_OUT/server.log"' \
    -- sh -c 'until curl -sf -m 5 -o /dev/null "http://$LAB_SERVER:8080/"; do sleep 0.1; done
        node browser/test/lab/demo.mjs "http://$LAB_SERVER:8080/" "#file" observations.tar "$DEMO_BYTES" --longhaul "$LONGHAUL" --out "$DEMO_OUT"'
echo "==> $out/demo-browser.png, $out/report.html"
