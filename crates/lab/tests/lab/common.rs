//! Helpers: a lab or a reason to skip; sockets on both hosts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use longhaul_core::units::Rtt;
use longhaul_lab::{Host, Lab, LabError, ObservationOptions, PathSpec};

/// Builds a lab; `None` if this machine does not permit it, which is a failure under CI.
pub(crate) fn lab(spec: PathSpec) -> Option<Lab> {
    observed(spec, &ObservationOptions::default())
}

/// Builds an observed lab like [`lab`].
pub(crate) fn observed(spec: PathSpec, watch: &ObservationOptions) -> Option<Lab> {
    match Lab::observed(spec, watch) {
        Ok(lab) => Some(lab),
        Err(why @ (LabError::Namespace { .. } | LabError::Tun { .. })) => {
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

/// Returns the server's IPv4 and IPv6 addresses for a test.
pub(crate) fn server_addresses(lab: &Lab) -> Vec<SocketAddr> {
    let server = lab.server();
    let v6 = server.ipv6().map(|v6| SocketAddr::from((v6, 4000)));
    [Some(SocketAddr::from((server.ipv4(), 4000))), v6].into_iter().flatten().collect()
}

/// CPU time of this machine since its start, in clock ticks.
struct CpuTime {
    all: u64,
    stolen: u64,
}

impl CpuTime {
    /// Reads the first line of /proc/stat (proc_stat(5)): the eighth number is the time that other guests of the hypervisor took.
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let ticks: Vec<u64> =
            text.lines().next().unwrap().split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
        Self { all: ticks[..8].iter().sum(), stolen: ticks[7] }
    }

    /// Returns the stolen share since `before` if it disturbs a measurement.
    fn stolen_since(&self, before: &Self) -> Option<String> {
        // Both counters may run backwards where a guest is moved to another host.
        let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let share = since(self.stolen, before.stolen) / since(self.all, before.all).max(1.0);
        (share > 0.01).then(|| format!("the hypervisor took {:.1} % of the CPU time", share * 100.0))
    }
}

/// Repeats `measure` on fresh labs until the machine kept up with the path; its verdict counts only then.
pub(crate) fn measure_while_keeping_up(spec: &PathSpec, measure: impl Fn(&Lab) -> Result<(), String>) {
    let mut failures = Vec::new();
    for attempt in 0..8 {
        if attempt > 0 {
            // What disturbs a host lasts for seconds.
            thread::sleep(Duration::from_secs(15));
        }
        let Some(lab) = lab(spec.clone()) else { return };
        let before = CpuTime::now();
        let Err(failure) = measure(&lab) else { return };
        let stats = lab.stats().unwrap();
        let mut excuses = stats.infidelities(spec);
        excuses.extend(CpuTime::now().stolen_since(&before));
        assert!(!excuses.is_empty(), "{failure}, and the machine kept up: {stats}");
        failures.push(format!("{failure}: {}", excuses.join("; ")));
    }
    let why = failures.join("\n");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("skipped: this machine is too busy: {why}");
}

/// Returns an error that names the quantity if it is out of bounds.
pub(crate) fn within(what: &str, measured: f64, bounds: std::ops::RangeInclusive<f64>) -> Result<(), String> {
    if bounds.contains(&measured) { Ok(()) } else { Err(format!("{what}: {measured} is not in {bounds:?}")) }
}

/// Loads the path to the server with two connections until `stop`; returns the senders' sockets.
pub(crate) fn bulk<'scope>(
    lab: &Lab,
    scope: &'scope thread::Scope<'scope, '_>,
    received: &'scope AtomicU64,
    stop: &'scope AtomicBool,
) -> Vec<TcpStream> {
    let address = SocketAddr::from((lab.server().ipv4(), 4000));
    let listener = lab.server().run(move || TcpListener::bind(address).unwrap()).unwrap();
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let mut sender = lab.client().run(move || TcpStream::connect(address).unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sockets.push(sender.try_clone().unwrap());
        scope
            .spawn(move || while !stop.load(Ordering::Relaxed) && sender.write_all(&[0; 1 << 16]).is_ok() {});
        scope.spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            while let Ok(len @ 1..) = receiver.read(&mut chunk) {
                received.fetch_add(len as u64, Ordering::Relaxed);
            }
        });
    }
    sockets
}
