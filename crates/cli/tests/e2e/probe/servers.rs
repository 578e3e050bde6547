//! Servers without a measurement endpoint: what a probe can measure.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use crate::probe::{answering, misses, probe, report};
use crate::support::serve;

#[test]
fn http_server_is_measured_by_connections_to_a_large_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), vec![7; 64 << 20]).unwrap();
    fs::write(dir.path().join("small"), "small").unwrap();
    let (_server, url) = serve(dir.path(), &[]);
    let measured = report(&probe(&[&format!("{url}/f"), "--json", "--size", "1GiB"]).ok());
    let streams: Vec<_> = measured["tcp"].as_array().unwrap().iter().map(|row| &row["streams"]).collect();
    assert_eq!(streams, [1, 4], "{measured}");
    assert_eq!(
        (&measured["server"]["ranges"], &measured["server"]["size"]),
        (&true.into(), &(64 << 20).into())
    );
    assert_eq!(measured["verdict"]["size"], 1 << 30, "{measured}");
    assert!(misses(&measured, "serve --measure"), "{measured}");
    for (path, words) in [("small", "name a larger one"), ("none", "404")] {
        let report = report(&probe(&[&format!("{url}/{path}"), "--json"]).ok());
        assert!(misses(&report, words) && report["tcp"].as_array().unwrap().is_empty(), "{report}");
    }
}

#[test]
fn server_that_refuses_ranges_gets_one_connection() {
    let server = answering(|_| ("200 OK".to_owned(), vec![1; 16 << 20]));
    let report = report(&probe(&[&server.url("/f"), "--json"]).ok());
    assert_eq!((&report["server"]["ranges"], &report["verdict"]["streams"]), (&false.into(), &1.into()));
    assert_eq!(report["tcp"].as_array().unwrap().len(), 1, "{report}");
}

/// Sends a text, which answers the first command too, and refuses the others; returns the URL of a file.
fn ftp_server(text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ftp://{}/f", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(text.as_bytes());
            let commands = BufReader::new(stream.try_clone().unwrap()).lines().skip(1);
            std::thread::spawn(move || {
                commands.map_while(Result::ok).all(|_| stream.write_all(b"530 No\r\n").is_ok())
            });
        }
    });
    url
}

#[test]
fn features_of_an_ftp_server_are_reported() {
    let url = ftp_server("220 test server\r\n211-Features\r\n REST STREAM\r\n PARALLEL\r\n211 End\r\n");
    let report = report(&probe(&[&url, "--json"]).ok());
    assert_eq!((&report["server"]["protocol"], &report["server"]["ranges"]), (&"ftp".into(), &true.into()));
    assert!(report["server"]["features"].to_string().contains("MODE E"), "{report}");
    assert!(misses(&report, "TCP throughput: "), "{report}");
    probe(&[&ftp_server("SSH-2.0-other\r\n")]).fails(76, &["cannot use the FTP server"]);
}
