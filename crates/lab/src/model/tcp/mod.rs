//! Many TCP connections over one link in virtual time, per packet: downloads, and bulk senders with
//! a pace.
//!
//! ```text
//! Download -- what is left --> Connection -- packet --> link --> echo, a returned delay later --> Connection
//!                      (window, pace, losses, timer)                                         '-> Download: arrived
//! ```
//!
//! The link is FIFO, and all acknowledgements have one return delay. The result of a packet is
//! therefore known when it is sent, and acknowledgements arrive in order: the only events are a
//! queue of echoes, and timers.

mod congestion;
mod connection;
mod download;
mod scoreboard;
#[cfg(test)]
pub(super) mod tests;
mod timer;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use longhaul_core::tune::pace::Observation;
use longhaul_core::units::{Bytes, Rate, Rtt};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{BackgroundCounts, Fate, Link, Time};
use crate::PathSpec;

pub use congestion::CongestionAlgorithm;
use connection::{SentPacket, SimulatedConnection};
use download::Download;
pub use download::PacketCounts;

/// Separates these random numbers from those of the link's nodes (background 1, RED 2) with one
/// seed.
const TCP_SEED_STREAM: u64 = 3;
/// Packets of a download that never ends.
const ENDLESS: u64 = u64::MAX / 2;

/// Parameters of all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// The congestion control.
    pub algorithm: CongestionAlgorithm,
    /// Payload of a full packet.
    pub payload: Bytes,
    /// Segments in a packet, at least 1: a larger packet is a burst of segments (GSO). Windows
    /// count segments, so that large packets reduce only the cost of simulating a fast path.
    pub segments: u64,
    /// The receiver's socket buffer: the maximum in flight per connection.
    pub buffer: Bytes,
    /// Initial window in segments.
    pub initial: u64,
}

impl Tcp {
    /// Returns the receiver's socket buffer in segments; at least one packet.
    fn window(&self) -> u64 {
        (self.buffer.get() / self.payload.get().max(1)).max(1).saturating_mul(self.segments)
    }
}

/// Clients that download over a link, each over its own connections.
///
/// Time is the sender's; the client's requests are issued one return delay earlier.
#[derive(Debug)]
pub struct Network {
    link: Link,
    packet: Bytes,
    one_way: Duration,
    pub(super) tcp: Tcp,
    pub(super) now: Time,
    /// Acknowledgements in flight, in order.
    echoes: VecDeque<ReturningAck>,
    connections: Vec<SimulatedConnection>,
    /// Timer events of connections.
    timers: BinaryHeap<Reverse<(Time, usize, TimerEvent)>>,
    downloads: Vec<Download>,
    jitter: AckJitter,
}

/// An acknowledgement in flight.
#[derive(Debug, Clone, Copy)]
struct ReturningAck {
    at: Time,
    connection: usize,
    sent: SentPacket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TimerEvent {
    /// The connection's timer may have expired; its own deadline decides.
    Alarm,
    /// A packet departs that waited for its pace.
    Departure,
}

/// The random delay of echoes: up to one packet time.
///
/// Without it some connections would always find the queue full and others never (phase effects,
/// Floyd and Jacobson).
#[derive(Debug)]
struct AckJitter {
    most_nanos: u64,
    random: ChaCha8Rng,
}

impl Network {
    /// Creates a network without downloads; one direction of the path carries packets, the other
    /// only delays.
    pub fn new(path: &PathSpec, tcp: Tcp) -> Self {
        let tcp = Tcp { segments: tcp.segments.max(1), ..tcp };
        let packet = path.ends.mtu * tcp.segments;
        let most_nanos = path.rate.map_or(0, |rate| rate.time_for(packet).as_nanos() as u64);
        let mut random = ChaCha8Rng::seed_from_u64(path.seed);
        random.set_stream(TCP_SEED_STREAM);
        Self {
            link: path.link(0),
            packet,
            one_way: path.one_way(),
            tcp,
            now: Time::START,
            echoes: VecDeque::new(),
            connections: Vec::new(),
            timers: BinaryHeap::new(),
            downloads: Vec::new(),
            jitter: AckJitter { most_nanos, random },
        }
    }

