//! Observes the TCP connections of a running process.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use longhaul_core::advice::{Attribution, End, KnownLimits, Reading};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::telemetry::{Counters, Sockets, StreamSample, lower_median};
use longhaul_core::units::Bytes;
use longhaul_sys::sock_diag::{self, SocketReader, TcpConnection};
use longhaul_sys::{host, netns};

use crate::diagnosis::{Diagnosis, Observation};

/// Interval between readings of the sockets: out of step with servers that send by a timer of a
/// tenth of a second.
const INTERVAL: Duration = Duration::from_millis(103);
/// Maximum interval between searches for connections: a known socket may connect later. A search
/// takes about 1 ms on a large host.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

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

/// Moves the calling thread into the network namespace of a process, if it is a different one.
fn enter_network_of(process: u32) -> Result<(), Failure> {
    let path = format!("/proc/{process}/ns/net");
    let own = std::fs::read_link("/proc/thread-self/ns/net");
    match std::fs::read_link(&path) {
        Ok(theirs) if own.as_ref().is_ok_and(|own| *own == theirs) => Ok(()),
        Ok(_) => std::fs::File::open(&path)
            .and_then(netns::enter_network)
            .map_err(|_| {
                let message = format!(
                    "cannot enter the network namespace of process {process}, where TCP_INFO of its sockets would show what limits each: \
                     only root can read them from outside; run this as root, or within the container"
                );
                Failure::new(FailureKind::Denied, message)
            }),
        Err(error) => Err(of_proc(process, &error)),
    }
}

fn no_process(process: u32) -> Failure {
    Failure::new(FailureKind::NotFound, format!("there is no process {process}"))
}

fn of_kernel(process: u32, error: &io::Error) -> Failure {
    let what = format!("cannot read the sockets of process {process} from the kernel: {error}");
    Failure::new(FailureKind::Host, format!("{what}; it needs inet_diag (modprobe tcp_diag)"))
}

fn of_proc(process: u32, error: &io::Error) -> Failure {
    // The files of a process that has ended belong to root.
    if error.kind() == io::ErrorKind::PermissionDenied && !has_ended(process) {
        let message = format!(
            "cannot list the sockets of process {process}, of which TCP_INFO would show what limits each: it belongs to another user; \
             run this as that user, or as root"
        );
        Failure::new(FailureKind::Denied, message)
    } else {
        no_process(process)
    }
}

/// Returns whether a process has ended, and its parent has not read how.
fn has_ended(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold any character.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
}

/// The TCP connections of a process.
struct ProcessConnections {
    process: u32,
    reader: SocketReader,
    /// The connections at the last reading.
    known: Vec<TcpConnection>,
    /// The ports on which the process accepted connections at the last search: there it is the
    /// server.
    listening: HashSet<u16>,
    /// All sockets of the process at the last search, of any type.
    searched: HashSet<u32>,
    next_search: Duration,
}

impl ProcessConnections {
    fn of(process: u32) -> Result<Self, Failure> {
        let reader = SocketReader::open().map_err(|error| of_kernel(process, &error))?;
        Ok(Self {
            process,
            reader,
            known: Vec::new(),
            listening: HashSet::new(),
            searched: HashSet::new(),
            next_search: Duration::ZERO,
        })
    }

    /// Reads the connections; searches again if the process has new sockets or the last search is
    /// too old.
    fn read(&mut self, now: Duration) -> Result<(), Failure> {
        let process = self.process;
        let inodes = sock_diag::socket_inodes(process).map_err(|error| of_proc(process, &error))?;
        if inodes.is_empty() && has_ended(process) {
            return Err(no_process(process));
        }
        let failed = |error| of_kernel(process, &error);
        if now >= self.next_search || !inodes.is_subset(&self.searched) {
            self.known = sock_diag::connections(&inodes).map_err(failed)?;
            self.listening = sock_diag::listening_ports(&inodes).map_err(failed)?;
            self.searched = inodes;
            self.next_search = now + SEARCH_INTERVAL;
        } else {
            let open = self.known.iter().filter(|socket| inodes.contains(&socket.inode));
            let again: io::Result<_> =
                open.filter_map(|socket| self.reader.read(socket).transpose()).collect();
            self.known = again.map_err(failed)?;
        }
        Ok(())
    }
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
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn connections_are_found_when_they_are_made_and_dropped_when_closed() {
        const COUNT: usize = 250;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = ProcessConnections::of(std::process::id()).unwrap();
        connections.read(Duration::ZERO).unwrap();
        // New sockets trigger a search at once. Both ends are of this process.
        let connect =
            || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap());
        let sockets: Vec<_> = std::iter::repeat_with(connect).take(COUNT).collect();
        let locals: HashSet<_> = sockets.iter().map(|(socket, _)| socket.local_addr().unwrap()).collect();
        let at = SEARCH_INTERVAL / 10;
        let mut known_at = |time| {
            connections.read(time).unwrap();
            connections.known.iter().filter(|known| locals.contains(&known.local)).count()
        };
        assert_eq!([known_at(at), known_at(at * 2)], [COUNT; 2]);
        drop(sockets);
        assert_eq!(known_at(at * 3), 0);
        assert!(connections.listening.contains(&listener.local_addr().unwrap().port()));
    }

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
