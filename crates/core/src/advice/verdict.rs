//! From shares and evidence to sentences: what limited a transfer, and how that was seen.

use std::time::Duration;

use super::attribution::{Attribution, Evidence};
use super::cure::Cure;
use super::params;
use super::reading::{End, SenderPace};
use super::witness::Witness;
use super::{Finding, LONG_RTT, LimitedBy, TIMESTAMP_TICK};
use crate::buffer_plan::window_ceiling;
use crate::units::{Bytes, Rate, Rtt};

/// What is known of a transfer beside its readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownLimits {
    /// `net.ipv4.tcp_rmem[2]`.
    pub tcp_rmem_max: Option<Bytes>,
    /// `net.ipv4.tcp_wmem[2]`.
    pub tcp_wmem_max: Option<Bytes>,
    /// `net.core.rmem_max`, where it bounds what this program sets.
    pub rmem_max: Option<Bytes>,
    /// The clamp that this program has set on a connection's receive window.
    pub window_clamp: Option<Bytes>,
    /// Whether `net.ipv4.tcp_window_scaling` of this host is set.
    pub window_scaling: Option<bool>,
    /// The receive buffer that the user has set.
    pub recv_buffer: Option<Bytes>,
    /// Whether `--pace` sets the rate limit.
    pub limit_is_pace: bool,
    /// Whether a share of the limit of many hosts sets the rate limit.
    pub limit_is_farms: bool,
    /// Whether the output is a pipe or a socket (`-o -`).
    pub to_pipe: bool,
    /// The rate that an earlier transfer or probe found on the path.
    pub path_rate: Option<Rate>,
}

/// A transfer that ends before a reading covers it shows no limit that could be raised (the
/// interval of [`Attribution`]).
pub(super) const SHORTEST: Duration = Duration::from_millis(100);
/// What ten segments of the initial window hold (RFC 6928): such a transfer is one round trip after
/// its request.
const INITIAL_WINDOW: Bytes = Bytes::new(14_600);
/// The round trips of a transfer of the initial window: two handshakes, a request and its answer,
/// one spare.
const FEW_ROUND_TRIPS: u32 = 4;
/// A standing queue that adds this factor to the RTT is worth a word.
const BLOATED: f64 = 2.0;

/// Returns what held a transfer back for longest.
pub(super) fn finding(attribution: &Attribution, known: &KnownLimits) -> Finding {
    let shares = attribution.shares();
    let ranked = shares.ranked();
    let Some((limit, share)) = ranked.first().copied() else {
        return Finding { shares, ..Finding::default() };
    };
    if is_too_short(attribution) {
        return Finding { limit, shares, witnesses: attribution.witnesses(), ..Finding::default() };
    }
    let facts = Facts { attribution, evidence: attribution.evidence(limit), known };
    let mut advice = vec![format!(
        "limited by {} for {} of the time: {}",
        facts.phrase(limit),
        percent(share),
        facts.seen(limit)
    )];
    let cure = facts.cure(limit);
    advice.extend(cure.iter().map(|Cure { change, gain }| format!("{change}{gain}")));
    advice.extend(further_limits(&ranked, |limit| facts.phrase(limit)));
    let change = cure.map(|cure| cure.change);
    Finding { limit, shares, witnesses: attribution.witnesses(), advice, change }
}

/// Names the limits after the first of `ranked` that are worth a word.
pub(super) fn further_limits(
    ranked: &[(LimitedBy, f64)],
    phrase: impl Fn(LimitedBy) -> &'static str,
) -> Option<String> {
    /// A share from which on a further limit is named.
    const NAMED: f64 = 0.1;
    let named = ranked.iter().skip(1).filter(|(_, share)| *share >= NAMED);
    let named: Vec<_> =
        named.map(|(limit, share)| format!("{} for {}", phrase(*limit), percent(*share))).collect();
    (!named.is_empty()).then(|| format!("also limited by {}", named.join(", ")))
}

