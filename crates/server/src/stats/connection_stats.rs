//! Counts connections and replies, and reads TCP_INFO of the sending connections on request.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::event::Event;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::telemetry::{Counters, Sample, Sockets, StreamSample};
use longhaul_core::units::Bytes;
use longhaul_engine::sampling::SampleInterval;
use longhaul_engine::telemetry;
use longhaul_sys::tcp_info;
use parking_lot::Mutex;

use crate::connection::targets::without_secrets;
use crate::stats::access_log::LoggedReply;
use crate::stats::telemetry::Telemetry;
use crate::upload::{ActiveUploads, UploadUsage};

/// Statistics of all connections of a server, for an observer and for `/metrics`.
///
/// A connection is entered when it opens and when it closes, and when a reply begins and ends;
/// nothing here runs while bytes move. Only [`ConnectionStats::read`] reads sockets, and only those
/// with a reply that is being sent or not yet acknowledged.
pub(crate) struct ConnectionStats {
    started: Instant,
    telemetry: Option<Telemetry>,
    /// Sockets are kept for reading: samples are taken, or metrics are served.
    keeps_sockets: bool,
    counts: Mutex<ConnectionCounts>,
    uploads: Arc<ActiveUploads>,
}

#[derive(Default)]
struct ConnectionCounts {
    accepted: usize,
    open: usize,
    /// Replies by status code; this server uses about twenty.
    replies: BTreeMap<u16, u64>,
    sending: BTreeMap<usize, SendingConnection>,
    /// Totals of connections that are no longer in `sending`.
    settled: Counters,
}

/// A connection with a reply that is being sent or not yet acknowledged.
struct SendingConnection {
    /// A duplicate of the connection's descriptor, which stays readable while the connection uses
    /// its own.
    socket: Arc<OwnedFd>,
    /// The socket's counters when it was entered.
    before: Counters,
    /// The socket's counters when last read.
    latest: Counters,
    /// Replies begun since it was entered.
    begun: u64,
    /// The socket has accepted the last reply completely.
    replied: bool,
}

/// A socket to read, with the connection's state before the reading.
struct SocketToRead {
    number: usize,
    socket: Arc<OwnedFd>,
    begun: u64,
    replied: bool,
}

/// The statistics at one moment.
pub(crate) struct StatsSnapshot {
    /// When the reading of sockets began.
    pub(crate) began: Duration,
    /// Connections accepted so far.
    pub(crate) arrived: usize,
    /// Open connections.
    pub(crate) open: usize,
    /// Replies so far, by status code.
    pub(crate) replies: BTreeMap<u16, u64>,
    /// The sending connections.
    pub(crate) streams: Vec<StreamSample>,
    /// Totals of all connections so far, closed ones included.
    pub(crate) totals: Counters,
    /// Bytes of upload bodies so far.
    pub(crate) received: Bytes,
    /// Buffers and writers of the uploads.
    pub(crate) written: UploadUsage,
}

/// An open connection's entry in the statistics; dropping it records that the connection has
/// closed.
pub(crate) struct ConnectionEntry {
    stats: Arc<ConnectionStats>,
    number: usize,
}

impl ConnectionStats {
    /// Begins to count. Sockets are kept for reading where samples are to be taken or
    /// `serves_metrics`.
    pub(crate) fn new(
        telemetry: Option<Telemetry>,
        serves_metrics: bool,
        uploads: Arc<ActiveUploads>,
    ) -> Self {
        let takes_samples = telemetry.as_ref().is_some_and(|telemetry| telemetry.sample.is_some());
        let (started, keeps_sockets) = (Instant::now(), serves_metrics || takes_samples);
        Self { started, telemetry, keeps_sockets, counts: Mutex::default(), uploads }
    }

    /// Records an accepted connection.
    pub(crate) fn open(self: &Arc<Self>, peer: SocketAddr, socket: impl AsFd) -> ConnectionEntry {
        let stream = {
            let mut counts = self.counts.lock();
            counts.accepted += 1;
            counts.open += 1;
            counts.accepted - 1
        };
        if self.telemetry.is_some() {
            let rtt = tcp_info::read(socket).ok().and_then(|tcp| tcp.rtt());
            self.emit(&Event::Connected { stream, peer, rtt });
        }
        ConnectionEntry { stats: Arc::clone(self), number: stream }
    }

    /// Reads the sockets of all sending connections, and releases those whose replies are
    /// acknowledged.
    pub(crate) fn read(&self) -> StatsSnapshot {
        let began = self.age();
        let streams = self.sockets_to_read().into_iter().map(SocketToRead::read).collect();
        self.apply(began, streams)
    }

    /// Reads like [`ConnectionStats::read`], from a task that yields to others.
    pub(crate) async fn read_yielding(&self) -> StatsSnapshot {
        /// Sockets read between two yields; 64 take less than a millisecond.
        const SOCKETS_PER_TURN: usize = 64;
        let began = self.age();
        let mut streams = Vec::new();
        for socket in self.sockets_to_read() {
            streams.push(socket.read());
            if streams.len().is_multiple_of(SOCKETS_PER_TURN) {
                tokio::task::yield_now().await;
            }
        }
        self.apply(began, streams)
    }

    /// Lists the sockets to read, so that reading them does not hold the lock that connections
    /// need.
    fn sockets_to_read(&self) -> Vec<SocketToRead> {
        let to_read = |(&number, sending): (&usize, &SendingConnection)| SocketToRead {
            number,
            socket: Arc::clone(&sending.socket),
            begun: sending.begun,
            replied: sending.replied,
        };
        self.counts.lock().sending.iter().map(to_read).collect()
    }

