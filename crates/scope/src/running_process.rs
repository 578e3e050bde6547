//! Observes the TCP connections of a running process.

mod sockets;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use longhaul_core::advice::{Attribution, End, KnownLimits, Reading};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::telemetry::{Counters, Sockets, StreamSample, lower_median};
use longhaul_core::units::Bytes;
use longhaul_sys::host;
use longhaul_sys::sock_diag::TcpConnection;

use crate::diagnosis::{Diagnosis, Observation};

use sockets::{ProcessConnections, enter_network_of};

/// Interval between readings of the sockets: out of step with servers that send by a timer of a
/// tenth of a second.
const INTERVAL: Duration = Duration::from_millis(103);
/// Maximum of connections, closed ones included, of which each takes some 10 KB.
const MAX_OBSERVED: usize = 1024;
/// A connection that has received nothing for so long is idle: pauses of a server that limits its
/// rate last a second at most.
const IDLE: Duration = Duration::from_secs(2);

/// An observed connection of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveFlow {
    /// The sender of the data.
    pub from: SocketAddr,
    /// The receiver of the data.
    pub to: SocketAddr,
    /// Whether the process sends.
    pub sends: bool,
    /// What limited the connection.
    pub diagnosis: Diagnosis,
}

/// A connection under observation in both directions; the direction of the data is known at the
/// end.
struct Observed {
    local: SocketAddr,
    peer: SocketAddr,
    received: Observation,
    sent: Observation,
}

/// Observes the TCP connections of a process for a time; returns those that moved data, the largest
/// first.
///
/// Of more than a thousand connections those are kept that are open, and of these those that move
/// most.
///
/// Blocks until the time is over or `is_cancelled` returns true.
///
/// # Errors
/// The process cannot be observed, or has no connection that moves data.
pub fn observe(
    process: u32,
    time: Duration,
    is_cancelled: impl Fn() -> bool,
) -> Result<Vec<LiveFlow>, Failure> {
    enter_network_of(process)?;
    let began = Instant::now();
    let mut observed: BTreeMap<u32, Observed> = BTreeMap::new();
    let mut connections = ProcessConnections::of(process)?;
    loop {
        match connections.read(began.elapsed()) {
            // The process ended during the observation; its connections still count.
            Err(error) if error.kind == FailureKind::NotFound && !observed.is_empty() => break,
            read => read?,
        }
        let now = began.elapsed();
        let ages = data_ages(&connections.known);
        for socket in &connections.known {
            let mut readings = readings(socket);
            readings[0].packets.age = ages.get(&socket.peer.ip()).copied().unwrap_or_default();
            let known = observed.entry(socket.inode).or_insert_with(|| {
                let is_server = connections.listening.contains(&socket.local.port());
                Observed::new(socket, is_server, now, &readings)
            });
            known.observe(now, &readings);
        }
        if observed.len() > MAX_OBSERVED {
            let open = connections.known.iter().map(|socket| socket.inode).collect();
            forget_least(&mut observed, &open);
        }
        if now >= time || is_cancelled() {
            break;
        }
        std::thread::sleep(INTERVAL.min(time - now));
    }
    let limits = KnownLimits {
        tcp_rmem_max: host::tcp_rmem_max(),
        tcp_wmem_max: host::tcp_wmem_max(),
        window_scaling: host::window_scaling(),
        ..KnownLimits::default()
    };
    let mut flows: Vec<_> = observed.into_values().filter_map(|flow| flow.end(&limits)).collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.diagnosis.moved));
    if flows.is_empty() {
        let why = format!("has moved data within {time:?}: observe it for longer, with --for");
        let message = format!("no TCP connection of process {process} {why}");
        return Err(Failure::new(FailureKind::NotFound, message));
    }
    Ok(flows)
}

/// Forgets a quarter of the maximum and what exceeds it: first closed connections, and those first
/// that moved least.
fn forget_least(observed: &mut BTreeMap<u32, Observed>, open: &HashSet<u32>) {
    let rank = |(inode, flow): (&u32, &Observed)| (open.contains(inode), flow.moved(), *inode);
    let mut ranked: Vec<_> = observed.iter().map(rank).collect();
    ranked.sort_unstable();
    let least = ranked.len().saturating_sub(MAX_OBSERVED / 4 * 3);
    ranked.into_iter().take(least).for_each(|(_, _, inode)| drop(observed.remove(&inode)));
}

