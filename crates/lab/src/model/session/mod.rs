//! Download sessions in virtual time: each fetches a file over a number of connections that a
//! [`Tuner`] chooses.

#[cfg(test)]
mod tests;
mod tuner;

use std::time::Duration;

use longhaul_core::tune::streams::Interval;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::Time;
use super::tcp::{Network, PacketCounts};
pub use tuner::{FixedCount, Tuner};

/// Minimum interval between a tuner's observations; longer if the RTT is longer.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// A file to download.
#[derive(Debug)]
pub struct DownloadSession {
    /// Start of the session.
    pub begins: Duration,
    /// Size of the file; rounded to whole packets.
    pub file: Bytes,
    /// Decides the number of connections.
    pub tuner: Box<dyn Tuner>,
    /// Whether each chunk uses new connections; otherwise connections persist across chunks.
    pub reconnects: bool,
}

/// The record of a session; times are since the network's start.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// Start of the session.
    pub begins: Duration,
    /// Arrival of the last packet; `None` if incomplete.
    pub ends: Option<Duration>,
    /// The requested chunks, in order.
    pub chunks: Vec<ChunkRecord>,
    /// The course of the session, about one entry per second.
    pub seconds: Vec<SecondRecord>,
}

/// A part of a file, requested at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkRecord {
    /// Time of the request.
    pub from: Duration,
    /// Time of the last packet.
    pub to: Duration,
    /// Number of connections.
    pub streams: usize,
    /// Goodput of the chunk.
    pub goodput: Rate,
}

/// One second of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecondRecord {
    /// End of the second.
    pub at: Duration,
    /// Goodput of the second.
    pub goodput: Rate,
    /// Number of connections requested by the tuner at the end.
    pub streams: usize,
}

impl SessionRecord {
    fn new(begins: Duration) -> Self {
        Self { begins, ends: None, chunks: Vec::new(), seconds: Vec::new() }
    }

    /// Returns the paper's mean transfer rate, file over time; `None` if `file` is incomplete.
    pub fn rate(&self, file: Bytes) -> Option<Rate> {
        Some(Rate::over(file, self.ends?.saturating_sub(self.begins)))
    }

    /// Returns the mean goodput between two times since the network's start; zero without data.
    pub fn goodput(&self, from: Duration, to: Duration) -> Rate {
        let within = || self.seconds.iter().filter(|second| second.at > from && second.at <= to);
        let sum: f64 = within().map(|second| second.goodput.as_bits_per_sec() as f64).sum();
        Rate::bits_per_sec((sum / within().count().max(1) as f64) as u64)
    }
}

/// Runs sessions on a network until all are complete or until a time; returns the record of each.
pub fn run(network: &mut Network, sessions: Vec<DownloadSession>, until: Duration) -> Vec<SessionRecord> {
    let mut running: Vec<_> =
        sessions.into_iter().map(|session| RunningSession::new(session, network.add(), network)).collect();
    let end = Time::START + until;
    while let Some(tick) = running.iter().filter_map(RunningSession::next_tick).min() {
        match network.advance(tick.min(end)) {
            Some(complete) => running
                .iter_mut()
                .filter(|own| own.download == complete)
                .for_each(|own| own.completed(network)),
            None if tick > end => break,
            None => running
                .iter_mut()
                .filter(|own| own.next_tick() == Some(tick))
                .for_each(|own| own.on_tick(network)),
        }
    }
    running.into_iter().map(|own| own.record).collect()
}

/// A session in progress.
#[derive(Debug)]
struct RunningSession {
    tuner: Box<dyn Tuner>,
    reconnects: bool,
    download: usize,
    /// Payload bytes per packet.
    payload: Bytes,
    /// Packets of the file not requested yet.
    left: u64,
    /// Time and packets of the last request.
    chunk: (Time, u64),
    stage: SessionStage,
    interval: Duration,
    begun: PeriodStarts,
    record: SessionRecord,
}

