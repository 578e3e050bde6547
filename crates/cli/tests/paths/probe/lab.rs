//! Probes of emulated paths find the emulated values. `scripts/probe-accuracy.sh` covers ten paths.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::probe::command::{BIN, alone, is_held, misses, repeat_until_held, skip, text};

/// A path and its expected values.
struct ExpectedPath {
    options: [&'static str; 8],
    rate: f64,
    rtt: f64,
    queue: f64,
}

/// Probes a path; `None` if no lab can be built, which is a failure under CI.
fn probe(path: &ExpectedPath) -> Option<Value> {
    run(&path.options, "--measure", 4 << 20, "exec $LONGHAUL probe http://$LAB_FAR:8080/f --json")
}

/// Runs a command on the client while the server serves a file of `size` bytes; returns the command's output.
fn run(options: &[&str], serve: &str, size: usize, command: &str) -> Option<Value> {
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("f"), vec![7; size]).unwrap();
    let server = format!("{BIN} serve {} --listen 198.18.0.2:8080 {serve}", site.path().display());
    run_beside(options, &server, command)
}

/// Runs a command on the client beside one on the server, which listens on port 8080; returns the client's output.
/// Repeats it where this machine did not hold the path.
fn run_beside(options: &[&str], server: &str, command: &str) -> Option<Value> {
    let attempt = || {
        let home = tempfile::tempdir().unwrap();
        let mut lab = Command::new(BIN);
        lab.args(["lab", "exec", "--strict", "--hosts", "tuned"]).args(options);
        lab.args(["--far", server, "--far-port", "8080", "--", "sh", "-c", command]);
        lab.env("HOME", home.path()).env("LONGHAUL", BIN).stdin(Stdio::null()).output().unwrap()
    };
    let output = repeat_until_held(attempt, |_| false);
    let error = text(&output.stderr);
    if output.status.code() == Some(77) {
        skip(&error);
        return None;
    }
    assert!(output.status.success() || !is_held(&output), "{error}");
    Some(serde_json::from_str(&text(&output.stdout)).unwrap())
}

fn check(path: &ExpectedPath) -> Option<Value> {
    let _alone = alone();
    let report = probe(path)?;
    let near = |what: &str, found: &Value, truth: f64| {
        let ratio = found.as_f64().unwrap() / truth;
        assert!((0.75..1.25).contains(&ratio), "{what}: {found}, not {truth}: {report}");
    };
    near("rate", &report["path"]["rate"]["rate_bps"], path.rate);
    near("RTT", &report["rtt"][0]["min"], path.rtt);
    near("queue", &report["path"]["queue"]["bytes"], path.queue);
    if path.options.contains(&"0") {
        near("upload", &report["upload"]["rate"]["rate_bps"], path.rate);
    }
    assert_eq!(report["path"]["mtu"], 1500);
    // A tenth of ten seconds at the rate, and a margin for a busy machine.
    assert!(report["bytes"].as_f64().unwrap() < path.rate / 8.0 * 1.3, "{report}");
    assert!(report["seconds"].as_f64().unwrap() < 15.0, "{report}");
    Some(report)
}

#[test]
fn short_slow_path_is_found() {
    check(&ExpectedPath {
        options: ["--rate", "20Mbit", "--rtt", "20ms", "--queue", "100kB", "--loss", "0"],
        rate: 20e6,
        rtt: 0.02,
        queue: 1e5,
    });
}

