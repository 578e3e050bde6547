//! Helpers: a lab or a reason to skip; UDP sockets on both hosts.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use longhaul_core::failure::FailureKind;
use longhaul_core::units::Rtt;
use longhaul_lab::{Host, Lab, ObservationOptions, PathSpec};

/// Builds a lab; `None` if this machine does not permit it, which is a failure under CI.
pub(crate) fn lab(spec: PathSpec) -> Option<Lab> {
    observed(spec, &ObservationOptions::default())
}

pub(crate) fn observed(spec: PathSpec, watch: &ObservationOptions) -> Option<Lab> {
    match Lab::observed(spec, watch) {
        Ok(lab) => Some(lab),
        Err(why) if why.kind() == FailureKind::Denied => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Returns a path with a rate and a round-trip time.
pub(crate) fn path(rate: &str, rtt_ms: u64) -> PathSpec {
    PathSpec {
        rate: Some(rate.parse().unwrap()),
        rtt: Rtt::new(Duration::from_millis(rtt_ms)),
        ..PathSpec::default()
    }
}

/// Returns a path with further settings, such as `loss=1%; seed=2`.
pub(crate) fn with(mut path: PathSpec, settings: &str) -> PathSpec {
    for (key, value) in settings.split("; ").map(|setting| setting.split_once('=').unwrap()) {
        path.set(key, value).unwrap();
    }
    path
}

/// Opens a UDP socket on each host; the client's is connected to the server's.
pub(crate) fn udp(lab: &Lab) -> (UdpSocket, UdpSocket) {
    let bind = |host: Host| {
        let address = host.ipv4();
        host.run(move || UdpSocket::bind((address, 0)).unwrap()).unwrap()
    };
    let (client, server) = (bind(lab.client()), bind(lab.server()));
    client.connect(server.local_addr().unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    (client, server)
}

/// Sends a packet, which starts the path's schedules.
pub(crate) fn first_packet(lab: &Lab) {
    let (client, _server) = udp(lab);
    client.send(b"now").unwrap();
}

/// Payload of a UDP packet of 1500 bytes at the IP layer.
pub(crate) const FULL: usize = 1500 - 28;

pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
