//! Who is connected, who is being sent something, and what all of them have counted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::event::Event;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::telemetry::{Counters, Sample, Sockets, StreamSample};
use longhaul_core::units::Bytes;
use longhaul_engine::telemetry;
use longhaul_sys::tcp_info;

use crate::telemetry::{Telemetry, without_secrets};
use crate::totals::Totals;
use crate::upload::{Receiving, Written};

/// All connections of a server.
///
/// Connections enter when they come, leave when they go, and say when a reply begins and ends: nothing
/// happens here while bytes move. Their sockets are read only when somebody asks, and only those on which
/// a reply is being sent, or not yet acknowledged.
pub(crate) struct Census {
    started: Instant,
    telemetry: Option<Telemetry>,
    /// Somebody will ask.
    watched: bool,
    counts: Mutex<Counts>,
    receiving: Arc<Receiving>,
}

#[derive(Default)]
struct Counts {
    arrived: usize,
    open: usize,
    /// Replies by status code, of which this server has a few.
    replies: BTreeMap<u16, u64>,
    sending: BTreeMap<usize, Sending>,
    /// What connections have counted that are not `sending` any more.
    settled: Totals,
}

/// A connection that is being sent something.
struct Sending {
    /// A descriptor of its own, so that reading it needs nobody's leave.
    socket: Arc<OwnedFd>,
    /// What it had counted before.
    before: Totals,
    /// What it has counted when last looked at.
    latest: Totals,
    /// Replies begun since then.
    begun: u64,
    /// The socket has taken the whole of the last.
    replied: bool,
}

/// A connection to be read, as it stood before that.
struct ToRead {
    number: usize,
    socket: Arc<OwnedFd>,
    begun: u64,
    replied: bool,
}

/// How everything stands.
pub(crate) struct Reading {
    /// When reading began.
    pub(crate) began: Duration,
    /// Connections so far.
    pub(crate) arrived: usize,
    /// Connections open.
    pub(crate) open: usize,
    /// Replies so far, by status code.
    pub(crate) replies: BTreeMap<u16, u64>,
    /// Those that are being sent something.
    pub(crate) streams: Vec<StreamSample>,
    /// What all have counted so far, those that are closed included.
    pub(crate) totals: Totals,
    /// Bytes of uploads so far.
    pub(crate) received: Bytes,
    /// The buffers behind the sockets.
    pub(crate) written: Written,
}

/// A request and what became of it.
pub(crate) struct Replied {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) status: u16,
    /// Bytes of the body that the socket has taken.
    pub(crate) sent: Bytes,
    /// Bytes of the request's body that were taken, where it is an upload.
    pub(crate) received: Option<Bytes>,
    pub(crate) took: Duration,
}

/// A connection's place, left when dropped.
pub(crate) struct Seat {
    census: Arc<Census>,
    number: usize,
}

impl Census {
    /// Begins to count; sockets are watched only where `telemetry` asks for samples, or `watched` says so.
    pub(crate) fn new(telemetry: Option<Telemetry>, watched: bool) -> Self {
        let sampled = telemetry.as_ref().is_some_and(|telemetry| telemetry.sample.is_some());
        Self {
            started: Instant::now(),
            telemetry,
            watched: watched || sampled,
            counts: Mutex::default(),
            receiving: Arc::default(),
        }
    }

    /// Gives a connection its place.
    pub(crate) fn enter(self: &Arc<Self>, peer: SocketAddr, socket: impl AsFd) -> Seat {
        let stream = {
            let mut counts = self.lock();
            counts.arrived += 1;
            counts.open += 1;
            counts.arrived - 1
        };
        if self.telemetry.is_some() {
            let rtt = tcp_info::read(socket).ok().and_then(|tcp| tcp.rtt());
            self.tell(&Event::Connected { stream, peer, rtt });
        }
        Seat { census: Arc::clone(self), number: stream }
    }

    /// Reads every socket on which something is being sent, and forgets those that have delivered all of it.
    pub(crate) fn read(&self) -> Reading {
        let began = self.age();
        let streams = self.to_read().into_iter().map(ToRead::read).collect();
        self.take_in(began, streams)
    }

