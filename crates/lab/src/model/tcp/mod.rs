//! Many TCP connections over one link in virtual time, per packet.
//!
//! ```text
//! Download -- what is left --> Connection -- packet --> link --> echo, a returned delay later --> Connection
//!                          (window, losses, timer)                                            '-> Download: arrived
//! ```
//!
//! The link is FIFO, and all acknowledgements have one return delay. The result of a packet is therefore known when it
//! is sent, and acknowledgements arrive in order: the only events are a queue of echoes and the timers.

mod congestion;
mod connection;
mod download;
#[cfg(test)]
pub(super) mod tests;
mod timer;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use longhaul_core::units::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Fate, Link, Time};
use crate::PathSpec;

pub use congestion::CongestionAlgorithm;
use connection::SimulatedConnection;
use download::Download;
pub use download::PacketCounts;

/// Separates these random numbers from those of the link's nodes (background 1, RED 2) with one seed.
const TCP_SEED_STREAM: u64 = 3;

/// Parameters of all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// The congestion control.
    pub algorithm: CongestionAlgorithm,
    /// Payload of a full packet.
    pub payload: Bytes,
    /// The receiver's socket buffer: the maximum in flight per connection.
    pub buffer: Bytes,
    /// Initial window in packets.
    pub initial: u64,
}

impl Tcp {
    /// Returns the receiver's socket buffer in packets; at least one.
    fn window(&self) -> u64 {
        (self.buffer.get() / self.payload.get().max(1)).max(1)
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
    tcp: Tcp,
    now: Time,
    /// Acknowledgements in flight, in order.
    echoes: VecDeque<ReturningAck>,
    connections: Vec<SimulatedConnection>,
    /// Timer events of connections; a connection's own deadline decides.
    alarms: BinaryHeap<Reverse<(Time, usize)>>,
    downloads: Vec<Download>,
    /// Maximum random delay of an echo, in nanoseconds.
    jitter: u64,
    random: ChaCha8Rng,
}

/// An acknowledgement in flight.
#[derive(Debug, Clone, Copy)]
struct ReturningAck {
    at: Time,
    connection: usize,
    packet: u64,
    transmission: u64,
    sent: Time,
}

impl Network {
    /// Creates a network without downloads; one direction of the path carries packets, the other only delays.
    ///
    /// Echoes are delayed at random by up to one packet time. Without this jitter some connections would always find
    /// the queue full and others never (phase effects, Floyd and Jacobson).
    pub fn new(path: &PathSpec, tcp: Tcp) -> Self {
        let jitter = path.rate.map_or(0, |rate| rate.time_for(path.mtu).as_nanos() as u64);
        let mut random = ChaCha8Rng::seed_from_u64(path.seed);
        random.set_stream(TCP_SEED_STREAM);
        Self {
            link: path.link(0),
            packet: path.mtu,
            one_way: path.one_way(),
            tcp,
            now: Time::START,
            echoes: VecDeque::new(),
            connections: Vec::new(),
            alarms: BinaryHeap::new(),
            downloads: Vec::new(),
            jitter,
            random,
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the RTT of the empty path.
    pub fn rtt(&self) -> Duration {
        self.one_way * 2
    }

    /// Returns the parameters of the connections.
    pub fn tcp(&self) -> Tcp {
        self.tcp
    }

    /// Adds a download without connections and requests; returns its index.
    pub fn add(&mut self) -> usize {
        self.downloads.push(Download::default());
        self.downloads.len() - 1
    }

    /// Sets the number of connections of a download.
    ///
    /// A new connection sends packets one RTT later. Surplus connections, the newest first, send no new packets and
    /// close when their outstanding packets have arrived.
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
        let opens = self.now + self.one_way * 2;
        for _ in taking..connections {
            let index = self.connections.len();
            self.connections.push(SimulatedConnection::new(&self.tcp, download, opens, self.one_way * 2));
            own.connections.push(index);
        }
        for index in self.connections.len() - connections.saturating_sub(taking)..self.connections.len() {
            self.set_alarm(index);
        }
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
        self.downloads.get(download).map(Download::counts).unwrap_or_default()
    }

    /// Returns the packets requested and not received of a download.
    pub fn missing(&self, download: usize) -> u64 {
        self.downloads.get(download).map_or(0, Download::missing)
    }

    /// Returns the number of connections of a download on which packets have arrived since the last call.
    pub fn carried(&mut self, download: usize) -> usize {
        let Some(own) = self.downloads.get(download) else { return 0 };
        own.connections.iter().filter(|&&index| self.connections[index].take_carried()).count()
    }

    /// Runs until a download has received all requested packets, and returns its index; or until a time.
    pub fn advance(&mut self, until: Time) -> Option<usize> {
        loop {
            let echo_at = self.echoes.front().map(|echo| echo.at);
            let alarm = self.alarms.peek().map(|Reverse((at, _))| *at);
            let next = echo_at.into_iter().chain(alarm).min().filter(|at| *at <= until);
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
                self.process_alarm();
            }
        }
    }

    /// Processes the next echo; returns the download that it completes.
    fn process_echo(&mut self) -> Option<usize> {
        let echo = self.echoes.pop_front()?;
        let connection = &mut self.connections[echo.connection];
        let index = connection.download;
        let download = &mut self.downloads[index];
        let outcome = connection.process_ack(&echo, self.now, !download.is_more());
        let completes = download.record_ack(outcome, self.now.since(echo.sent));
        self.set_alarm(echo.connection);
        while self.send_one(echo.connection) {}
        completes.then_some(index)
    }

    /// Processes the next timer event; the connection acts if its deadline has passed.
    fn process_alarm(&mut self) {
        let Some(Reverse((at, index))) = self.alarms.pop() else { return };
        let connection = &mut self.connections[index];
        if connection.alarm != Some(at) {
            return;
        }
        connection.alarm = None;
        if connection.deadline.is_some_and(|deadline| deadline <= at) {
            connection.deadline_passed(at);
            while self.send_one(index) {}
        }
        self.set_alarm(index);
    }

    fn set_alarm(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if let Some(deadline) = connection.deadline
            && connection.alarm.is_none_or(|alarm| deadline < alarm)
        {
            connection.alarm = Some(deadline);
            self.alarms.push(Reverse((deadline, index)));
        }
    }

    /// Sends the next packet of a connection, if allowed; returns whether it was sent.
    fn send_one(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let download = &mut self.downloads[connection.download];
        let Some(packet) = connection.may_send(download.is_more()) else { return false };
        let (transmission, is_first) = connection.record_transmission(packet, self.now);
        download.record_transmission(is_first);
        self.set_alarm(index);
        if let Fate::Leaves(there) = self.link.pass(self.now, self.packet) {
            let late = Duration::from_nanos(self.random.random_range(0..=self.jitter));
            let back = there + self.one_way + late;
            let at = self.echoes.back().map_or(back, |before| back.max(before.at));
            self.echoes.push_back(ReturningAck {
                at,
                connection: index,
                packet,
                transmission,
                sent: self.now,
            });
        }
        true
    }
}
