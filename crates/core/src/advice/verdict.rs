//! From shares and evidence to sentences: what limited a transfer, how that was seen, and the cure with what it gains.

use std::time::Duration;

use super::attribution::{Attribution, Evidence};
use super::reading::End;
use super::{Finding, LONG_RTT, LimitedBy, TIMESTAMP_TICK};
use crate::plan::window_ceiling;
use crate::units::{Bytes, Rate, Rtt};

/// How far the kernel of this host may raise buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostLimits {
    /// `net.ipv4.tcp_rmem[2]`.
    pub tcp_rmem_max: Option<Bytes>,
    /// `net.ipv4.tcp_wmem[2]`.
    pub tcp_wmem_max: Option<Bytes>,
}

/// A transfer that ends before a reading covers it shows no limit that could be raised (the interval of [`Attribution`]).
const SHORTEST: Duration = Duration::from_millis(100);
/// What ten segments of the initial window hold (RFC 6928): such a transfer is one round trip after its request.
const INITIAL_WINDOW: Bytes = Bytes::new(14_600);
/// The round trips of a transfer of the initial window: two handshakes, a request and its answer, one spare.
const FEW_ROUND_TRIPS: u32 = 4;
/// A share from which on a second cause is named too.
const ALSO: f64 = 0.1;
/// A buffer for 10 Gbit/s at 200 ms, whose BDP is 250 MB.
const LARGE_BUFFER: Bytes = Bytes::mib(256);
/// A standing queue that adds this factor to the RTT is worth a word.
const BLOATED: f64 = 2.0;

/// Returns what held a transfer back for longest.
pub(super) fn finding(attribution: &Attribution, host: &HostLimits) -> Finding {
    let shares = attribution.shares();
    let ranked = shares.ranked();
    let Some((limit, share)) = ranked.first().copied() else {
        return Finding { limit: LimitedBy::default(), shares, advice: Vec::new() };
    };
    if is_too_short(attribution) {
        return Finding { limit, shares, advice: Vec::new() };
    }
    let evidence = attribution.evidence(limit);
    let facts = Facts { attribution, evidence, host };
    let mut advice = vec![format!(
        "limited by {} for {} of the time: {}",
        facts.phrase(limit),
        percent(share),
        facts.seen(limit)
    )];
    advice.extend(facts.cure(limit));
    let others: Vec<String> = ranked
        .iter()
        .skip(1)
        .filter(|(_, share)| *share >= ALSO)
        .map(|(limit, share)| format!("{} for {}", facts.phrase(*limit), percent(*share)))
        .collect();
    if !others.is_empty() {
        advice.push(format!("also limited by {}", others.join(", ")));
    }
    Finding { limit, shares, advice }
}

/// Returns whether a transfer was too short for its limit to be worth a sentence.
fn is_too_short(attribution: &Attribution) -> bool {
    let all = || LimitedBy::ALL.into_iter().map(|limit| attribution.evidence(limit));
    let (time, moved) = all().fold((Duration::ZERO, Bytes::ZERO), |(time, moved), evidence| {
        (time + evidence.time, moved + evidence.moved)
    });
    let rtt = all().filter_map(|evidence| evidence.min_rtt).min().unwrap_or_default().get();
    time < SHORTEST || (moved <= INITIAL_WINDOW && moved > Bytes::ZERO && time < rtt * FEW_ROUND_TRIPS)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).clamp(1.0, 100.0))
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{:.0} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// What a verdict is made of.
struct Facts<'a> {
    attribution: &'a Attribution,
    /// Of the dominant limit.
    evidence: &'a Evidence,
    host: &'a HostLimits,
}

