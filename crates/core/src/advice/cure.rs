//! Which setting bounds a transfer, and what a change of it gains.
//!
//! A cure names the setting that bounds. Its gain is never above a rate that was seen in the
//! transfer, or that an earlier one found on the path. What nothing proves is a question.

use super::verdict::{Facts, seconds};
use super::witness::Witness;
use super::{LONG_RTT, LimitedBy, TIMESTAMP_TICK};
use crate::tune::MAX_FIXED_STREAMS;
use crate::units::{Bytes, Rate, Rtt};

/// A buffer that fills 5 Gbit/s at 200 ms, whose BDP is 125 MB: half of it may be the kernel's
/// bookkeeping.
const LARGE_BUFFER: Bytes = Bytes::mib(256);
/// The largest value of `tcp_rmem` and `tcp_wmem`: a C integer (kernel,
/// net/ipv4/sysctl_net_ipv4.c).
const LARGEST_BUFFER: Bytes = Bytes::new(i32::MAX as u64);
/// A kernel's maximum bounds what fills more than one part in so many of it: the rest is
/// bookkeeping, for small packets three quarters (Linux, `tcp_scaling_ratio`), and windows are read
/// between bursts.
const PART_OF_MAXIMUM: u64 = 8;
/// Slow start that is a smaller part of the time is not worth a word: a transfer's rate varies as
/// much.
const SHORT_SLOW_START: f64 = 0.8;
/// A rate higher by less than this factor lies within the variation of a transfer's intervals (a
/// tenth, as of a standing queue).
const WORTHWHILE: f64 = 1.1;
/// What measures a gain that no reading shows.
pub(super) const PROBE: &str = "longhaul probe tells what the path holds";

/// A change of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cure {
    /// The change, or a question where nothing proves that it gains.
    pub(super) change: String,
    /// The gain, with the punctuation before it; empty if the change says all.
    pub(super) gain: String,
}

impl Cure {
    fn without_gain(change: impl Into<String>) -> Self {
        Self { change: change.into(), gain: String::new() }
    }
}