#[test]
fn path_is_remembered_for_get() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let capture = place.path().join("client.pcap");
    let mut options = vec!["--rate", "50Mbit", "--rtt", "10ms", "--queue", "100kB", "--loss", "0"];
    options.extend(["--pcap", capture.to_str().unwrap()]);
    let command = "$LONGHAUL probe http://$LAB_FAR:8080/f > $HOME/shown && grep -q 'get will use' $HOME/shown && \
        cp $HOME/.local/state/longhaul/paths.json $HOME/known && \
        $LONGHAUL get http://$LAB_FAR:8080/f -o $HOME/f > /dev/null && cat $HOME/known";
    let Some(known) = run(&options, "--measure", 4 << 20, command) else { return };
    let [path] = &known["paths"].as_array().unwrap()[..] else { panic!("{known}") };
    assert_eq!(path["port"], 8080, "{known}");
    // The request of `get` names the rate that the probe has found.
    let packets = std::fs::read(&capture).unwrap();
    let asked = format!("auto;held={};rtt=", path["rate_bps"]);
    assert!(packets.windows(asked.len()).any(|bytes| bytes == asked.as_bytes()), "{asked}: {known}");
}

/// 40 Mbit/s at 50 ms have 250 kB in flight: a stock send buffer holds ten times as much, and the advice must not name it alone.
#[test]
fn shaped_connections_of_a_long_path_are_not_taken_for_a_stock_send_buffer() {
    let _alone = alone();
    let options = ["--rate", "200Mbit", "--rtt", "50ms", "--queue", "4MB", "--loss", "0"];
    let probe = "exec $LONGHAUL probe http://$LAB_FAR:8080/f --json --no-memory";
    let Some(report) = run(&options, "--pace 40Mbit", 100 << 20, probe) else { return };
    let limit = &report["server"]["limit"];
    assert_eq!(limit["kind"], "send-buffer-or-rate", "{report}");
    assert!((30e6..45e6).contains(&limit["rate"].as_f64().unwrap()), "{report}");
    let advice = report["verdict"]["advice"].to_string();
    assert!(advice.contains("limit_rate") && advice.contains("tcp_wmem"), "{report}");
}

#[test]
fn small_send_buffer_of_the_endpoint_is_found() {
    let _alone = alone();
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("f"), "small").unwrap();
    let server = format!(
        "sysctl -qw net.ipv4.tcp_wmem='4096 16384 196608'; exec {BIN} serve {} --listen 198.18.0.2:8080 --measure",
        site.path().display()
    );
    let options = ["--rate", "150Mbit", "--rtt", "50ms", "--queue", "4MB", "--loss", "0"];
    let probe = "exec $LONGHAUL probe http://$LAB_FAR:8080/f --json --no-memory";
    let Some(report) = run_beside(&options, &server, probe) else { return };
    assert_eq!(report["server"]["tcp_wmem_max"], 196_608, "{report}");
    assert_eq!(report["server"]["limit"]["kind"], "send-buffer", "{report}");
    assert!(report["verdict"]["advice"].to_string().contains("tcp_wmem"), "{report}");
}

#[test]
fn long_lossy_path_is_found() {
    let found = check(&ExpectedPath {
        options: ["--rate", "100Mbit", "--rtt", "100ms", "--queue", "400kB", "--loss", "0.01"],
        rate: 1e8,
        rtt: 0.1,
        queue: 4e5,
    });
    let Some(report) = found else { return };
    let loss = report["path"]["loss"]["share"].as_f64().unwrap();
    assert!((0.006..0.015).contains(&loss), "{report}");
    assert!(report["verdict"]["advice"].to_string().contains("bbr"), "{report}");
}

#[test]
fn without_icmp_permission_handshakes_give_the_rtt() {
    let command = "echo '1 0' > /proc/sys/net/ipv4/ping_group_range; exec $LONGHAUL probe http://$LAB_FAR:8080/f --json";
    let Some(report) = run(&["--rate", "100Mbit", "--rtt", "40ms"], "", 5, command) else { return };
    assert!(misses(&report, "ICMP echo: not permitted (sysctl net.ipv4.ping_group_range"), "{report}");
    assert!(misses(&report, "it would have shown the RTT without the server's TCP"), "{report}");
    assert_eq!(report["rtt"][0]["method"], "tcp-handshake", "{report}");
    assert!((0.04..0.06).contains(&report["rtt"][0]["min"].as_f64().unwrap()), "{report}");
}

