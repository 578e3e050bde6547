//! One captured connection, analysed packet by packet.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::advice::{Attribution, End, KnownLimits, PacketReading, PathReading, Reading};
use longhaul_core::units::{Bytes, Rtt};

use super::Keep;
use super::arrivals::PACKET;
use super::packet::Segment;
use super::sent_segments::{SentSegments, add_halves};
use crate::diagnosis::{Diagnosis, Observation};

/// A captured connection, in the direction of most of its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// The sender of the data.
    pub from: SocketAddr,
    /// The receiver of the data.
    pub to: SocketAddr,
    /// Bytes of payload, without retransmissions.
    pub bytes: Bytes,
    /// Time of the first packet since 1970.
    pub began: Duration,
    /// Time from the first packet to the last.
    pub time: Duration,
    /// Segments retransmitted or reordered.
    pub retransmits: u64,
    /// The minimum RTT.
    pub min_rtt: Option<Rtt>,
    /// What of the connection was captured.
    pub coverage: CaptureCoverage,
    /// What limited the connection, or why the limit is unknown.
    pub diagnosis: Result<Diagnosis, Unexplained>,
    /// What was read of the packets while data moved, by the time after [`began`](Self::began);
    /// empty unless kept.
    pub(super) readings: Vec<(Duration, Reading)>,
}

/// What of a connection a capture has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureCoverage {
    /// Whether the capture was taken at the sender; `None` if unknown.
    pub at_sender: Option<bool>,
    /// Whether the handshake was captured; without it the window scale is unknown.
    pub has_handshake: bool,
}

/// Why a connection cannot be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unexplained {
    /// No packet of the reverse direction was captured.
    #[error(
        "only one direction was captured, so neither RTT nor window is known: capture both, by a filter without src or dst"
    )]
    OneDirection,
    /// Too few data packets for a diagnosis; holds their number.
    #[error("it is too short to tell what limited it: {0} packets")]
    Short(u64),
}

/// The minimum of data packets for a diagnosis.
const MIN_PACKETS: u64 = 4;
/// Interval between readings, in capture time: just above common RTTs, which it would miss by a
/// millisecond otherwise.
pub(super) const INTERVAL: Duration = Duration::from_millis(103);
/// Maximum of kept readings of a direction: more points than a chart shows.
pub(super) const MAX_READINGS: usize = 2048;

/// A packet that is stored behind one of a later time shows no RTT, unless they differ by no more
/// than the granularity of timestamps (RFC 7323, section 5.4).
const MAX_LATE: Duration = Duration::from_millis(1);

/// A connection while its packets are read.
pub(super) struct CapturedConnection {
    ends: [SocketAddr; 2],
    /// Index of the endpoint that sent the SYN.
    client: Option<usize>,
    began: Duration,
    now: Duration,
    sides: [DirectionObservation; 2],
    packets: u64,
    due: Duration,
    /// Time of the SYN until the handshake completes, and the RTT of the handshake.
    handshake: (Option<Duration>, Option<Rtt>),
}

/// One direction and its observation.
struct DirectionObservation {
    sent: SentSegments,
    observation: Observation,
    /// `None` if no reading is kept.
    readings: Option<KeptReadings>,
    seen: u64,
}

impl DirectionObservation {
    /// Observes a reading, and keeps it with the packets that were `lost` as the end of the capture
    /// counts them.
    fn observe(&mut self, at: Duration, reading: Reading, lost: u64) {
        self.observation.observe(at, &reading);
        if let Some(readings) = &mut self.readings {
            let packets = PacketReading { lost, ..reading.packets };
            readings.push(at, Reading { packets, ..reading });
        }
        self.sent.next_interval();
    }
}

/// Readings of the whole time, of which fewer are kept the longer that is.
#[derive(Default)]
pub(super) struct KeptReadings {
    pub(super) readings: Vec<(Duration, Reading)>,
    /// The least time between two of them.
    spacing: Duration,
}

impl KeptReadings {
    pub(super) fn push(&mut self, at: Duration, reading: Reading) {
        if let [.., (before, earlier), (last, later)] = &self.readings[..] {
            // Of a pause, its first and last reading are kept.
            let is_pause = earlier.moved == reading.moved && later.moved == reading.moved;
            if is_pause || *last - *before < self.spacing {
                self.readings.pop();
            }
        }
        self.readings.push((at, reading));
        if self.readings.len() == MAX_READINGS {
            let mut number = 0;
            self.readings.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.spacing = self.spacing.max(INTERVAL) * 2;
        }
    }
}

impl CapturedConnection {
    pub(super) fn new(first: &Segment, at: Duration, keep: Keep) -> Self {
        let is_client = first.acknowledgment.is_none();
        let attribution = Attribution::new(End::Receiver).of_packets();
        let side = |of_first: bool| DirectionObservation {
            sent: SentSegments::default(),
            // What the client sends; without a handshake neither end is the client.
            observation: Observation::new(
                attribution.clone().with_client_peer(first.syn && of_first == is_client),
                Default::default(),
            ),
            readings: (keep == Keep::Readings).then(KeptReadings::default),
            seen: 0,
        };
        Self {
            ends: [first.from, first.to],
            client: None,
            began: at,
            now: at,
            sides: [side(true), side(false)],
            packets: 0,
            due: INTERVAL,
            handshake: (None, None),
        }
    }