impl Facts<'_> {
    /// Returns the cure of the dominant limit. A transfer that has spent its time on connecting,
    /// and moved nothing, has none.
    pub(super) fn cure(&self, limit: LimitedBy) -> Option<Cure> {
        let change = match limit {
            LimitedBy::ReceiveWindow => self.larger_window(),
            LimitedBy::SendBuffer => self.larger_send_buffer(),
            LimitedBy::ServerSendBuffer => {
                self.trial(2, "a larger net.ipv4.tcp_wmem or a higher limit at the server")
            }
            LimitedBy::Loss => {
                let bbr =
                    if self.sends() && self.is_own() { "--congestion bbr" } else { "BBR at the sender" };
                let more = self.more_connections(2).map_or_else(String::new, |more| format!(", or {more}"));
                format!("does {bbr} gain{more}?")
            }
            LimitedBy::Disk if self.known.to_pipe => {
                "have the program that reads the output read faster".into()
            }
            LimitedBy::Disk if self.is_at_the_end() => {
                "does --writer direct gain, which leaves less to write at the end?".into()
            }
            LimitedBy::Disk if self.sends() => "read from a faster disk".into(),
            LimitedBy::Disk => "write to a faster file system".into(),
            LimitedBy::Cpu => self.trial(2, "a host with faster cores"),
            LimitedBy::Server if self.evidence.moved == Bytes::ZERO => {
                "see why the server answers late: its load, its disk, what it does first".into()
            }
            LimitedBy::Server if self.server_receives() => {
                "have the server read faster: its load or its disk".into()
            }
            LimitedBy::Server => match self.fixed_pace() {
                Some(pace) => format!("ask the server's operator to raise serve --pace above {pace}"),
                None => self.trial(4, "a higher limit at the server"),
            },
            LimitedBy::SlowStart => return self.warm_start().or_else(|| self.shared_connection()),
            LimitedBy::Limit => format!("raise {}, or leave it out", self.rate_option()),
            LimitedBy::Policer => return Some(Cure::without_gain(self.below_policer())),
            LimitedBy::Unknown => {
                return Some(Cure::without_gain(format!(
                    "{PROBE}, and a record at the server (longhaul serve --record, or a capture) what it does"
                )));
            }
            LimitedBy::Path => return Some(Cure::without_gain(self.shorter_queue())),
            LimitedBy::Application if self.lacks_data() => "have the program write sooner".into(),
            LimitedBy::Application => "have the program read faster".into(),
        };
        let gain = self.gain_without(limit, change.ends_with('?'));
        Some(Cure { change, gain })
    }

    /// Returns the option that sets the rate.
    pub(super) fn rate_option(&self) -> &'static str {
        let is_requested = self.attribution.main_witness(LimitedBy::Limit) == Witness::RequestedPace;
        match (self.known.limit_is_pace || is_requested, self.known.limit_is_farms) {
            (true, _) => "--pace",
            (false, true) => "the farm's limit",
            (false, false) => "--limit",
        }
    }

    /// Returns the question whether more connections gain, `factor` times as many, or another
    /// change.
    fn trial(&self, factor: u64, other: &str) -> String {
        match self.more_connections(factor) {
            Some(more) => format!("does {more} gain, or {other}?"),
            None => format!("does {other} gain?"),
        }
    }

    /// Returns the words for more connections, as this program or another one would open them;
    /// `None` where there are as many as permitted.
    fn more_connections(&self, factor: u64) -> Option<String> {
        let count = (self.evidence.streams * factor).clamp(2, MAX_FIXED_STREAMS as u64);
        (count > self.evidence.streams).then(|| match (self.is_own(), self.known.to_pipe) {
            (true, false) => format!("--streams {count}"),
            (true, true) => format!("-o FILE --streams {count}"),
            (false, _) => format!("using {count} connections"),
        })
    }

    /// Returns what keeps below the rate of a policer: less is lost and sent again.
    fn below_policer(&self) -> String {
        let rate = self.attribution.classifier.capped.policed.unwrap_or_else(|| self.evidence.rate());
        let option = |name| format!("{name} {}", rate.to_string().replace(' ', ""));
        let change = match (self.is_own(), self.sends()) {
            (true, true) => option("--pace"),
            (true, false) => option("--limit"),
            (false, true) => format!("a pace of {rate} at most"),
            (false, false) => format!("a limit of the program to {rate} at most"),
        };
        format!("does {change} lose less without being slower?")
    }

    /// Returns what bounds the receive window.
    fn larger_window(&self) -> String {
        if self.evidence.window.unscaled {
            let host = match self.known.window_scaling {
                Some(false) => "this host",
                Some(true) => "the other host, unless a middlebox removes the option",
                None => "the host whose SYN lacks the option",
            };
            return format!(
                "set net.ipv4.tcp_window_scaling to 1 on {host}; without it no window exceeds 64 KiB"
            );
        }
        if self.sends() {
            return "raise the receiver's buffer: net.ipv4.tcp_rmem there, or what its program sets (SO_RCVBUF)"
                .into();
        }
        let (most, rmem_max) = (self.known.tcp_rmem_max.unwrap_or_default(), self.known.rmem_max);
        let window = Bytes::new(self.evidence.window.largest.get() / self.evidence.streams.max(1));
        match self.known.recv_buffer {
            Some(set) => match rmem_max.filter(|max| *max < set) {
                Some(max) => format!(
                    "raise net.core.rmem_max on this host, which cuts --recv-buffer from {set} to {max}, or leave the option out"
                ),
                None if most > set * 2 => format!("raise --recv-buffer above {set}, or leave it out"),
                None => format!("raise --recv-buffer above {set}"),
            },
            None if self.known.window_clamp.is_some_and(|clamp| clamp * 4 <= window * 5) => {
                format!("{}, instead of the clamp that shortens queues?", self.larger_recv_buffer(window))
            }
            None if self.known.tcp_rmem_max.is_none() => {
                "raise the receiver's buffer: net.ipv4.tcp_rmem, or what its program sets (SO_RCVBUF)".into()
            }
            None => self.larger_maximum("tcp_rmem", most, window, "SO_RCVBUF"),
        }
    }

    /// Returns the begin of the question whether a larger buffer than one of which `used` is used
    /// gains.
    fn larger_recv_buffer(&self, used: Bytes) -> String {
        let larger = Bytes::mib((used.get() * 4).div_ceil(1 << 20).next_power_of_two().min(1024));
        let option = format!("--recv-buffer {}", larger.to_string().replace(' ', ""));
        match self.known.rmem_max.filter(|max| *max < larger) {
            Some(max) => format!("does {option} gain, with net.core.rmem_max raised from {max} to {larger}"),
            None => format!("does {option} gain"),
        }
    }

    /// Returns what bounds this host's send buffer.
    fn larger_send_buffer(&self) -> String {
        let rtt = self.evidence.min_rtt.unwrap_or_default();
        if rtt.get() < TIMESTAMP_TICK {
            return format!("a larger buffer gains nothing at an RTT of {rtt}");
        }
        match self.known.tcp_wmem_max {
            Some(most) => {
                self.larger_maximum("tcp_wmem", most, self.evidence.in_flight_per_stream(), "SO_SNDBUF")
            }
            None => {
                "raise the sender's buffer: net.ipv4.tcp_wmem, or what its program sets (SO_SNDBUF)".into()
            }
        }
    }

    /// Returns the cure where each connection uses `used` of a buffer that `net.ipv4.tcp_rmem`, or
    /// `tcp_wmem`, lets grow to `most`.
    fn larger_maximum(&self, name: &str, most: Bytes, used: Bytes, option: &str) -> String {
        let more = self.more_connections(2).map_or_else(String::new, |more| format!(": does {more} gain?"));
        if used * PART_OF_MAXIMUM < most {
            let permitted = format!("net.ipv4.{name} permits {most}, of which {used} is used");
            return match (self.is_own(), self.sends()) {
                (true, false) => format!("{permitted}: {}?", self.larger_recv_buffer(used)),
                (true, true) => format!("{permitted}{more}"),
                (false, _) => format!("raise what the program sets ({option}), if it sets any: {permitted}"),
            };
        }
        let larger = if most < LARGE_BUFFER { LARGE_BUFFER } else { (most * 2).min(LARGEST_BUFFER) };
        if larger > most {
            return format!("raise net.ipv4.{name} on this host from {most} to {larger}");
        }
        format!("the kernel permits no larger buffer{more}")
    }

    /// Returns the gain of a rate that the transfer had while `limit` did not hold, or that an
    /// earlier transfer had; of a question only that rate. Where nothing was moved, the gain is
    /// time.
    fn gain_without(&self, limit: LimitedBy, of_question: bool) -> String {
        if self.evidence.moved == Bytes::ZERO {
            let (limited, all) = (seconds(self.evidence.time), seconds(self.attribution.observed().0));
            return format!("{} up to {limited} of {all} saved", if of_question { "" } else { ":" });
        }
        let others = LimitedBy::ALL.into_iter().filter(|other| *other != limit);
        let best = others.map(|other| self.attribution.evidence(other).best).max().unwrap_or_default();
        let (rate, known) = (self.evidence.rate(), self.known.path_rate.unwrap_or_default());
        let how =
            if best >= known { "reached while this did not limit" } else { "which the path held before" };
        let gained = best.max(known);
        match (gained > rate.scaled(WORTHWHILE), of_question) {
            (true, false) => format!(": {rate} -> {gained}, {how}"),
            (true, true) => format!(" at most {gained} is known, {how}"),
            (false, false) => format!("; {PROBE}"),
            (false, true) => format!(" {PROBE}"),
        }
    }

    /// Returns what saves the round trips of slow start, where they are most of the time.
    fn warm_start(&self) -> Option<Cure> {
        let (best, rtt) = (self.attribution.best(), self.evidence.min_rtt?);
        // Without a byte there is no rate either.
        if rtt.get() < LONG_RTT || best == Rate::default() {
            return None;
        }
        let least = best.time_for(self.attribution.observed().1).saturating_add(rtt.get() * 2);
        let (now, _) = self.attribution.latest;
        (least < now.mul_f64(SHORT_SLOW_START)).then(|| Cure {
            change: "does a server that remembers the path gain (longhaul serve), or a connection that another file of the same run has used?".into(),
            gain: format!(
                " {:.1} s -> {:.1} s at best, at the {best} reached",
                now.as_secs_f64(),
                least.as_secs_f64()
            ),
        })
    }

    /// Returns what saves connecting and the wait for the first answer: at most the time that their
    /// intervals exceed that of their bytes.
    fn shared_connection(&self) -> Option<Cure> {
        let (time, moved) = self.attribution.observed();
        let needed = self.attribution.best().time_for(self.evidence.moved);
        let saved = self.evidence.time.saturating_sub(needed);
        (moved > Bytes::ZERO && !saved.is_zero()).then(|| Cure {
            change: "further files of the same run share its connections".into(),
            gain: format!(": up to {} of {} saved for each", seconds(saved), seconds(time)),
        })
    }

    /// Returns what shortens a standing queue, or what may share the path.
    fn shorter_queue(&self) -> String {
        if let Some((least, data)) = self.bloat() {
            let queue = Rtt::new(data.get().saturating_sub(least.get()));
            return format!(
                "the queue delays all traffic there by up to {queue}: fq_codel or CAKE at the bottleneck shortens it, which makes this transfer no faster"
            );
        }
        let known = self.known.path_rate.filter(|known| *known > self.evidence.rate().scaled(WORTHWHILE));
        match known {
            Some(known) => {
                format!("the path held {known} before: does other traffic share it now?")
            }
            None if self.is_queued() => {
                "no setting makes it faster: the sender keeps the bottleneck's queue filled".into()
            }
            None => PROBE.into(),
        }
    }
}
