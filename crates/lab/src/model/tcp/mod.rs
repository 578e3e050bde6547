//! Many TCP connections through one link in virtual time, packet by packet.
//!
//! ```text
//! Download -- what is left --> Connection -- packet --> link --> echo, a returned delay later --> Connection
//!                          (window, losses, timer)                                            '-> Download: arrived
//! ```
//!
//! A link is FIFO, and what acknowledges its packets takes one time for all: what a sender will hear of a packet is
//! known when it is sent, and is heard in the order of sending. So the only events are a queue of echoes and the timers.

mod congestion;
mod connection;
mod download;
#[cfg(test)]
mod tests;
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

/// Keeps its random numbers apart from those of the link's nodes (background 1, RED 2) that are given the same seed.
const TCP_SEED_STREAM: u64 = 3;

/// How all connections send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// How the window grows and shrinks.
    pub algorithm: CongestionAlgorithm,
    /// What a full packet carries.
    pub payload: Bytes,
    /// The receiver's socket buffer: the most that a connection has in flight.
    pub buffer: Bytes,
    /// The first window, in packets.
    pub initial: u64,
}

impl Tcp {
    /// Returns how many packets the receiver's socket buffer holds; at least one.
    fn window(&self) -> u64 {
        (self.buffer.get() / self.payload.get().max(1)).max(1)
    }
}

/// Clients that download over a link, each over connections of its own.
///
/// The sender's events are followed; the client's are one returned delay earlier, as what it asks for takes that time
/// to the sender.
#[derive(Debug)]
pub struct Network {
    link: Link,
    packet: Bytes,
    one_way: Duration,
    tcp: Tcp,
    now: Time,
    /// What will be heard, in order.
    echoes: VecDeque<ReturningAck>,
    connections: Vec<SimulatedConnection>,
    /// When a connection may have waited long enough; its own deadline decides.
    alarms: BinaryHeap<Reverse<(Time, usize)>>,
    downloads: Vec<Download>,
    /// The most by which an echo is late at random.
    jitter: u64,
    random: ChaCha8Rng,
}

/// An acknowledgement on its way.
#[derive(Debug, Clone, Copy)]
struct ReturningAck {
    at: Time,
    connection: usize,
    packet: u64,
    transmission: u64,
    sent: Time,
}

impl Network {
    /// Makes a network without downloads on a path, of which one direction carries packets and the other only delays.
    ///
    /// Echoes are late by up to the time of a packet, at random: hosts are not exact, and without that some connections would
    /// find the queue full always, and others never (Floyd and Jacobson's phase effects).
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

    /// Returns the time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the round-trip time of the empty path.
    pub fn rtt(&self) -> Duration {
        self.one_way * 2
    }

    /// Returns how its connections send.
    pub fn tcp(&self) -> Tcp {
        self.tcp
    }

    /// Adds a download without connections that asks for nothing yet; returns its index.
    pub fn add(&mut self) -> usize {
        self.downloads.push(Download::default());
        self.downloads.len() - 1
    }

    /// Lets a download have this many connections from now on.
    ///
    /// One that is added carries packets a round trip later. One that is too many, the newest first, takes no more,
    /// and goes when all that it has sent has arrived.
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
                connection.closes();
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

    /// Asks for `packets` more of a download.
    pub fn ask(&mut self, download: usize, packets: u64) {
        let Some(own) = self.downloads.get_mut(download) else { return };
        own.ask(packets);
        // All begin at once: a packet each, in turns.
        let mut sending = own.connections.clone();
        sending.iter().for_each(|&index| self.connections[index].wakes(self.now));
        while !sending.is_empty() {
            sending.retain(|&index| self.send_one(index));
        }
    }

    /// Returns what has become of a download so far.
    pub fn counts(&self, download: usize) -> PacketCounts {
        self.downloads.get(download).map(Download::counts).unwrap_or_default()
    }

    /// Returns what a download has asked for and not got, in packets.
    pub fn missing(&self, download: usize) -> u64 {
        self.downloads.get(download).map_or(0, Download::missing)
    }

    /// Returns on how many connections packets of a download have arrived since this was last asked.
    pub fn carried(&mut self, download: usize) -> usize {
        let Some(own) = self.downloads.get(download) else { return 0 };
        own.connections.iter().filter(|&&index| self.connections[index].take_carried()).count()
    }

    /// Goes on until all that one download has asked for has arrived, and returns which; or until a time.
    pub fn advance(&mut self, until: Time) -> Option<usize> {
        loop {
            let heard = self.echoes.front().map(|echo| echo.at);
            let alarm = self.alarms.peek().map(|Reverse((at, _))| *at);
            let next = heard.into_iter().chain(alarm).min().filter(|at| *at <= until);
            let Some(next) = next else {
                self.now = self.now.max(until);
                return None;
            };
            self.now = next;
            if heard == Some(next) {
                if let Some(complete) = self.hear() {
                    return Some(complete);
                }
            } else {
                self.wake();
            }
        }
    }

    /// Takes the next echo; returns the download that it completes.
    fn hear(&mut self) -> Option<usize> {
        let echo = self.echoes.pop_front()?;
        let connection = &mut self.connections[echo.connection];
        let index = connection.download;
        let download = &mut self.downloads[index];
        let heard = connection.hears(&echo, self.now, !download.is_more());
        let completes = download.hears(heard, self.now.since(echo.sent));
        self.set_alarm(echo.connection);
        while self.send_one(echo.connection) {}
        completes.then_some(index)
    }

    /// Lets the connection of the next alarm go on, if it has waited long enough.
    fn wake(&mut self) {
        let Some(Reverse((at, index))) = self.alarms.pop() else { return };
        let connection = &mut self.connections[index];
        if connection.alarm != Some(at) {
            return;
        }
        connection.alarm = None;
        if connection.deadline.is_some_and(|deadline| deadline <= at) {
            connection.waited(at);
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

    /// Sends a packet of a connection, if it may; says whether it did.
    fn send_one(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let download = &mut self.downloads[connection.download];
        let Some(packet) = connection.may_send(download.is_more()) else { return false };
        let (transmission, is_first) = connection.sends(packet, self.now);
        download.sends(is_first);
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