    /// Removes the random delay of echoes.
    #[must_use]
    pub fn without_jitter(mut self) -> Self {
        self.jitter.most_nanos = 0;
        self
    }

    /// Returns the RTT of the empty path.
    pub fn rtt(&self) -> Duration {
        self.one_way * 2
    }

    /// Adds a download without connections and requests; returns its index.
    pub fn add(&mut self) -> usize {
        self.downloads.push(Download::default());
        self.downloads.len() - 1
    }

    /// Adds a bulk sender: a download without end, over connections that are open from `from` on.
    /// Returns its index.
    pub fn add_endless(&mut self, connections: usize, from: Time) -> usize {
        let download = self.add();
        self.open(download, connections, from);
        self.request(download, ENDLESS);
        download
    }

    /// Sets the number of connections of a download.
    ///
    /// A new connection sends packets one RTT later. Surplus connections, the newest first, send no
    /// new packets and close when their outstanding packets have arrived.
    pub fn connect(&mut self, download: usize, connections: usize) {
        let Some(own) = self.downloads.get_mut(download) else { return };
        own.connections.retain(|&index| !self.connections[index].is_over());
        let mut taking = 0;
        for &index in &own.connections {
            let connection = &mut self.connections[index];
            if !connection.takes_more() {
                continue;
            }
            taking += 1;
            if taking > connections {
                connection.close();
            }
        }
        self.open(download, connections.saturating_sub(taking), self.now + self.rtt());
    }

    /// Opens connections that can send from `opens` on.
    fn open(&mut self, download: usize, connections: usize, opens: Time) {
        for _ in 0..connections {
            let index = self.connections.len();
            self.connections.push(SimulatedConnection::new(&self.tcp, download, opens, self.rtt()));
            self.downloads[download].connections.push(index);
            self.set_alarm(index);
        }
    }

    /// Sets the maximum pace of a download's connections, each; `None` removes it.
    pub fn set_pace(&mut self, download: usize, pace: Option<Rate>) {
        let bits = self.segment().get() as f64 * 8.0;
        let cap = pace.map(|pace| pace.as_bits_per_sec() as f64 / bits);
        self.connections_of(download).for_each(|connection| connection.pacing.set_cap(cap));
    }

    /// Restarts slow start on a download's connections, regardless of earlier losses.
    pub fn restart_growth(&mut self, download: usize) {
        self.connections_of(download).for_each(|connection| connection.congestion.restart());
    }

    /// Changes the congestion control of a download's connections; keeps their windows.
    pub fn set_congestion(&mut self, download: usize, algorithm: CongestionAlgorithm) {
        let tcp = Tcp { algorithm, ..self.tcp };
        let min_rtt = (self.counts(download).least_rtt.unwrap_or(self.rtt()), self.now);
        self.connections_of(download).for_each(|connection| {
            connection.congestion = tcp.start(connection.congestion.window(), min_rtt);
        });
    }

    /// Returns the size of a segment at the IP layer.
    fn segment(&self) -> Bytes {
        Bytes::new(self.packet.get() / self.tcp.segments)
    }

    fn connections_of(&mut self, download: usize) -> impl Iterator<Item = &mut SimulatedConnection> {
        self.connections.iter_mut().filter(move |connection| connection.download == download)
    }

    /// Requests `packets` more of a download.
    pub fn request(&mut self, download: usize, packets: u64) {
        let Some(own) = self.downloads.get_mut(download) else { return };
        own.request(packets);
        // All connections start at once, one packet each in turn.
        let mut sending = own.connections.clone();
        sending.iter().for_each(|&index| self.connections[index].resume_after_idle(self.now));
        while !sending.is_empty() {
            sending.retain(|&index| self.send_one(index));
        }
    }

    /// Returns the counts of a download.
    pub fn counts(&self, download: usize) -> PacketCounts {
        self.downloads.get(download).map(|own| own.counts).unwrap_or_default()
    }