/// Returns the time since data arrived from each host, the lower median of its connections: they
/// share a path, on which they take turns.
fn data_ages(known: &[TcpConnection]) -> HashMap<IpAddr, Duration> {
    let mut ages: HashMap<_, Vec<_>> = HashMap::new();
    for socket in known {
        let age = socket.tcp.and_then(|tcp| tcp.tcpi_last_data_recv()).map(Duration::from_millis);
        ages.entry(socket.peer.ip()).or_default().extend(age.filter(|age| *age < IDLE));
    }
    ages.into_iter().filter_map(|(peer, ages)| Some((peer, lower_median(ages)?))).collect()
}

/// Returns the socket's readings of received and of sent data.
fn readings(socket: &TcpConnection) -> [Reading; 2] {
    let sample = StreamSample { stream: 0, unread: socket.unread, tcp: socket.tcp };
    let sockets = Sockets::of(&[sample], Counters::default());
    let (received, acked) = (sockets.counters.received, sockets.counters.acked);
    [Reading::of(End::Receiver, received, &sockets), Reading::of(End::Sender, acked, &sockets)]
}

impl Observed {
    fn new(socket: &TcpConnection, is_server: bool, now: Duration, [received, sent]: &[Reading; 2]) -> Self {
        let of = |end, reading: &Reading| {
            let attribution = Attribution::from(end, now, reading).with_client_peer(is_server);
            Observation::new(attribution, (now, reading.moved))
        };
        Self {
            local: socket.local,
            peer: socket.peer,
            received: of(End::Receiver, received),
            sent: of(End::Sender, sent),
        }
    }

    fn observe(&mut self, now: Duration, [received, sent]: &[Reading; 2]) {
        self.received.observe(now, received);
        self.sent.observe(now, sent);
    }

    fn moved(&self) -> Bytes {
        self.received.moved().max(self.sent.moved())
    }

    /// Ends the observation; `None` if no data moved.
    fn end(self, known: &KnownLimits) -> Option<LiveFlow> {
        let (received, sent) = (self.received.end(known), self.sent.end(known));
        let sends = sent.moved > received.moved;
        let diagnosis = if sends { sent } else { received };
        let (from, to) = if sends { (self.local, self.peer) } else { (self.peer, self.local) };
        (diagnosis.moved > Bytes::ZERO).then_some(LiveFlow { from, to, sends, diagnosis })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io::Write;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn observation_ends_with_its_process_and_keeps_what_it_has_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let script = format!(
            "exec 3<>/dev/tcp/{}; cat <&3",
            listener.local_addr().unwrap().to_string().replace(':', "/")
        );
        let mut child = Command::new("bash").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
        let socket = RefCell::new(Some(listener.accept().unwrap().0));
        let readings = Cell::new(0);
        let flows = observe(child.id(), Duration::from_secs(3600), || {
            readings.set(readings.get() + 1);
            let sent = socket.borrow_mut().as_mut().map(|socket| socket.write_all(&[7; 1000]));
            assert!(sent.is_none_or(|sent| sent.is_ok()));
            // Its parent has not read how it has ended.
            drop(socket.borrow_mut().take_if(|_| readings.get() > 5));
            readings.get() > 600
        });
        child.wait().unwrap();
        let flows = flows.unwrap();
        assert!(flows.len() == 1 && !flows[0].sends && readings.get() < 600, "{flows:?}");
    }

    #[test]
    fn closed_connections_that_moved_least_are_forgotten_beyond_a_maximum() {
        let moved = |bytes| Reading { moved: Bytes::new(bytes), ..Reading::default() };
        let of = |end| {
            let attribution = Attribution::from(end, Duration::ZERO, &moved(0));
            Observation::new(attribution, Default::default())
        };
        let flow = |inode: u32| {
            let (local, received, sent) = (([0; 4], 80).into(), of(End::Receiver), of(End::Sender));
            let mut flow = Observed { local, peer: local, received, sent };
            flow.observe(INTERVAL, &[moved(u64::from(inode)), moved(0)]);
            (inode, flow)
        };
        let most = MAX_OBSERVED as u32;
        let mut observed: BTreeMap<_, _> = (0..=most).map(flow).collect();
        forget_least(&mut observed, &HashSet::from([0, 7]));
        let kept: Vec<_> = observed.into_keys().collect();
        assert_eq!((kept.len(), &kept[..2], kept.last()), (MAX_OBSERVED / 4 * 3, &[0, 7][..], Some(&most)));
    }
}