    /// Does the same for a task: others have their turn in between.
    pub(crate) async fn read_in_turns(&self) -> Reading {
        /// Reading so many takes a fraction of a millisecond.
        const AT_ONCE: usize = 64;
        let began = self.age();
        let mut streams = Vec::new();
        for one in self.to_read() {
            streams.push(one.read());
            if streams.len().is_multiple_of(AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
        self.take_in(began, streams)
    }

    /// Lists the sockets to be read: that takes long where there are many, and no connection shall wait for it.
    fn to_read(&self) -> Vec<ToRead> {
        let to_read = |(&number, sending): (&usize, &Sending)| ToRead {
            number,
            socket: Arc::clone(&sending.socket),
            begun: sending.begun,
            replied: sending.replied,
        };
        self.lock().sending.iter().map(to_read).collect()
    }

    /// Takes in what was read; a connection that left meanwhile has settled what it counted.
    fn take_in(&self, began: Duration, read: Vec<(ToRead, StreamSample)>) -> Reading {
        let mut counts = self.lock();
        let Counts { arrived, open, replies, sending, settled } = &mut *counts;
        let mut streams = Vec::with_capacity(read.len());
        for (one, sample) in read {
            let Entry::Occupied(mut entry) = sending.entry(one.number) else { continue };
            // Another, where the connection was forgotten meanwhile and came back.
            if !Arc::ptr_eq(&entry.get().socket, &one.socket) {
                continue;
            }
            if entry.get_mut().look(&one, sample.tcp.as_ref()) {
                streams.push(sample);
            } else {
                *settled += entry.remove().counted();
            }
        }
        let mut totals = *settled;
        sending.values().for_each(|connection| totals += connection.counted());
        let (received, written) = (self.receiving.total(), self.receiving.look());
        Reading {
            began,
            arrived: *arrived,
            open: *open,
            replies: replies.clone(),
            streams,
            totals,
            received,
            written,
        }
    }

    /// Returns what uploads count.
    pub(crate) fn receiving(&self) -> &Arc<Receiving> {
        &self.receiving
    }

    /// Calls the observer, where there is one.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(telemetry) = &self.telemetry {
            telemetry.observer.on(&telemetry.job, self.age(), event);
        }
    }

    /// Returns for how long it has counted.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns how often samples are to be taken.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.telemetry.as_ref()?.sample
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Nothing panics while it is held.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Notes that a reply begins.
    pub(crate) fn begins(&self, socket: impl AsFd) {
        if !self.census.watched {
            return;
        }
        if let Some(connection) = self.census.lock().sending.get_mut(&self.number) {
            connection.begun += 1;
            connection.replied = false;
            return;
        }
        // Without a descriptor left for it, the connection is only not watched.
        if let Ok(socket) = socket.as_fd().try_clone_to_owned() {
            let connection = Sending::new(socket);
            self.census.lock().sending.insert(self.number, connection);
        }
    }

    /// Notes that a reply has ended; it may still be on its way.
    pub(crate) fn ends(&self, with: Replied) {
        {
            let mut counts = self.census.lock();
            *counts.replies.entry(with.status).or_default() += 1;
            if let Some(connection) = counts.sending.get_mut(&self.number) {
                connection.replied = true;
            }
        }
        if self.census.telemetry.is_some() {
            let Replied { method, target, status, sent, took, .. } = with;
            let target = without_secrets(&target);
            self.census.tell(&Event::Replied { stream: self.number, method, target, status, sent, took });
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let socket = self.census.lock().sending.get(&self.number).map(|sending| Arc::clone(&sending.socket));
        let tcp = socket.and_then(|socket| tcp_info::read(socket).ok());
        {
            let mut counts = self.census.lock();
            counts.open -= 1;
            if let Some(mut connection) = counts.sending.remove(&self.number) {
                connection.note(tcp.as_ref());
                counts.settled += connection.counted();
            }
        }
        self.census.tell(&Event::Closed { stream: self.number });
    }
}

impl ToRead {
    fn read(self) -> (Self, StreamSample) {
        let sample = telemetry::read(self.number, &self.socket);
        (self, sample)
    }
}

impl Sending {
    fn new(socket: OwnedFd) -> Self {
        let before = tcp_info::read(&socket).map(|tcp| Totals::of(&tcp)).unwrap_or_default();
        Self { socket: Arc::new(socket), before, latest: before, begun: 1, replied: false }
    }

    /// Takes in a reading of the socket `as_it_was`; returns whether anything still moves.
    fn look(&mut self, as_it_was: &ToRead, tcp: Option<&TcpInfo>) -> bool {
        self.note(tcp);
        let Some(tcp) = tcp else { return false };
        let waiting = |count: Option<u64>| count.unwrap_or(0) > 0;
        // A reply that has begun since is not in the reading, whether or not it has ended too.
        let replied = as_it_was.replied && as_it_was.begun == self.begun;
        !replied || waiting(tcp.tcpi_unacked()) || waiting(tcp.tcpi_notsent_bytes())
    }

    /// Takes in what was counted; another reading may have overtaken this one.
    fn note(&mut self, tcp: Option<&TcpInfo>) {
        if let Some(tcp) = tcp {
            self.latest = self.latest.later(Totals::of(tcp));
        }
    }

    /// Returns what was counted since it began.
    fn counted(&self) -> Totals {
        self.latest.since(self.before)
    }
}

impl Reading {
    /// Sums up the connections that are being sent something.
    pub(crate) fn sockets(&self) -> Sockets {
        let (open, counters) = (self.open, self.totals.counters);
        Sockets { open, counters, ..Sockets::of(&self.streams, Counters::default()) }
    }

    /// Makes the sample that an observer hears; what was received is in it once there was an upload.
    pub(crate) fn sample(self) -> Sample {
        let (sockets, under_way) = (self.sockets(), self.written.uploads > 0);
        Sample {
            moved: self.totals.counters.acked + self.received,
            sockets,
            streams: self.streams,
            segments: under_way.then_some(self.written.segments),
            written: (under_way || self.received > Bytes::ZERO).then_some(self.written.written),
            ..Sample::default()
        }
    }
}
