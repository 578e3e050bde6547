//! `longhaul serve --measure` on loopback, and requests to its endpoint.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use socket2::{Domain, Socket, Type};

use crate::probe::command::{Serve, alone, json, misses, probe, reply, run, scripted, text};

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
    // One connection only: the first ten segments of each connection are unpaced, and loopback's have 64 KiB, so that
    // several connections would end below the ceiling. The server's tests measure several.
    let one = report["tcp"][0]["payload_bps"].as_u64().unwrap();
    assert!((100_000_000..220_000_000).contains(&one), "{report}");
    assert!(report["path"]["loss"]["sent"].as_u64().unwrap() > 100, "{report}");
    // The ceiling is the server's, not the path's, and must not limit a transfer.
    assert_eq!(report["server"]["allowed_bps"], 200_000_000);
    assert_eq!(report["server"]["ceiling_bps"], 200_000_000);
    assert_eq!(report["server"]["limit"]["kind"], "ceiling", "{report}");
    assert_eq!(report["path"]["rate"]["is_lower_bound"], true, "{report}");
    assert!(!home.path().join(".local/state/longhaul/paths.json").exists(), "{report}");
    assert_eq!(report["verdict"]["remembered"], false, "{report}");
    let upload = report["upload"]["tcp"][0]["payload_bps"].as_u64().unwrap();
    assert!((20_000_000..260_000_000).contains(&upload), "{report}");
    assert!(report["verdict"]["put_seconds"].as_f64().unwrap() > 300.0, "{report}");
    assert!(std::fs::read_to_string(plot).unwrap().contains("UDP by size of message"));
    let ceiling = &report["udp_ceiling"];
    assert_eq!(
        (&ceiling["rate_bps"], &ceiling["set_by"]),
        (&200_000_000.into(), &"server".into()),
        "{report}"
    );
}

/// Without a ceiling, loopback carries several Gbit/s.
#[test]
fn ceiling_bounds_all_that_is_sent_by_udp() {
    let _alone = alone();
    let (dir, home) = (site(), tempfile::tempdir().unwrap());
    let server = Serve::start(dir.path(), &["--measure"]);
    let output = probe(home.path(), &[&server.url("/f"), "--json", "--ceiling", "20Mbit"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    let ceiling = &report["udp_ceiling"];
    assert_eq!(
        (&ceiling["rate_bps"], &ceiling["set_by"]),
        (&20_000_000.into(), &"option".into()),
        "{report}"
    );
    let rows = report["udp"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{report}");
    for row in rows {
        // The first packet of a train may be late, the others then follow within the 2 ms that are caught up.
        assert!((5_000_000..23_000_000).contains(&row["sent_bps"].as_u64().unwrap()), "{report}");
        assert_eq!(row["is_path_limited"], false, "{report}");
    }
    assert_eq!(ceiling["is_reached"], true, "{report}");
    assert_eq!(
        (&report["path"]["loss"]["lost"], &report["verdict"]["remembered"]),
        (&0.into(), &false.into())
    );
    assert!(!home.path().join(".local/state/longhaul/paths.json").exists(), "{report}");
    let shown = text(&run(&[&server.url("/f"), "--ceiling", "1Mbit"]).0.stdout);
    assert!(shown.contains("UDP            at most 1.00 Mbit/s (--ceiling)"), "{shown}");
    let (by_default, _) = run(&[&server.url("/f")]);
    let shown = text(&by_default.stdout);
    assert!(shown.contains("UDP            at most 40.0 Gbit/s (the server's ceiling)"), "{shown}");
}

#[test]
fn clients_share_the_ceiling_and_learn_their_share() {
    let _alone = alone();
    let dir = site();
    let server = Serve::start(dir.path(), &["--measure=100Mbit"]);
    // Another client, at another address of this host, receives continuously.
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
    let server = Serve::start(dir.path(), &["--measure=20Mbit"]);
    let mut command = probe(home.path(), &[&server.url("/f"), "--json"]);
    let mut child = command.env("LONGHAUL_LOG", "longhaul_engine::probe=debug").spawn().unwrap();
    // The message after the rate is known; then losses are counted.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("bytes are reckoned by")), "the rate was not found");
    drop(server);
    let rest = std::thread::spawn(move || lines.for_each(drop));
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap();
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
fn no_memory_stores_nothing() {
    let _alone = alone();
    let (dir, home) = (site(), tempfile::tempdir().unwrap());
    let server = Serve::start(dir.path(), &["--measure=50Mbit"]);
    let output = probe(home.path(), &[&server.url("/f"), "--no-memory"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("get would use") && shown.contains("this is not kept"), "{shown}");
    assert!(shown.contains("measurement endpoint of at most 50.0 Mbit/s"), "{shown}");
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
    let plot = dir.path().join("probe.svg");
    let (output, took) = run(&[&server.url("/f"), "--json", "--full", "--plot", plot.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let drawn = std::fs::read_to_string(plot).unwrap();
    for words in
        ["TCP by number of connections", "TCP by socket buffer", "TCP by congestion control", ">reno<"]
    {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
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

/// A request without the number would count as a second probe, which shares the ceiling.
#[test]
fn every_request_of_a_sweep_has_the_number_of_the_probe() {
    let _alone = alone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let address = scripted(move |request, stream| {
        let path = request.split(' ').nth(1).unwrap().to_owned();
        let number = request.split("Longhaul-Probe: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        noted.lock().unwrap().push((path.clone(), number.map(str::to_owned)));
        let offer = r#"{"version":1,"ceiling_bps":1000000000,"stream_bytes":8000000,"congestion":["reno"],"tcp_wmem_max":null}"#;
        match path.as_str() {
            "/.longhaul/measure" => reply(stream, "200 OK\r\nServer: longhaul", offer.as_bytes()),
            "/.longhaul/measure/udp" => reply(stream, "403 Forbidden", b""),
            _ => reply(stream, "200 OK\r\nServer: longhaul", &vec![7; 8_000_000]),
        }
    });
    let (output, _) = run(&[&address.to_string(), "--full", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let seen = seen.lock().unwrap();
    let number = seen[0].1.clone();
    assert!(number.is_some() && seen.iter().all(|(_, other)| *other == number), "{seen:?}");
    for option in ["send_buffer=", "congestion=reno"] {
        assert!(seen.iter().any(|(path, _)| path.contains(option)), "{seen:?}");
    }
}

/// RTT and UDP port are those of the final host, not of the redirecting one.
#[test]
fn host_that_a_redirect_names_is_measured() {
    let _alone = alone();
    let dir = site();
    let server = Serve::start(dir.path(), &["--measure=50Mbit"]);
    let to = server.url("/f");
    let first = scripted(move |_, stream| reply(stream, &format!("302 Found\r\nLocation: {to}"), b""));
    let report = json(&run(&[&format!("http://localhost:{}/f", first.port()), "--json"]).0);
    assert_eq!(report["peer"], server.address.to_string(), "{report}");
    assert!(misses(&report, "it redirects to http://127.0.0.1"), "{report}");
    assert!(report["rtt"].to_string().contains("udp-echo"), "{report}");
}