    /// Returns the kernel's view of a download; `None` before its first acknowledgement.
    pub fn observe(&self, download: usize) -> Option<Observation> {
        let counts = self.counts(download);
        let own = || self.connections.iter().filter(|connection| connection.download == download);
        let window: f64 = own().map(|connection| connection.congestion.window()).sum();
        Some(Observation {
            goodput: self.packet * counts.arrived,
            window: Bytes::new((window * self.segment().get() as f64) as u64),
            rtt: Rtt::new(own().next_back()?.timer.last_rtt),
            min_rtt: Rtt::new(counts.least_rtt?),
            sent: self.packet * counts.sent,
            lost: self.packet * counts.lost,
        })
    }

    /// Returns the counts of the background traffic on the link.
    pub fn background(&self) -> BackgroundCounts {
        self.link.background()
    }

    /// Returns the packets requested and not received of a download.
    pub fn missing(&self, download: usize) -> u64 {
        self.downloads.get(download).map_or(0, |own| own.missing)
    }

    /// Returns the number of connections of a download on which packets have arrived since the last
    /// call.
    pub fn carried(&mut self, download: usize) -> usize {
        let Some(own) = self.downloads.get(download) else { return 0 };
        own.connections.iter().filter(|&&index| std::mem::take(&mut self.connections[index].carried)).count()
    }

    /// Runs until a download has received all requested packets, and returns its index; or until a
    /// time.
    pub fn advance(&mut self, until: Time) -> Option<usize> {
        loop {
            let echo_at = self.echoes.front().map(|echo| echo.at);
            let timer_at = self.timers.peek().map(|Reverse((at, ..))| *at);
            let next = echo_at.into_iter().chain(timer_at).min().filter(|at| *at <= until);
            let Some(next) = next else {
                self.now = self.now.max(until);
                return None;
            };
            self.now = next;
            if echo_at == Some(next) {
                if let Some(complete) = self.process_echo() {
                    return Some(complete);
                }
            } else {
                self.process_timer();
            }
        }
    }

    /// Processes the next echo; returns the download that it completes.
    fn process_echo(&mut self) -> Option<usize> {
        let echo = self.echoes.pop_front()?;
        let connection = &mut self.connections[echo.connection];
        let index = connection.download;
        let download = &mut self.downloads[index];
        let outcome = connection.process_ack(&echo.sent, self.now, download.left == 0);
        let completes = download.record_ack(outcome, self.now.since(echo.sent.at));
        self.set_alarm(echo.connection);
        while self.send_one(echo.connection) {}
        completes.then_some(index)
    }

    fn process_timer(&mut self) {
        let Some(Reverse((at, index, event))) = self.timers.pop() else { return };
        let connection = &mut self.connections[index];
        match event {
            TimerEvent::Departure => connection.pacing.is_queued = false,
            TimerEvent::Alarm if connection.timer.expires(at) => {
                self.downloads[connection.download].counts.lost += connection.timed_out(at);
            }
            TimerEvent::Alarm => return self.set_alarm(index),
        }
        while self.send_one(index) {}
        self.set_alarm(index);
    }

    /// Queues the next event of a connection's timer, unless an earlier one is queued.
    fn set_alarm(&mut self, index: usize) {
        if let Some(alarm) = self.connections[index].timer.next_alarm() {
            self.timers.push(Reverse((alarm, index, TimerEvent::Alarm)));
        }
    }

    /// Sends the next packet of a connection, if allowed; returns whether it was sent.
    fn send_one(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let download = &mut self.downloads[connection.download];
        let Some(packet) = connection.sendable(download.left > 0) else { return false };
        let departure = connection.pacing.next;
        if departure > self.now {
            if !std::mem::replace(&mut connection.pacing.is_queued, true) {
                self.timers.push(Reverse((departure, index, TimerEvent::Departure)));
            }
            return false;
        }
        let (sent, is_first) = connection.record_transmission(packet, self.now);
        download.record_transmission(is_first);
        self.set_alarm(index);
        if let Fate::Leaves(there) = self.link.pass(self.now, self.packet) {
            let back = there + self.one_way + self.jitter.next();
            let at = self.echoes.back().map_or(back, |before| back.max(before.at));
            self.echoes.push_back(ReturningAck { at, connection: index, sent });
        }
        true
    }
}

impl AckJitter {
    fn next(&mut self) -> Duration {
        Duration::from_nanos(self.random.random_range(0..=self.most_nanos))
    }
}
