#!/usr/bin/env bash
# Probes ten emulated paths and prints what was found beside what was emulated, as a table in Markdown.
#
#   probe-accuracy.sh [LONGHAUL [SEED]]    the program; target/release/longhaul where none is named. SEED of the random losses: 1
#
# Needs root or user namespaces, jq, ping, and a machine with nothing else to do: two minutes. "sent" is the share of what the path
# carries in ten seconds; the goals are 10 % for rate, RTT, queue and loss, 0.1 sent, and 10 s. A queue or a rate with >= is a
# lower bound. Of a rare loss few packets tell: its column has the interval of 95 %. The RTT is compared with the least of 20 ICMP
# echoes (ping, 84 bytes) over the idle path just before, which the emulation itself makes longer than what it was told by 0.1 to 0.2 ms.
# A path that this machine did not hold is tried three times; the third is marked with *.
set -euo pipefail

longhaul=$(realpath "${1:-target/release/longhaul}")
seed=${2:-1}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
head -c 64M /dev/zero > "$site/file"

# rate [Mbit/s], RTT [ms], queue [kB], loss
paths='10 1 100 0
10 100 125 0.01
50 300 1000 0
100 10 125 0.001
100 50 625 0
300 200 4000 0.001
1000 1 500 0
1000 100 6000 0.0001
3000 50 10000 0
10000 100 25000 0'

echo "| path | rate | RTT of an ICMP echo's | queue | loss (95 %) | by | sent | time |"
echo "|---|---|---|---|---|---|---|---|"
while read -r mbit rtt queue loss; do
    mark='*'
    for _ in 1 2 3; do
        status=0
        report=$("$longhaul" lab exec --strict --hosts tuned --rate "${mbit}Mbit" --rtt "${rtt}ms" --queue "${queue}kB" --loss "$loss" --seed "$seed" \
            --server "exec '$longhaul' serve '$site' --listen 198.18.0.2:8080 --measure" --server-port 8080 \
            -- sh -c "ping -q -n -c 20 -i 0.05 198.18.0.2 > '$site/ping'; exec '$longhaul' probe http://198.18.0.2:8080/file --json --no-memory" \
            2>> "$site/log") || status=$?
        # EX_TEMPFAIL: not the path that was asked for.
        if [ "$status" != 75 ]; then mark='' && break; fi
    done
    echo_ms=$(sed -n 's|^rtt [^=]*= \([0-9.]*\)/.*|\1|p' "$site/ping")
    jq -er --arg mark "$mark" --argjson mbit "$mbit" --argjson rtt "$rtt" --argjson queue "$queue" --arg loss "$loss" --argjson echo "${echo_ms:-0}" '
        def bound(found): if found.is_lower_bound then ">= " else "" end;
        def per_cent: . * 1000 | round / 10 | tostring;
        def off(found; truth): if found then ((found / truth - 1) | per_cent) + " %" else "none" end;
        def exponent: . * 1e6 | round / 1e6 | tostring;
        [ "\($mbit) Mbit/s, \($rtt) ms, \($queue) kB, loss \($loss)\($mark)",
          bound(.path.rate) + off(.path.rate.rate_bps; $mbit * 1e6),
          off([.rtt[].min] | min; $echo / 1e3) + " of \($echo) ms",
          bound(.path.queue) + off(.path.queue.bytes; $queue * 1e3),
          if .path.loss then "\(.path.loss.share | exponent) (\(.path.loss.least | exponent) to \(.path.loss.most | exponent))" else "none" end,
          (.path.rate.evidence // "none"),
          (.bytes / ($mbit * 1e6 / 8 * 10) * 1000 | round / 1000 | tostring),
          ((.seconds * 10 | round / 10 | tostring) + " s")
        ] | "| " + join(" | ") + " |"' <<< "$report" || echo "| $mbit Mbit/s, $rtt ms | failed: $(tail -n 1 "$site/log") | | | | | | |"
done <<< "$paths"