/// A probe's share of the endpoint's ceiling is not the path's rate, for any number of probes at one address.
#[test]
fn probes_at_once_find_the_ceiling_and_not_the_path() {
    let _alone = alone();
    let options = ["--rate", "200Mbit", "--rtt", "30ms", "--queue", "750kB", "--loss", "0"];
    let command = "for i in 1 2 3; do $LONGHAUL probe http://$LAB_FAR:8080/f --json > $HOME/$i.json & done; wait; \
        test ! -e $HOME/.local/state/longhaul/paths.json || cat $HOME/.local/state/longhaul/paths.json >&2; \
        echo \"[$(cat $HOME/1.json),$(cat $HOME/2.json),$(cat $HOME/3.json),$(ls $HOME/.local/state/longhaul 2> /dev/null | wc -l)]\"";
    let Some(all) = run(&options, "--measure=50Mbit", 4 << 20, command) else { return };
    for report in &all.as_array().unwrap()[..3] {
        assert_eq!(report["server"]["limit"]["kind"], "ceiling", "{report}");
        assert_eq!(report["path"]["rate"]["is_lower_bound"], true, "{report}");
        let allowed = report["server"]["allowed_bps"].as_u64().unwrap();
        assert!((16_000_000..=25_000_000).contains(&allowed), "{report}");
        let rate = report["path"]["rate"]["rate_bps"].as_u64().unwrap();
        assert!((12_000_000..70_000_000).contains(&rate), "{report}");
    }
    assert_eq!(all[3], 0, "paths of a ceiling are remembered");
}

/// The most bytes of datagrams that the server sent within a tenth of a second, by a capture of its packets.
fn most_in_a_tenth_of_a_second(capture: &std::path::Path) -> u64 {
    const SERVER: [u8; 4] = [198, 18, 0, 2];
    const UDP: u8 = 17;
    let bytes = std::fs::read(capture).unwrap();
    let word = |at: &[u8]| u64::from(u32::from_le_bytes(*at.first_chunk().unwrap()));
    let (mut rest, mut tenths) = (&bytes[24..], BTreeMap::<u64, u64>::new());
    while let Some((header, packets)) = rest.split_at_checked(16) {
        let (seconds, nanos) = (word(header), word(&header[4..]));
        let (packet, next) = packets.split_at(word(&header[8..]) as usize);
        if packet[9] == UDP && packet[12..16] == SERVER {
            *tenths.entry(seconds * 10 + nanos / 100_000_000).or_default() += word(&header[12..]);
        }
        rest = next;
    }
    *tenths.values().max().unwrap()
}

