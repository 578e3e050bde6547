//! Probes of an iperf3 server.

use std::net::TcpListener;

use crate::probe::{misses, probe, report};
use crate::support::{Iperf3, Server, longhaul};

#[test]
fn iperf3_server_is_measured_by_iperf3() {
    let Some(server) = Iperf3::start() else { return };
    let report = report(&probe(&[&server.url(), "--json"]).ok());
    assert_eq!(report["server"]["protocol"], "iperf3");
    assert_eq!(report["tcp"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(report["upload"]["tcp"].as_array().unwrap().len(), 1, "{report}");
    assert!(report["path"]["loss"]["sent"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["udp_ceiling"]["set_by"], "tcp", "{report}");
    assert_eq!(report["verdict"]["remembered"], false, "{report}");
}

#[test]
fn server_other_than_iperf3_and_missing_iperf3_are_reported() {
    let Some(_) = Iperf3::start() else { return };
    // The banner is no iperf3 message.
    let server = Server::new(|peer| {
        let mut buffer = [0; 64];
        while matches!(std::io::Read::read(&mut peer.stream, &mut buffer), Ok(1..)) {
            peer.send("SSH-2.0-other\r\n");
        }
    });
    let target = format!("iperf3://{}", server.address);
    let ended = probe(&[&target, "--json"]).fails(69, &["cannot measure with iperf3 at 127.0.0.1:"]);
    let report = report(&ended);
    assert!(misses(&report, "cannot measure with iperf3"), "{report}");
    assert!(report["verdict"]["rate_bps"].is_null(), "{report}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("iperf3://{}", listener.local_addr().unwrap());
    let run = longhaul("probe").args([&target]);
    let nowhere = run.dir().to_str().unwrap().to_owned();
    run.env("PATH", nowhere).run().fails(71, &["apt install iperf3"]);
}
