//! Servers without a measurement endpoint: what a probe can measure.

use std::io::Write;
use std::net::TcpListener;

use crate::probe::command::{Serve, alone, json, misses, reply, run, scripted, text};

#[test]
fn http_server_is_measured_by_connections() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), vec![7; 64 << 20]).unwrap();
    let server = Serve::start(dir.path(), &[]);
    let (output, took) = run(&[&server.url("/f"), "--json", "--size", "1GiB"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!(report["server"]["ranges"], true);
    assert_eq!(report["server"]["size"], 64 << 20);
    assert_eq!(report["verdict"]["size"], 1 << 30);
    let streams: Vec<_> =
        report["tcp"].as_array().unwrap().iter().map(|row| row["streams"].clone()).collect();
    assert_eq!(streams, [1, 4]);
    assert!(report["path"]["rate"]["rate_bps"].as_u64().unwrap() > 10_000_000, "{report}");
    assert!(report["verdict"]["seconds"].as_f64().unwrap() > 0.0);
    assert!(misses(&report, "serve --measure"), "{report}");
    assert!(took.as_secs() < 15, "{took:?}");
}

#[test]
fn server_that_refuses_ranges_gets_one_connection() {
    let address = scripted(|_, stream| reply(stream, "200 OK", &vec![1; 16 << 20]));
    let (output, _) = run(&[&format!("http://{address}/f"), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!((&report["server"]["ranges"], &report["verdict"]["streams"]), (&false.into(), &1.into()));
    assert_eq!(report["tcp"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn small_and_missing_files_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "small").unwrap();
    let server = Serve::start(dir.path(), &[]);
    for (path, words) in [("/f", "name a larger one"), ("/none", "404")] {
        let (output, _) = run(&[&server.url(path), "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = json(&output);
        assert!(misses(&report, words) && report["tcp"].as_array().unwrap().is_empty(), "{report}");
    }
}

#[test]
fn shaped_connections_are_recognised() {
    let _alone = alone();
    // 4 MB/s per connection, in steps of 10 ms.
    let address = scripted(|request, stream| {
        if request.contains("bytes=0-0") {
            return reply(stream, "206 Partial Content\r\nContent-Range: bytes 0-0/100000000", b"x");
        }
        let start = request.split("bytes=").nth(1).unwrap().split('-').next().unwrap();
        let start: u64 = start.parse().unwrap();
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {start}-99999999/100000000\r\nContent-Length: {}\r\n\r\n",
            100_000_000 - start
        );
        let mut alive = stream.write_all(head.as_bytes()).is_ok();
        let began = std::time::Instant::now();
        let mut sent = 0;
        while alive {
            let due = (began.elapsed().as_secs_f64() * 4e6) as usize - sent;
            sent += due;
            alive = stream.write_all(&vec![2; due]).is_ok();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    let (output, _) = run(&[&format!("http://{address}/f"), "--json"]);
    let report = json(&output);
    assert_eq!(report["server"]["limit"]["kind"], "per-connection", "{report}");
    let rate = report["server"]["limit"]["rate"].as_u64().unwrap();
    assert!((24_000_000..40_000_000).contains(&rate), "{report}");
}

#[test]
fn features_of_an_ftp_server_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream
                .write_all(b"220 test server\r\n211-Features\r\n REST STREAM\r\n PARALLEL\r\n211 End\r\n");
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    let (output, _) = run(&[&format!("ftp://{address}/f"), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!((&report["server"]["protocol"], &report["server"]["ranges"]), (&"ftp".into(), &true.into()));
    assert!(report["server"]["features"].to_string().contains("MODE E"), "{report}");
    assert!(misses(&report, "TCP throughput: "), "{report}");
}

#[test]
fn server_other_than_ftp_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"SSH-2.0-other\r\n");
        }
    });
    let (output, _) = run(&[&format!("ftp://{address}/f")]);
    assert_eq!(output.status.code(), Some(76));
    assert!(text(&output.stderr).contains("cannot use the FTP server"), "{}", text(&output.stderr));
}