/// A small send buffer holds TCP far below the path's rate.
#[test]
fn ceiling_holds_on_the_wire_and_its_rate_is_a_lower_bound() {
    let _alone = alone();
    let (site, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let capture = place.path().join("server.pcap");
    let server = format!(
        "sysctl -qw net.ipv4.tcp_wmem='4096 16384 32768'; exec {BIN} serve {} --listen 198.18.0.2:8080 --measure",
        site.path().display()
    );
    let mut options = vec!["--rate", "100Mbit", "--rtt", "100ms", "--queue", "1MB", "--loss", "0"];
    options.extend(["--pcap-server", capture.to_str().unwrap()]);
    let command = "$LONGHAUL probe http://$LAB_FAR:8080/ --ceiling 50Mbit --json > $HOME/report && \
        echo \"[$(cat $HOME/report),$(ls $HOME/.local/state/longhaul 2> /dev/null | wc -l)]\"";
    let Some(both) = run_beside(&options, &server, command) else { return };
    let report = &both[0];
    let (rate, ceiling) = (&report["path"]["rate"], &report["udp_ceiling"]);
    assert_eq!((&rate["is_lower_bound"], &ceiling["is_reached"]), (&true.into(), &true.into()), "{report}");
    assert!((40e6..110e6).contains(&rate["rate_bps"].as_f64().unwrap()), "{report}");
    let verdict = &report["verdict"];
    assert!(verdict["arithmetic"].to_string().contains("its --ceiling: the path may hold more"), "{report}");
    assert_eq!((&verdict["remembered"], &both[1]), (&false.into(), &0.into()), "{report}");
    // 50 Mbit/s for 100 ms are 625 kB; the emulator may read packets late, and then several at once.
    let most = most_in_a_tenth_of_a_second(&capture);
    assert!((100_000..750_000).contains(&most), "{most} bytes");
}

/// The lab's `server` resolves to an IPv6 address before its IPv4 address, but listens on IPv4 only.
#[test]
fn address_that_refuses_is_passed_over() {
    let command = "exec $LONGHAUL probe http://server:8080/f --json";
    let Some(report) = run(&["--rate", "100Mbit", "--rtt", "10ms"], "", 5, command) else { return };
    assert_eq!(report["peer"], "198.18.0.2:8080", "{report}");
}

#[test]
fn packets_of_ipv6_are_counted_with_their_longer_header() {
    if let Err(error) = std::net::TcpListener::bind("[::]:0") {
        return println!("skipped: this machine has no IPv6: {error}");
    }
    let _alone = alone();
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("f"), "small").unwrap();
    let server = format!("{BIN} serve {} --listen [::]:8080 --measure", site.path().display());
    let options = ["--rate", "20Mbit", "--rtt", "20ms", "--queue", "100kB", "--loss", "0"];
    let Some(report) = run_beside(&options, &server, "exec $LONGHAUL probe http://server:8080/f --json")
    else {
        return;
    };
    assert!(report["peer"].as_str().unwrap().starts_with('['), "{report}");
    assert_eq!(report["path"]["mtu"], 1500, "{report}");
    let rate = report["path"]["rate"]["rate_bps"].as_f64().unwrap();
    assert!((19e6..21e6).contains(&rate), "{report}");
}

/// A server without the measurement endpoint: TCP alone shows the rate, with a tenth of the path's traffic in ten seconds.
#[test]
fn path_to_another_server_is_found_with_as_little_traffic() {
    let _alone = alone();
    let options = ["--rate", "100Mbit", "--rtt", "100ms", "--queue", "1250kB", "--loss", "0"];
    let probe = "exec $LONGHAUL probe http://$LAB_FAR:8080/f --json --no-memory";
    let Some(report) = run(&options, "--pace off", 100 << 20, probe) else { return };
    let rate = report["path"]["rate"]["rate_bps"].as_f64().unwrap();
    assert!((75e6..125e6).contains(&rate), "{report}");
    // One connection, four connections, and the data in flight when they have sufficed.
    assert!(report["bytes"].as_f64().unwrap() < 100e6 / 8.0 * 1.5, "{report}");
    assert_eq!(report["tcp"].as_array().unwrap().len(), 2, "{report}");
}

/// Probes an iperf3 server on an emulated path, after a command on its host; `None` if not possible.
fn probe_iperf3(options: &[&str], before: &str) -> Option<Value> {
    if let Err(error) = Command::new("iperf3").arg("--version").output() {
        skip(&format!("iperf3 cannot be run: {error}"));
        return None;
    }
    let probe = "exec $LONGHAUL probe iperf3://$LAB_SERVER:8080 --json --no-memory";
    run_beside(options, &format!("{before}; exec iperf3 -s -p 8080 > /dev/null"), probe)
}

