//! Probes of a real iperf3 server.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::probe::command::{alone, json, misses, probe, run, scripted, skip, text};

/// `iperf3 -s`; killed when dropped.
struct Iperf3(Child, SocketAddr);

impl Iperf3 {
    /// Starts the server on a free port; `None` if it cannot run, which is a failure under CI.
    fn start() -> Option<Self> {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("iperf3");
        command.args(["-s", "-p", &address.port().to_string()]).stdout(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                skip(&format!("iperf3 cannot be run: {error}"));
                return None;
            }
        };
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self(child, address))
    }
}

impl Drop for Iperf3 {
    fn drop(&mut self) {
        // Both fail if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn iperf3_server_is_measured_by_iperf3() {
    let _alone = alone();
    let Some(server) = Iperf3::start() else { return };
    let (output, took) = run(&[&format!("iperf3://{}", server.1), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!(report["server"]["protocol"], "iperf3");
    assert_eq!(report["tcp"].as_array().unwrap().len(), 2, "{report}");
    assert!(report["path"]["rate"]["rate_bps"].as_u64().unwrap() > 10_000_000, "{report}");
    assert_eq!(report["upload"]["tcp"].as_array().unwrap().len(), 1, "{report}");
    assert!(report["path"]["loss"]["sent"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["udp_ceiling"]["set_by"], "tcp", "{report}");
    assert_eq!(report["verdict"]["remembered"], false, "{report}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn sweeps_have_a_row_for_each_message_number_buffer_and_control() {
    let _alone = alone();
    let Some(server) = Iperf3::start() else { return };
    let (output, took) =
        run(&[&format!("iperf3://{}", server.1), "--full", "--json", "--ceiling", "100Mbit"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    let of = |table: &str, column: &str| -> Vec<u64> {
        report[table].as_array().unwrap().iter().filter_map(|row| row[column].as_u64()).collect()
    };
    assert_eq!(of("udp", "message")[..2], [64, 1024], "{report}");
    assert_eq!(of("udp", "message").len(), 3, "{report}");
    assert_eq!(report["udp_ceiling"]["set_by"], "option", "{report}");
    for (message, sent) in of("udp", "message").into_iter().zip(of("udp", "sent_bps")) {
        // The headers of IPv4 and UDP are sent too.
        let at_ip = sent as f64 * (message + 28) as f64 / message as f64;
        assert!(at_ip < 110e6, "{report}");
    }
    assert_eq!(of("tcp", "buffer"), [64 << 10, 256 << 10, 1 << 20, 2 << 20], "{report}");
    assert_eq!(of("tcp", "streams")[..5], [1, 4, 2, 8, 16], "{report}");
    let rows = report["tcp"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["congestion"] == "reno"), "{report}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn server_other_than_iperf3_is_reported() {
    // The banner is no iperf3 message.
    let address = scripted(|_, stream| drop(stream.write_all(b"SSH-2.0-other\r\n")));
    let (output, took) = run(&[&format!("iperf3://{address}"), "--json"]);
    if text(&output.stderr).contains("apt install iperf3") {
        return skip("iperf3 cannot be run");
    }
    assert_eq!(output.status.code(), Some(69), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("cannot measure with iperf3 at 127.0.0.1:"),
        "{}",
        text(&output.stderr)
    );
    let report = json(&output);
    assert!(
        misses(&report, "cannot measure with iperf3") && report["verdict"]["rate_bps"].is_null(),
        "{report}"
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn missing_iperf3_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("iperf3://{}", listener.local_addr().unwrap());
    let home = tempfile::tempdir().unwrap();
    let output = probe(home.path(), &[&target]).env("PATH", home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(71), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("apt install iperf3"), "{}", text(&output.stderr));
}