/// The starts of the current periods of observation, and the counts at them.
#[derive(Debug)]
struct PeriodStarts {
    interval: (Time, PacketCounts),
    second: (Time, PacketCounts),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionStage {
    Waiting(Time),
    /// Fetching; holds the time of the next observation.
    Fetching(Time),
    Done,
}

impl RunningSession {
    fn new(session: DownloadSession, download: usize, network: &Network) -> Self {
        let begins = Time::START + session.begins;
        let payload = network.tcp.payload;
        Self {
            tuner: session.tuner,
            reconnects: session.reconnects,
            download,
            payload,
            left: session.file.get().div_ceil(payload.get().max(1)),
            chunk: (begins, 0),
            stage: SessionStage::Waiting(begins),
            interval: network.rtt().max(MIN_INTERVAL),
            begun: PeriodStarts {
                interval: (begins, PacketCounts::default()),
                second: (begins, PacketCounts::default()),
            },
            record: SessionRecord::new(session.begins),
        }
    }

    /// Returns the time of the session's next timer event.
    fn next_tick(&self) -> Option<Time> {
        match self.stage {
            SessionStage::Waiting(at) | SessionStage::Fetching(at) => Some(at),
            SessionStage::Done => None,
        }
    }

    /// Starts the session, or observes the transfer.
    fn on_tick(&mut self, network: &mut Network) {
        let now = network.now;
        let is_first = matches!(self.stage, SessionStage::Waiting(_));
        self.stage = SessionStage::Fetching(now + self.interval);
        if is_first {
            // Nothing can be observed during the handshake and the first request.
            self.stage = SessionStage::Fetching(now + self.interval + network.rtt() * 2);
            self.begun.interval.0 = now + network.rtt() * 2;
            self.request(network);
            return;
        }
        self.observe(network);
    }

    /// Requests the next chunk over the tuner's number of connections; completes the session if
    /// nothing is left.
    fn request(&mut self, network: &mut Network) {
        if self.left == 0 {
            (self.stage, self.record.ends) = (SessionStage::Done, Some(network.now.since(Time::START)));
            network.connect(self.download, 0);
            return;
        }
        let size =
            self.tuner.chunk().map_or(self.left, |size| size.get().div_ceil(self.payload.get().max(1)));
        let packets = size.clamp(1, self.left);
        self.left -= packets;
        self.chunk = (network.now, packets);
        network.connect(self.download, self.tuner.streams().max(1));
        network.request(self.download, packets);
    }

    /// Records that all requested packets have arrived.
    fn completed(&mut self, network: &mut Network) {
        let (from, packets) = self.chunk;
        let goodput = Rate::over(self.payload * packets, network.now.since(from));
        self.record.chunks.push(ChunkRecord {
            from: from.since(Time::START),
            to: network.now.since(Time::START),
            streams: self.tuner.streams(),
            goodput,
        });
        self.tuner.chunk_done(goodput);
        if self.reconnects {
            network.connect(self.download, 0);
        }
        self.request(network);
    }

    fn observe(&mut self, network: &mut Network) {
        let now = network.now;
        let counts = network.counts(self.download);
        self.record_second(now, counts);
        let (from, before) = std::mem::replace(&mut self.begun.interval, (now, counts));
        let Some(rtt) = counts.least_rtt else { return };
        let seen = counts - before;
        let interval = Interval {
            goodput: Rate::over(self.payload * seen.arrived, now.since(from)),
            rtt: Rtt::new(rtt),
            data_rtt: mean(seen.rtts, seen.arrived).map(Rtt::new),
            streams: network.carried(self.download),
            out_of_order: seen.out_of_order,
            left: self.payload * network.missing(self.download) + self.payload * self.left,
            held_back: false,
            pressure: 0.0,
        };
        let wanted = self.tuner.observe(&interval, now.since(Time::START + self.record.begins));
        network.connect(self.download, wanted.max(1));
    }

    fn record_second(&mut self, now: Time, counts: PacketCounts) {
        let (from, before) = self.begun.second;
        let time = now.since(from);
        if time >= SECOND {
            self.begun.second = (now, counts);
            self.record.seconds.push(SecondRecord {
                at: now.since(Time::START),
                goodput: Rate::over(self.payload * (counts.arrived - before.arrived), time),
                streams: self.tuner.streams(),
            });
        }
    }
}

fn mean(sum: Duration, of: u64) -> Option<Duration> {
    (of > 0).then(|| sum.div_f64(of as f64))
}
