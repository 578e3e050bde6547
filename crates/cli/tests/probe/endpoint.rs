//! Against `longhaul serve --measure` on loopback.

use std::fs::Permissions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use socket2::{Domain, Socket, Type};

use crate::support::{Serve, alone, json, misses, probe, run, text};

fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), vec![7; 1 << 20]).unwrap();
    dir
}

#[test]
fn path_is_measured_and_drawn() {
    let _alone = alone();
    let (dir, home) = (site(), tempfile::tempdir().unwrap());
    let server = Serve::start(dir.path(), &["--measure=200Mbit"]);
    let plot = home.path().join("probe.svg");
    let output =
        probe(home.path(), &[&server.url("/f"), "--json", "--plot", plot.to_str().unwrap()]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!(report["server"]["measures"], true);
    let rows = report["udp"].as_array().unwrap();
    assert_eq!(
        rows.iter().map(|row| row["message"].as_u64().unwrap()).take(3).collect::<Vec<_>>(),
        [64, 1024, 1472]
    );
    let rate = report["path"]["rate"]["rate_bps"].as_u64().unwrap();
    assert!((100_000_000..1_200_000_000).contains(&rate), "{report}");
    // Of one connection: the first ten segments of each are not paced, and loopback's have 64 KiB, so that several end before the
    // ceiling shows. The server's tests measure several.
    let one = report["tcp"][0]["payload_bps"].as_u64().unwrap();
    assert!((100_000_000..220_000_000).contains(&one), "{report}");
    assert!(report["path"]["loss"]["sent"].as_u64().unwrap() > 100, "{report}");
    // The ceiling is the server's, not the path's, and must not hold a transfer down.
    assert_eq!(report["server"]["allowed_bps"], 200_000_000);
    assert_eq!(report["server"]["limit"]["kind"], "ceiling", "{report}");
    assert_eq!(report["path"]["rate"]["is_lower_bound"], true, "{report}");
    assert!(!home.path().join(".local/state/longhaul/paths.json").exists(), "{report}");
    let upload = report["upload"]["tcp"][0]["payload_bps"].as_u64().unwrap();
    assert!((20_000_000..260_000_000).contains(&upload), "{report}");
    assert!(report["verdict"]["put_seconds"].as_f64().unwrap() > 300.0, "{report}");
    assert!(std::fs::read_to_string(plot).unwrap().contains("UDP by size of message"));
}

#[test]
fn clients_share_the_ceiling_and_are_told_their_part() {
    let _alone = alone();
    let dir = site();
    let server = Serve::start(dir.path(), &["--measure=100Mbit"]);
    // Another client, from another address of this host, receives all the time.
    let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::from(([127, 0, 0, 9], 0)).into()).unwrap();
    other.connect(&server.address.into()).unwrap();
    let mut other = std::net::TcpStream::from(other);
    let request = b"GET /.longhaul/measure/stream?bytes=4000000000 HTTP/1.1\r\nHost: h\r\n\r\n";
    other.write_all(request).unwrap();
    let receiver = std::thread::spawn(move || std::io::copy(&mut other, &mut std::io::sink()));
    let (output, _) = run(&[&server.url("/f"), "--json"]);
    let report = json(&output);
    assert_eq!(report["server"]["allowed_bps"], 50_000_000, "{report}");
    assert_eq!(report["server"]["limit"]["kind"], "ceiling", "{report}");
    let (text_output, _) = run(&[&server.url("/f")]);
    let shown = text(&text_output.stdout);
    assert!(shown.contains("the server allows measurements 50.0 Mbit/s now"), "{shown}");
    drop(server);
    let _ = receiver.join();
}

#[test]
fn ports_are_free_after_each_probe() {
    let _alone = alone();
    let dir = site();
    let server = Serve::start(dir.path(), &["--measure=50Mbit"]);
    for _ in 0..3 {
        let report = json(&run(&[&server.url("/f"), "--json"]).0);
        assert!(report["rtt"].to_string().contains("udp-echo"), "{report}");
    }
}

#[test]
fn server_that_ends_in_the_middle_gets_no_verdict() {
    let _alone = alone();
    let (dir, home) = (site(), tempfile::tempdir().unwrap());
    // One second after its start the probe counts losses.
    let server = Serve::start(dir.path(), &["--measure=20Mbit"]);
    let child = probe(home.path(), &[&server.url("/f"), "--json"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(server);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let report = json(&output);
    assert!(report["path"]["loss"].is_null() && report["verdict"]["rate_bps"].is_null(), "{report}");
    assert_eq!(report["verdict"]["advice"], serde_json::json!([]), "{report}");
    assert!(!report["missing"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn upload_alone_is_measured_by_one_connection_and_several() {
    let _alone = alone();
    let dir = site();
    let server = Serve::start(dir.path(), &["--measure"]);
    let (output, took) = run(&[&server.url("/f"), "--json", "--upload", "--size", "1GiB"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    let rows = report["upload"]["tcp"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["streams"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    assert!(rows.iter().all(|row| row["payload_bps"].as_u64().unwrap() > 50_000_000), "{report}");
    assert!(report["tcp"].as_array().unwrap().is_empty() && report["path"]["rate"].is_null(), "{report}");
    assert!(report["verdict"]["put_seconds"].as_f64().unwrap() < 180.0, "{report}");
    assert!(took.as_secs() < 12, "{took:?}");
}

#[test]
fn nothing_is_remembered_where_that_is_not_asked_for() {
    let _alone = alone();
    let (dir, home) = (site(), tempfile::tempdir().unwrap());
    let server = Serve::start(dir.path(), &["--measure=50Mbit"]);
    let output = probe(home.path(), &[&server.url("/f"), "--no-memory"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("get will use"), "{}", text(&output.stdout));
    assert!(!Path::new(&home.path().join(".local")).exists());
}

#[test]
fn token_is_requested() {
    let _alone = alone();
    let (dir, home) = (site(), tempfile::tempdir().unwrap());
    let token = home.path().join("token");
    std::fs::write(&token, "s3cret").unwrap();
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let token = token.to_str().unwrap();
    let server = Serve::start(dir.path(), &["--measure=50Mbit", "--token", token]);
    let refused = json(&run(&[&server.url("/f"), "--json"]).0);
    assert!(misses(&refused, "--token FILE") && refused["server"]["measures"] == false, "{refused}");
    let allowed = json(&run(&[&server.url("/f"), "--json", "--token", token]).0);
    assert_eq!(allowed["server"]["measures"], true, "{allowed}");
}

#[test]
fn sweeps_have_a_row_for_each_number_buffer_and_control() {
    let _alone = alone();
    let dir = site();
    let server = Serve::start(dir.path(), &["--measure=400Mbit"]);
    let (output, took) = run(&[&server.url("/f"), "--json", "--full"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    let rows = report["tcp"].as_array().unwrap();
    let plain = rows.iter().filter(|row| row["buffer"].is_null() && row["congestion"].is_null());
    let streams: Vec<_> = plain.map(|row| row["streams"].as_u64().unwrap()).collect();
    assert_eq!(streams, [1, 2, 4, 8, 16], "{report}");
    let buffers: Vec<_> = rows.iter().filter_map(|row| row["buffer"].as_u64()).collect();
    assert_eq!(buffers, [64 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20, 64 << 20], "{report}");
    assert!(rows.iter().any(|row| row["congestion"] == "reno"), "{report}");
    assert!(rows.iter().all(|row| row["payload_bps"].as_u64().unwrap() > 1_000_000), "{report}");
    assert!(took.as_secs() < 60, "{took:?}");
}