/// Returns whether a transfer was too short for its limit to be worth a sentence.
fn is_too_short(attribution: &Attribution) -> bool {
    let (time, moved) = attribution.observed();
    let rtts = LimitedBy::ALL.into_iter().filter_map(|limit| attribution.evidence(limit).min_rtt);
    let rtt = rtts.min().unwrap_or_default().get();
    time < SHORTEST || (moved <= INITIAL_WINDOW && moved > Bytes::ZERO && time < rtt * FEW_ROUND_TRIPS)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).clamp(1.0, 100.0))
}

pub(super) fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{:.0} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// What a verdict is made of.
pub(super) struct Facts<'a> {
    pub(super) attribution: &'a Attribution,
    /// Of the dominant limit.
    pub(super) evidence: Evidence,
    pub(super) known: &'a KnownLimits,
}

impl Facts<'_> {
    pub(super) fn sends(&self) -> bool {
        self.attribution.end == End::Sender
    }

    /// Returns whether the server is the receiver: of what is sent here, or of a captured upload.
    pub(super) fn server_receives(&self) -> bool {
        self.sends() || self.attribution.main_witness(LimitedBy::Server) == Witness::ClosedWindow
    }

    /// Returns whether the program that is observed had nothing to send, rather than another one to
    /// read.
    pub(super) fn lacks_data(&self) -> bool {
        self.sends() && self.attribution.main_witness(LimitedBy::Application) != Witness::Unread
    }

    /// Returns whether this program has moved the data, so that its options apply: its threads are
    /// known.
    pub(super) fn is_own(&self) -> bool {
        self.attribution.latest.1.threads.is_some()
    }

    /// Returns whether the limit held only while the complete file was made durable.
    pub(super) fn is_at_the_end(&self) -> bool {
        !self.sends() && self.evidence.settled == self.evidence.time
    }

    fn phrase(&self, limit: LimitedBy) -> &'static str {
        match limit {
            LimitedBy::ReceiveWindow if self.sends() => "the receiver's window",
            LimitedBy::Limit => self.rate_option(),
            LimitedBy::Disk if self.known.to_pipe => "the reader of the output",
            _ => limit.phrase(),
        }
    }

    /// Says how the limit was seen.
    fn seen(&self, limit: LimitedBy) -> String {
        let (Evidence { lost, streams, .. }, window) = (self.evidence, self.evidence.window.largest);
        let rate = self.evidence.rate();
        let rtt = self.evidence.min_rtt.unwrap_or_default();
        let each = self.evidence.in_flight_per_stream();
        match limit {
            LimitedBy::SlowStart => self.slow_start(),
            LimitedBy::ReceiveWindow => {
                format!("{rate} of at most RWIN/RTT = {window} / {rtt} = {}", window_ceiling(window, rtt))
            }
            LimitedBy::SendBuffer => {
                let most =
                    self.known.tcp_wmem_max.map_or_else(String::new, |max| format!(", of at most {max},"));
                format!("it{most} was full, at {rate}")
            }
            LimitedBy::ServerSendBuffer => format!(
                "about {each} in flight on each connection, no loss, no queue and an open receive window: {each} / {rtt} = {}",
                window_ceiling(each, rtt)
            ),
            LimitedBy::Loss if self.sends() => {
                format!("{lost} segments were sent again, and no queue explains their loss")
            }
            LimitedBy::Loss => {
                format!("{lost} packets arrived out of order, and no queue explains their loss")
            }
            LimitedBy::Path => self.path(),
            LimitedBy::Disk if self.known.to_pipe => format!(
                "for {} it had not taken what lay in the application buffer: the pipe is slower than the network",
                seconds(self.evidence.time)
            ),
            LimitedBy::Disk if self.is_at_the_end() => format!(
                "{} to make the file durable, after its last byte had arrived",
                seconds(self.evidence.time)
            ),
            LimitedBy::Disk if self.sends() => {
                format!("the sender waited for bytes of the source, at {rate}")
            }
            LimitedBy::Disk => {
                format!("the application buffer was full, at {rate}: the output is slower than the network")
            }
            LimitedBy::Cpu => format!("one thread occupied a core, at {rate}"),
            LimitedBy::Server if self.evidence.moved == Bytes::ZERO => {
                "it was slow to answer: no byte arrived meanwhile".into()
            }
            LimitedBy::Server if self.server_receives() => "it was slow to read or to answer".into(),
            LimitedBy::Server => {
                let over =
                    if streams == 1 { "one connection".into() } else { format!("{streams} connections") };
                if let Some(pace) = self.fixed_pace() {
                    return format!("it paces each connection at {pace} (serve --pace), {rate} over {over}");
                }
                let how = match self.attribution.main_witness(limit) {
                    Witness::Pauses | Witness::StopAndGo => "it pauses between bursts, and sends",
                    Witness::Slowed => "it sends, below what the path has carried without a loss or a queue,",
                    _ => "it sends",
                };
                // What is in flight is told by a rate and an RTT.
                let in_flight =
                    if rtt.get() >= LONG_RTT { format!(", {each} in flight on each") } else { String::new() };
                format!(
                    "{how} {rate} over {over}{in_flight}, although window and path have room: a rate limit, shaping of each \
                     connection, or a small send buffer"
                )
            }
            LimitedBy::Limit => format!("it held the rate at {rate}"),
            LimitedBy::Policer => format!(
                "packets arrive at {rate}, however many are lost, and no queue delays them: what exceeds that rate is dropped"
            ),
            LimitedBy::Unknown if lost > 0 => {
                let how = if self.sends() { "were sent again" } else { "arrived out of order" };
                format!(
                    "{lost} packets {how}, which a policer, a short queue and losses at random explain alike, at {rate}"
                )
            }
            LimitedBy::Unknown => format!("no queue, no loss and no full window explains {rate}"),
            LimitedBy::Application if self.lacks_data() => "it gave the connection no data to send".into(),
            LimitedBy::Application => "it did not read what had arrived".into(),
        }
    }

    fn path(&self) -> String {
        let rate = self.evidence.rate();
        if let Some((least, data)) = self.bloat() {
            return format!(
                "{rate}, with a queue at the bottleneck that raises the RTT from {least} to {data}"
            );
        }
        match self.evidence.min_rtt {
            _ if self.is_queued() => format!("{rate}, with a queue at the bottleneck"),
            Some(rtt) if rtt.get() < LONG_RTT => {
                format!(
                    "{rate} is what path and server give; at an RTT of {rtt} neither windows nor single losses limit"
                )
            }
            _ => format!("{rate}, and no other limit was seen"),
        }
    }

    /// Returns the pace that the server's operator has set, where that limits.
    pub(super) fn fixed_pace(&self) -> Option<Rate> {
        match self.attribution.classifier.ends.pace {
            Some(SenderPace::Fixed(pace))
                if self.attribution.main_witness(LimitedBy::Server) == Witness::FixedPace =>
            {
                Some(pace)
            }
            _ => None,
        }
    }

    /// Returns whether data waited in the bottleneck's queue.
    pub(super) fn is_queued(&self) -> bool {
        self.evidence.min_rtt.zip(self.evidence.data_rtt).is_some_and(|(least, data)| {
            data.get() > (least.get() + TIMESTAMP_TICK).max(least.get().mul_f64(params::QUEUED_RTT_FACTOR))
        })
    }

    /// Returns the least RTT, and that of the data behind a queue that is worth a word. Below a
    /// millisecond, the unit of timestamps, delays are those of the hosts.
    pub(super) fn bloat(&self) -> Option<(Rtt, Rtt)> {
        let (least, data) = self.evidence.min_rtt.zip(self.evidence.data_rtt)?;
        let bloated = data.get() > least.get().mul_f64(BLOATED) && data.get() > LONG_RTT;
        (bloated && least.get() >= TIMESTAMP_TICK).then_some((least, data))
    }

    fn slow_start(&self) -> String {
        let (elapsed, _) = self.attribution.latest;
        match self.evidence.min_rtt.map(Rtt::get).filter(|rtt| *rtt >= LONG_RTT) {
            Some(rtt) => format!(
                "the whole transfer took {:.0} round trips of {}, most of which TCP needed to speed up",
                elapsed.as_secs_f64() / rtt.as_secs_f64(),
                Rtt::new(rtt)
            ),
            None => format!(
                "of {} in all, most went to connect, to the first answer and to slow start",
                seconds(elapsed)
            ),
        }
    }
}