impl Facts<'_> {
    fn sends(&self) -> bool {
        self.attribution.observed_at() == End::Sender
    }

    /// Returns whether the limit held only while the complete file was made durable.
    fn is_at_the_end(&self) -> bool {
        !self.sends() && self.evidence.settled == self.evidence.time
    }

    fn phrase(&self, limit: LimitedBy) -> &'static str {
        match limit {
            LimitedBy::ReceiveWindow if self.sends() => "the receiver's window",
            _ => limit.phrase(),
        }
    }

    /// Says how the limit was seen.
    fn seen(&self, limit: LimitedBy) -> String {
        let Evidence { lost, window, streams, .. } = *self.evidence;
        let rate = self.evidence.rate();
        let rtt = self.evidence.min_rtt.unwrap_or_default();
        let each = self.evidence.in_flight_per_stream();
        match limit {
            LimitedBy::SlowStart => self.slow_start(),
            LimitedBy::ReceiveWindow => {
                let ceiling = window_ceiling(window, rtt.max(Rtt::new(Duration::from_micros(1))));
                format!("{rate} of at most RWIN/RTT = {window} / {rtt} = {ceiling}")
            }
            LimitedBy::SendBuffer => {
                let most =
                    self.host.tcp_wmem_max.map_or_else(String::new, |max| format!(", of at most {max},"));
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
            LimitedBy::Server if self.sends() => "it was slow to read or to answer".into(),
            LimitedBy::Server => {
                let over =
                    if streams == 1 { "one connection".into() } else { format!("{streams} connections") };
                // What is in flight is told by a rate and an RTT.
                let in_flight =
                    if rtt.get() >= LONG_RTT { format!(", {each} in flight on each") } else { String::new() };
                format!(
                    "it sends {rate} over {over}{in_flight}, although window and path have room: a rate limit, shaping of each \
                     connection, or a small send buffer"
                )
            }
            LimitedBy::Limit => format!("it held the rate at {rate}"),
            LimitedBy::Application if self.sends() => "it gave the connection no data to send".into(),
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
            Some(rtt) if rtt.get() < LONG_RTT => {
                format!(
                    "{rate} is what path and server give; at an RTT of {rtt} neither windows nor single losses limit"
                )
            }
            _ => format!("{rate} is what it holds, beside other traffic"),
        }
    }

    /// Returns the least RTT, and that of the data behind a queue that is worth a word. Below a millisecond, the unit of timestamps,
    /// delays are those of the hosts.
    fn bloat(&self) -> Option<(Rtt, Rtt)> {
        let (least, data) = self.evidence.min_rtt.zip(self.evidence.data_rtt)?;
        let bloated = data.get() > least.get().mul_f64(BLOATED) && data.get() > LONG_RTT;
        (bloated && least.get() >= TIMESTAMP_TICK).then_some((least, data))
    }

    fn slow_start(&self) -> String {
        let elapsed = self.attribution.elapsed();
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

    /// Says which knob to turn, and what that gains.
    fn cure(&self, limit: LimitedBy) -> Option<String> {
        let rate = self.evidence.rate();
        let (rtt, streams) = (self.evidence.min_rtt.unwrap_or_default(), self.evidence.streams);
        let gain = |buffer: Bytes| {
            format!("{rate} -> what the path holds, up to {buffer} / {rtt} = {}", window_ceiling(buffer, rtt))
        };
        // No buffer limits a path this short, and nothing follows from its RTT.
        let is_short = rtt.get() < TIMESTAMP_TICK;
        Some(match limit {
            LimitedBy::ReceiveWindow | LimitedBy::SendBuffer | LimitedBy::ServerSendBuffer if is_short => {
                return None;
            }
            LimitedBy::ReceiveWindow => match self.host.tcp_rmem_max.filter(|_| !self.sends()) {
                Some(now) => {
                    let larger = LARGE_BUFFER.max(now * 2);
                    format!(
                        "raise net.ipv4.tcp_rmem on this host from {now} to {larger}, of which half is the window, or pass --recv-buffer: {}",
                        gain(Bytes::new(larger.get() / 2))
                    )
                }
                // A capture may be of either side.
                None => format!(
                    "raise net.ipv4.tcp_rmem on the receiver to {LARGE_BUFFER}: {}",
                    gain(Bytes::new(LARGE_BUFFER.get() / 2))
                ),
            },
            LimitedBy::SendBuffer => {
                format!("raise net.ipv4.tcp_wmem on this host to {LARGE_BUFFER}: {}", gain(LARGE_BUFFER))
            }
            LimitedBy::ServerSendBuffer => format!(
                "raise net.ipv4.tcp_wmem on the server to {LARGE_BUFFER}: {}; or double the streams, --streams {}: {rate} -> {}",
                gain(LARGE_BUFFER),
                streams * 2,
                rate.scaled(2.0)
            ),
            LimitedBy::Loss => format!(
                "use BBR at the sender, which does not take each loss for a full path, or more streams: --streams {} halves what a loss costs each, {rate} -> up to {}",
                streams * 2,
                rate.scaled(2.0)
            ),
            LimitedBy::Disk => {
                let network = self.best_without(LimitedBy::Disk);
                if self.is_at_the_end() {
                    return None;
                }
                let gain = network.map_or_else(String::new, |network| {
                    format!(": {rate} -> {network}, what the network has shown")
                });
                let what = if self.sends() {
                    "read from a faster disk"
                } else {
                    "write to a faster file system, or try another --writer"
                };
                format!("{what}{gain}")
            }
            LimitedBy::Cpu => format!(
                "spread the work over cores with --streams {}: {rate} -> up to {}",
                streams * 2,
                rate.scaled(2.0)
            ),
            LimitedBy::Server if self.evidence.moved == Bytes::ZERO || self.sends() => return None,
            LimitedBy::Server => format!(
                "use more connections where the limit is one of each: --streams {}, {rate} -> {}; or have the server's limit raised",
                streams * 4,
                rate.scaled(4.0)
            ),
            LimitedBy::SlowStart => self.warm_start()?,
            LimitedBy::Limit => self.best_without(LimitedBy::Limit).map_or_else(
                || "raise --limit, or leave it out".into(),
                |best| format!("raise --limit: {rate} -> at least {best}"),
            ),
            LimitedBy::Path => self.shorter_queue()?,
            LimitedBy::Application => return None,
        })
    }

    /// Returns the highest rate while something else was the limit, where it is higher than that of the dominant one.
    fn best_without(&self, limit: LimitedBy) -> Option<Rate> {
        let others = LimitedBy::ALL.into_iter().filter(|other| *other != limit);
        let best = others.map(|other| self.attribution.evidence(other).best).max();
        best.filter(|best| *best > self.evidence.rate())
    }

    fn warm_start(&self) -> Option<String> {
        let (best, rtt) = (self.attribution.best(), self.evidence.min_rtt?);
        if rtt.get() < LONG_RTT {
            return None;
        }
        let moved: u64 =
            LimitedBy::ALL.iter().map(|limit| self.attribution.evidence(*limit).moved.get()).sum();
        let least = rtt.get() * 2 + best.time_for(Bytes::new(moved));
        let now = self.attribution.elapsed();
        (least < now.mul_f64(0.8)).then(|| {
            format!(
                "fetch several files over one connection, or use a server that remembers the path (longhaul serve): {:.1} s -> {:.1} s at the {best} reached",
                now.as_secs_f64(),
                least.as_secs_f64()
            )
        })
    }

    fn shorter_queue(&self) -> Option<String> {
        self.bloat().map(|_| {
            format!(
                "the queue slows other traffic, not this transfer: pace the sender just below {}",
                self.evidence.rate()
            )
        })
    }
}