/// The upload would take half a minute for the bytes that the download left.
#[test]
fn slow_upload_of_an_iperf3_server_is_found_in_time() {
    let _alone = alone();
    let options = ["--rate", "100Mbit", "--rtt", "5ms", "--loss", "0", "--up", "rate=1Mbit"];
    let Some(report) = probe_iperf3(&options, ":") else { return };
    let rate = report["upload"]["rate"]["rate_bps"].as_f64().unwrap();
    assert!((0.5e6..1.2e6).contains(&rate), "{report}");
    assert!(report["verdict"]["seconds"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["seconds"].as_f64().unwrap() < 10.0, "{report}");
}

/// A tenth of the traffic ends within slow start.
#[test]
fn rate_of_a_long_path_to_an_iperf3_server_is_that_after_slow_start() {
    let _alone = alone();
    let options = ["--rate", "100Mbit", "--rtt", "100ms", "--loss", "0"];
    let Some(report) = probe_iperf3(&options, ":") else { return };
    for rate in [&report["tcp"][0], &report["tcp"][1], &report["upload"]["tcp"][0]] {
        let rate = rate["payload_bps"].as_f64().unwrap();
        assert!((60e6..100e6).contains(&rate), "{report}");
    }
}

/// iperf3 itself waits for half a minute.
#[test]
fn blocked_udp_to_an_iperf3_server_is_reported_and_both_directions_are_measured() {
    let _alone = alone();
    // Drops received datagrams, like a firewall; replies are unaffected.
    let block = "ip rule add pref 2 lookup local && ip rule add pref 1 ipproto udp iif longhaul0 blackhole && ip rule del pref 0";
    let options = ["--rate", "100Mbit", "--rtt", "10ms", "--loss", "0"];
    let Some(report) = probe_iperf3(&options, block) else { return };
    assert!(misses(&report, "UDP: blocked on the way, port 8080"), "{report}");
    assert!(report["path"]["loss"].is_null(), "{report}");
    assert_eq!(report["tcp"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(report["upload"]["tcp"].as_array().unwrap().len(), 1, "{report}");
    assert!(report["verdict"]["seconds"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["seconds"].as_f64().unwrap() < 10.0, "{report}");
}

/// Parameters that a client can set alone, with a server unaware of probes: connections, and the receive buffer, which
/// limits one connection.
#[test]
fn sweep_over_nginx_shows_the_buffer_that_the_path_needs() {
    let Some(nginx) =
        ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| std::path::Path::new(path).exists())
    else {
        return skip("nginx is not installed");
    };
    let _alone = alone();
    let site = tempfile::tempdir().unwrap();
    let root = site.path().display();
    std::fs::File::create(site.path().join("f")).unwrap().set_len(64 << 20).unwrap();
    let scratch: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {root}/{name}; "))
        .concat();
    let config = format!(
        "daemon off; master_process off; pid {root}/pid; error_log stderr; events {{ }}
http {{ access_log off; sendfile on; {scratch} server {{ listen 198.18.0.2:8080; root {root}; }} }}"
    );
    std::fs::write(site.path().join("nginx.conf"), config).unwrap();
    let server = format!("exec {nginx} -p {root} -c {root}/nginx.conf");
    // A queue that slow start does not overflow: losses would lower some rows.
    let options = ["--rate", "50Mbit", "--rtt", "40ms", "--queue", "2000kB", "--loss", "0"];
    let probe = "exec $LONGHAUL probe http://$LAB_FAR:8080/f --full --json --no-memory";
    let Some(report) = run_beside(&options, &server, probe) else { return };
    assert!(report["server"]["software"].as_str().unwrap().starts_with("nginx"), "{report}");
    assert_eq!(report["server"]["ranges"], true, "{report}");
    assert!(misses(&report, "UDP and the path's queue and loss"), "{report}");
    let rows = report["tcp"].as_array().unwrap();
    let plain = rows.iter().filter(|row| row["buffer"].is_null());
    let streams: Vec<_> = plain.map(|row| row["streams"].as_u64().unwrap()).collect();
    assert_eq!(streams, [1, 2, 4, 8, 16], "{report}");
    let of_buffer = |size: u64| {
        let row = rows.iter().find(|row| row["buffer"] == size);
        row.unwrap_or_else(|| panic!("{size}: {report}"))["payload_bps"].as_f64().unwrap()
    };
    // 64 KiB per 40 ms are 13 Mbit/s; the path's BDP is 250 kB.
    assert!((6e6..20e6).contains(&of_buffer(64 << 10)), "{report}");
    for size in [1, 2, 8, 64] {
        assert!(of_buffer(size << 20) > 35e6, "{report}");
    }
}