    pub(super) fn add(&mut self, at: Duration, segment: &Segment) {
        let is_late = at + MAX_LATE < self.now;
        self.now = self.now.max(at);
        let at = self.now - self.began;
        // Closes every interval that ends before this packet.
        while at >= self.due {
            // A pause counts as one interval.
            let pause = at - self.due;
            self.read(self.due);
            if pause > INTERVAL {
                self.due = at - INTERVAL;
                self.read(self.due);
            }
            self.due += INTERVAL;
        }
        self.packets += 1;
        let from = usize::from(segment.from != self.ends[0]);
        self.handshake(at, from, segment);
        if segment.syn && segment.options.scale.is_none() {
            self.sides.iter_mut().for_each(|side| side.sent.window.refuse_scale());
        }
        self.sides[from].seen += 1;
        self.sides[from].sent.add(at, segment);
        self.sides[1 - from].sent.answered(at, segment);
        if is_late {
            self.sides.iter_mut().for_each(|side| side.sent.times.forget());
        }
    }

    /// Measures the RTT from the SYN to the ACK of the SYN-ACK: a full round trip at any capture
    /// point.
    fn handshake(&mut self, at: Duration, from: usize, segment: &Segment) {
        match (segment.syn, segment.acknowledgment) {
            (true, None) => (self.client, self.handshake.0) = (Some(from), Some(at)),
            (true, Some(_)) => self.client = Some(1 - from),
            (false, Some(_)) if self.client == Some(from) && self.sides[1 - from].seen > 0 => {
                if let (Some(began), None) = self.handshake {
                    self.handshake.1 = Some(Rtt::new(at.saturating_sub(began)));
                }
            }
            _ => {}
        }
    }

    fn min_rtt(&self, side: usize) -> Option<Rtt> {
        let sent = &self.sides[side].sent;
        let parts = add_halves(sent.times.to_ack.ever, self.sides[1 - side].sent.times.to_echo.ever);
        // Without timestamps only the RTT at the sender is known: from data to acknowledgement.
        self.handshake.1.into_iter().chain(parts).min().or(sent.times.to_ack.ever.map(Rtt::new))
    }

    /// Returns whether the capture was taken at the sender of this data: data and acknowledgement
    /// are a round trip apart at the sender, and close together at the receiver.
    fn at_sender(&self, side: usize) -> Option<bool> {
        let to_ack = self.sides[side].sent.times.to_ack.ever?;
        Some(to_ack * 2 > self.min_rtt(side)?.get())
    }

    /// Observes one reading of each direction.
    fn read(&mut self, at: Duration) {
        for side in [0, 1] {
            let reading = self.reading(side, at);
            let lost = self.sides[side].sent.losses_seen(self.at_sender(side) == Some(true));
            self.sides[side].observe(at, reading, lost);
        }
    }

    fn reading(&self, side: usize, at: Duration) -> Reading {
        let (sent, other) = (&self.sides[side].sent, &self.sides[1 - side].sent);
        let at_sender = self.at_sender(side) == Some(true);
        // At the sender the RTT is that of the acknowledgements alone; an echo of a timestamp
        // contains a sender's pauses.
        let own_rtt = sent.times.to_ack.lately.filter(|_| at_sender).map(Rtt::new);
        let data_rtt = own_rtt.or_else(|| add_halves(sent.times.to_ack.lately, other.times.to_echo.lately));
        let has_reports = sent.reported.out_of_order > 0;
        Reading {
            moved: sent.numbers.moved(),
            streams: 1,
            path: PathReading {
                min_rtt: self.min_rtt(side),
                data_rtt,
                in_flight: at_sender.then(|| Bytes::new(sent.most_in_flight)),
            },
            window: other.window.get(),
            unread: other.window.unread(),
            // What is captured may be lost on its way to the receiver, which reports gaps by SACK.
            packets: PacketReading {
                arrived: if has_reports { sent.reported.packets() } else { sent.payload / PACKET },
                lost: if has_reports { sent.reported.out_of_order } else { sent.losses_seen(at_sender) },
                age: if at_sender { Duration::ZERO } else { sent.data_age(at) },
            },
            unscaled: sent.window.is_unscaled,
            ..Reading::default()
        }
    }

    /// Ends the connection; `None` if it carried no data.
    pub(super) fn end(mut self) -> Option<Flow> {
        let time = self.now - self.began;
        self.read(time);
        let more = |side: &usize| self.sides[*side].sent.payload;
        let from = [0, 1].into_iter().max_by_key(more).filter(|side| more(side) > 0)?;
        let (min_rtt, at_sender) = (self.min_rtt(from), self.at_sender(from));
        let [first, second] = self.sides;
        let (sender, receiver) = if from == 0 { (first, second) } else { (second, first) };
        let diagnosis = if receiver.seen == 0 || !sender.sent.numbers.is_acknowledged() {
            Err(Unexplained::OneDirection)
        } else if self.packets < MIN_PACKETS {
            Err(Unexplained::Short(self.packets))
        } else {
            Ok(sender.observation.end(&KnownLimits::default()))
        };
        Some(Flow {
            from: self.ends[from],
            to: self.ends[1 - from],
            bytes: sender.sent.numbers.moved(),
            began: self.began,
            time,
            retransmits: sender.sent.retransmits,
            min_rtt,
            coverage: CaptureCoverage { at_sender, has_handshake: receiver.sent.window.has_scale() },
            diagnosis,
            readings: sender.readings.map(|kept| kept.readings).unwrap_or_default(),
        })
    }
}
