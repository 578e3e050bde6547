//! Against the real iperf3.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{alone, json, probe, run, text};

#[test]
fn iperf3_server_is_measured_by_iperf3() {
    let _alone = alone();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Command::new("iperf3").args(["-s", "-p", &port.to_string()]).stdout(Stdio::null()).spawn();
    let mut server = match server {
        Ok(server) => server,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "iperf3 is needed: {error}");
            return println!("skipped: iperf3 cannot be run: {error}");
        }
    };
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (output, took) = run(&[&format!("iperf3://127.0.0.1:{port}"), "--json"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = json(&output);
    assert_eq!(report["server"]["protocol"], "iperf3");
    assert_eq!(report["tcp"].as_array().unwrap().len(), 2, "{report}");
    assert!(report["path"]["rate"]["rate_bps"].as_u64().unwrap() > 10_000_000, "{report}");
    assert_eq!(report["upload"]["tcp"].as_array().unwrap().len(), 1, "{report}");
    assert!(report["path"]["loss"]["sent"].as_u64().unwrap() > 0, "{report}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn missing_program_and_other_servers_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("iperf3://{}", listener.local_addr().unwrap());
    let home = tempfile::tempdir().unwrap();
    let output = probe(home.path(), &[&target]).env("PATH", home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(71), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("apt install iperf3"), "{}", text(&output.stderr));
}
