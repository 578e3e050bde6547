//! Connecting ahead on a long path: further streams complete their handshakes while the first response is awaited.

use std::fs;

use crate::support::lab::{exec_in, needs_lab, objects, ran};

/// In seconds.
const RTT: f64 = 0.3;
/// In bytes.
const SIZE: usize = 64 << 20;

#[test]
fn further_streams_are_connected_when_the_first_answer_comes() {
    let Some(()) = needs_lab() else { return };
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), vec![7; SIZE]).unwrap();
    let metalink = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"copy\"><size>{SIZE}</size><url>http://198.18.0.2/file</url>\
         </file></metalink>"
    );
    fs::write(home.path().join("file.meta4"), metalink).unwrap();
    let serve = "exec longhaul serve . --pace off --listen $LAB_SERVER:80";
    let path = ["--rate", "1Gbit", "--rtt", "300ms", "--server-port", "80", "--server", serve];
    // A file whose size is known in advance has a stream for each 8 MiB.
    for what in ["--streams 8 http://$LAB_SERVER/file", "file.meta4"] {
        let get = format!("longhaul get --no-memory --no-resume --json -o copy {what} && rm copy");
        let events = objects(&ran(exec_in(home.path(), &path, &get)).ok());
        let connected = events.iter().filter(|event| event["event"] == "connected");
        let times: Vec<_> = connected.map(|event| event["at"].as_f64().unwrap()).collect();
        assert_eq!(times.len(), 8, "{what}: {times:?}");
        // The first connection is reported at its response; a connection started only then takes another RTT.
        assert!(times[7] - times[0] < RTT / 2.0, "{what}: {times:?}");
    }
}