    /// Records the samples read; skips connections that have closed since, whose totals are
    /// settled.
    fn apply(&self, began: Duration, read: Vec<(SocketToRead, StreamSample)>) -> StatsSnapshot {
        let mut counts = self.counts.lock();
        let ConnectionCounts { accepted, open, replies, sending, settled } = &mut *counts;
        let mut streams = Vec::with_capacity(read.len());
        for (before, sample) in read {
            let Entry::Occupied(mut entry) = sending.entry(before.number) else { continue };
            // A connection may have been released and entered again while its old socket was read.
            if !Arc::ptr_eq(&entry.get().socket, &before.socket) {
                continue;
            }
            if entry.get_mut().update(&before, sample.tcp.as_ref()) {
                streams.push(sample);
            } else {
                *settled += entry.remove().counted();
            }
        }
        let mut totals = *settled;
        sending.values().for_each(|connection| totals += connection.counted());
        let (received, written) = (self.uploads.received_total(), self.uploads.usage());
        StatsSnapshot {
            began,
            arrived: *accepted,
            open: *open,
            replies: replies.clone(),
            streams,
            totals,
            received,
            written,
        }
    }

    /// Returns the uploads in progress.
    pub(crate) fn uploads(&self) -> &Arc<ActiveUploads> {
        &self.uploads
    }

    /// Passes an event to the observer.
    pub(crate) fn emit(&self, event: &Event) {
        if let Some(Telemetry { job, observer, .. }) = &self.telemetry {
            observer.on(job, self.age(), event);
        }
    }

    /// Returns the time since counting began.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the interval between samples; `None` where no samples are taken.
    pub(crate) fn interval(&self) -> Option<SampleInterval> {
        self.telemetry.as_ref()?.sample.clone()
    }
}

impl ConnectionEntry {
    /// Records that a reply or an upload begins on `socket`.
    pub(crate) fn reply_begins(&self, socket: impl AsFd) {
        if !self.stats.keeps_sockets {
            return;
        }
        if let Some(connection) = self.stats.counts.lock().sending.get_mut(&self.number) {
            connection.begun += 1;
            connection.replied = false;
            return;
        }
        // Without a free descriptor the connection is served, but its socket is not read.
        if let Ok(socket) = socket.as_fd().try_clone_to_owned() {
            let connection = SendingConnection::new(socket);
            self.stats.counts.lock().sending.insert(self.number, connection);
        }
    }

    /// Records that the socket has accepted a reply, which may not be acknowledged yet.
    pub(crate) fn reply_ends(&self, reply: LoggedReply, (sent, took): (Bytes, Duration)) {
        {
            let mut counts = self.stats.counts.lock();
            *counts.replies.entry(reply.status).or_default() += 1;
            if let Some(connection) = counts.sending.get_mut(&self.number) {
                connection.replied = true;
            }
        }
        if self.stats.telemetry.is_some() {
            let LoggedReply { request, status, .. } = reply;
            let (method, target) = (request.method, without_secrets(&request.target));
            self.stats.emit(&Event::Replied { stream: self.number, method, target, status, sent, took });
        }
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let socket =
            self.stats.counts.lock().sending.get(&self.number).map(|sending| Arc::clone(&sending.socket));
        let tcp = socket.and_then(|socket| tcp_info::read(socket).ok());
        {
            let mut counts = self.stats.counts.lock();
            counts.open -= 1;
            if let Some(mut connection) = counts.sending.remove(&self.number) {
                connection.record(tcp.as_ref());
                counts.settled += connection.counted();
            }
        }
        self.stats.emit(&Event::Closed { stream: self.number });
    }
}

impl SocketToRead {
    fn read(self) -> (Self, StreamSample) {
        let sample = telemetry::read(self.number, &self.socket);
        (self, sample)
    }
}

impl SendingConnection {
    fn new(socket: OwnedFd) -> Self {
        let before = tcp_info::read(&socket).map(|tcp| Counters::of(&tcp)).unwrap_or_default();
        Self { socket: Arc::new(socket), before, latest: before, begun: 1, replied: false }
    }

    /// Records a reading of a socket whose state was `before`; returns whether a reply is still in
    /// progress or unacknowledged.
    fn update(&mut self, before: &SocketToRead, tcp: Option<&TcpInfo>) -> bool {
        self.record(tcp);
        let Some(tcp) = tcp else { return false };
        let is_positive = |count: Option<u64>| count.unwrap_or(0) > 0;
        // A reply that began after the reading is not in it, even if that reply has ended already.
        let replied = before.replied && before.begun == self.begun;
        !replied || is_positive(tcp.tcpi_unacked()) || is_positive(tcp.tcpi_notsent_bytes())
    }

    /// Records the socket's counters; readings may arrive out of order.
    fn record(&mut self, tcp: Option<&TcpInfo>) {
        if let Some(tcp) = tcp {
            self.latest = self.latest.later(Counters::of(tcp));
        }
    }

    /// Returns the totals since the connection was entered.
    fn counted(&self) -> Counters {
        self.latest.since(self.before)
    }
}

impl StatsSnapshot {
    /// Sums up the sending connections.
    pub(crate) fn sockets(&self) -> Sockets {
        let (open, counters) = (self.open, self.totals);
        Sockets { open, counters, ..Sockets::of(&self.streams, Counters::default()) }
    }

    /// Makes a sample for the observer; it has received bytes once there was an upload.
    pub(crate) fn sample(self) -> Sample {
        let (sockets, has_uploads) = (self.sockets(), self.written.uploads > 0);
        Sample {
            moved: self.totals.acked + self.received,
            sockets,
            streams: self.streams,
            segments: has_uploads.then_some(self.written.segments),
            written: (has_uploads || self.received > Bytes::ZERO).then_some(self.written.written),
            ..Sample::default()
        }
    }
}
