//! Targets that cannot be measured: each has its own message and exit code, and ends in time.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

use crate::probe::command::{json, misses, probe, reply, run, scripted, text};

/// A listener with a full queue: the kernel drops every SYN.
fn black_hole() -> (Socket, Vec<Socket>, SocketAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let connect = |_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address.into());
        socket
    };
    let fill = (0..8).map(connect).collect();
    std::thread::sleep(Duration::from_millis(20));
    (listener, fill, address)
}

#[test]
fn invalid_targets_are_refused() {
    for target in ["gopher://h/", "http://", "a b"] {
        let (output, _) = run(&[target]);
        assert_eq!(output.status.code(), Some(64), "{target}");
        assert!(text(&output.stderr).contains("write a host, or a URL"), "{}", text(&output.stderr));
    }
    let (output, _) = run(&["127.0.0.1:1", "--plot", "probe.pdf"]);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output.stderr));
    for (ceiling, word) in [("10M", "write 10Mbit or 10MiB"), ("0", "1Mbit or more"), ("fast", "--ceiling")] {
        let (output, _) = run(&["127.0.0.1:1", "--ceiling", ceiling]);
        assert_eq!(output.status.code(), Some(64), "{ceiling}");
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
    // No UDP is sent.
    let (output, _) = run(&["127.0.0.1:1", "--upload", "--ceiling", "10Mbit"]);
    assert_eq!(output.status.code(), Some(64), "{}", text(&output.stderr));
    let (output, _) = run(&["127.0.0.1:1", "--token", "/nonexistent/token"]);
    assert_eq!(output.status.code(), Some(66), "{}", text(&output.stderr));
}

#[test]
fn unknown_host_is_named() {
    // Without a name service the error is temporary.
    let (output, _) = run(&["http://no-such-host.invalid/f"]);
    assert!(matches!(output.status.code(), Some(68 | 75)), "{:?}", output.status);
    assert!(text(&output.stderr).contains("cannot find the host no-such-host.invalid"));
}

#[test]
fn host_that_drops_everything_ends_in_time() {
    let (_listener, _fill, address) = black_hole();
    let (output, took) = run(&[&address.to_string()]);
    assert!(matches!(output.status.code(), Some(69 | 75)), "{:?}: {}", output.status, text(&output.stderr));
    let error = text(&output.stderr);
    assert!(error.contains("firewall") || error.contains("no answer"), "{error}");
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn closed_port_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (output, _) = run(&[&address]);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("refused"), "{}", text(&output.stderr));
}

#[test]
fn garbage_is_reported_and_the_rtt_is_kept() {
    let address = scripted(|_, stream| drop(stream.write_all(b"\x00\x01garbage\r\n\r\n")));
    let (output, _) = run(&[&address.to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(76), "{}", text(&output.stderr));
    let report = json(&output);
    assert!(report["rtt"][0]["min"].as_f64().unwrap() < 1.0, "{report}");
    assert!(
        report["missing"].as_array().unwrap().last().unwrap().as_str().unwrap().contains("HTTP"),
        "{report}"
    );
}

#[test]
fn garbage_of_a_measurement_endpoint_is_reported() {
    let address = scripted(|request, stream| {
        let is_file = !request.starts_with("GET /.longhaul");
        let body: &[u8] = if is_file { b"file" } else { b"{\"version\":\"one\"}" };
        reply(stream, "200 OK\r\nServer: longhaul", body);
    });
    let (output, _) = run(&[&address.to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(76));
    assert!(text(&output.stderr).contains("cannot use the measurement endpoint"), "{}", text(&output.stderr));
}

#[test]
fn missing_response_is_reported() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
    let address = scripted(move |_, stream| drop(stream.write_all(head)));
    let (output, _) = run(&[&address.to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no throughput was measured: "), "{}", text(&output.stderr));
    let report = json(&output);
    assert!(misses(&report, "sent nothing of its file within"), "{report}");
}

#[test]
fn stalled_response_gets_no_verdict() {
    let address = scripted(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        let _ = stream.write_all(&[7; 3_000_000]);
    });
    let (output, _) = run(&[&address.to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
    let report = json(&output);
    assert!(misses(&report, "sent nothing of its file within"), "{report}");
    assert!(report["verdict"]["rate_bps"].is_null(), "{report}");
}

#[test]
fn unwritable_plot_is_reported_before_the_measurement() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for plot in [file.path().join("p.svg"), "/nonexistent/p.svg".into()] {
        // No server listens: the first error shows what is checked first.
        let (output, _) = run(&["127.0.0.1:1", "--plot", plot.to_str().unwrap()]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(73), "{error}");
        assert!(error.contains(plot.to_str().unwrap()) && !error.contains(".longhaul-"), "{error}");
        assert!(error.trim_end().ends_with("; choose another place with --plot"), "{error}");
    }
}

#[test]
fn blocked_udp_is_reported_and_tcp_is_measured() {
    // The port never answers, as behind a firewall.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let address = scripted(move |request, stream| {
        let offer = r#"{"version":1,"ceiling_bps":1000000000,"stream_bytes":8000000,"congestion":[],"tcp_wmem_max":null}"#;
        let udp = format!(r#"{{"port":{port},"nonce":"{}","bytes":1,"seconds":9}}"#, "0a".repeat(16));
        let body = match request.split(' ').nth(1).unwrap() {
            "/.longhaul/measure" => offer.as_bytes().to_vec(),
            "/.longhaul/measure/udp" => udp.into_bytes(),
            _ => vec![7; 8_000_000],
        };
        reply(stream, "200 OK\r\nServer: longhaul", &body);
    });
    let (output, _) = run(&[&address.to_string(), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    assert!(misses(&report, "UDP: blocked on the way"), "{report}");
    assert!(report["tcp"][0]["payload_bps"].as_u64().unwrap() > 0, "{report}");
    drop(silent);
}

#[test]
fn ctrl_c_ends_at_once() {
    let (_listener, _fill, address) = black_hole();
    let home = tempfile::tempdir().unwrap();
    let mut child = probe(home.path(), &[&address.to_string()]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}
