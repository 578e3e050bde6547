//! Which knob to turn against a limit, and what that gains.

use super::verdict::{Facts, seconds};
use super::{LONG_RTT, LimitedBy, TIMESTAMP_TICK};
use crate::plan::{LARGEST_WINDOW, window_ceiling};
use crate::units::{Bytes, Rate, Rtt};

/// A buffer that fills 5 Gbit/s at 200 ms, whose BDP is 125 MB: half of it may be the kernel's bookkeeping.
const LARGE_BUFFER: Bytes = Bytes::mib(256);
/// The largest value of `tcp_rmem` and `tcp_wmem`: a C integer (kernel, net/ipv4/sysctl_net_ipv4.c).
const LARGEST_BUFFER: Bytes = Bytes::new(i32::MAX as u64);
/// Slow start that is a smaller part of the time is not worth a word: a transfer's rate varies as much.
const SHORT_SLOW_START: f64 = 0.8;
/// A rate higher by less than this factor lies within the variation of a transfer's intervals (a tenth, as of a standing queue).
const WORTHWHILE: f64 = 1.1;
/// What measures a gain that no reading shows.
const PROBE: &str = "longhaul probe tells what the path holds";

impl Facts<'_> {
    /// Returns the cure of the dominant limit as a sentence, with the gain where readings or earlier transfers show it. A transfer that
    /// has spent its time on connecting, and moved nothing, has none.
    pub(super) fn cure(&self, limit: LimitedBy) -> Option<String> {
        let rate = self.evidence.rate();
        let (rtt, streams) = (self.evidence.min_rtt.unwrap_or_default(), self.evidence.streams);
        let gain = |buffer: Bytes| {
            let window = Bytes::new(buffer.get() / 2).min(LARGEST_WINDOW);
            format!("{rate} -> what the path holds, up to {window} / {rtt} = {}", window_ceiling(window, rtt))
        };
        Some(match limit {
            LimitedBy::ReceiveWindow => match self.known.tcp_rmem_max.filter(|_| !self.sends()) {
                Some(now) => {
                    let larger = LARGE_BUFFER.max(now * 2).min(LARGEST_BUFFER);
                    format!(
                        "raise net.ipv4.tcp_rmem on this host from {now} to {larger}, of which half is the window, or pass --recv-buffer: {}",
                        gain(larger)
                    )
                }
                // A capture may be of either side.
                None => format!(
                    "raise net.ipv4.tcp_rmem on the receiver to {LARGE_BUFFER}: {}",
                    gain(LARGE_BUFFER)
                ),
            },
            LimitedBy::SendBuffer if rtt.get() < TIMESTAMP_TICK => {
                format!("a larger buffer gains nothing at an RTT of {rtt}: {PROBE}")
            }
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
            LimitedBy::Disk if self.is_at_the_end() => format!(
                "use --writer direct, which leaves less to write at the end, or a faster disk: up to {} of {} saved",
                seconds(self.evidence.time),
                seconds(self.attribution.observed().0)
            ),
            LimitedBy::Disk if self.sends() => {
                format!("read from a faster disk{}", self.gain_without(limit))
            }
            LimitedBy::Disk => {
                format!("write to a faster file system, or try another --writer{}", self.gain_without(limit))
            }
            LimitedBy::Cpu => format!(
                "spread the work over cores with --streams {}: {rate} -> up to {}",
                streams * 2,
                rate.scaled(2.0)
            ),
            LimitedBy::Server if self.evidence.moved == Bytes::ZERO => format!(
                "see why the server answers late: its load, its disk, what it does first: up to {} of {} saved",
                seconds(self.evidence.time),
                seconds(self.attribution.observed().0)
            ),
            LimitedBy::Server if self.sends() => {
                format!("have the server read faster: its load or its disk{}", self.gain_without(limit))
            }
            LimitedBy::Server => format!(
                "use more connections where the limit is one of each: --streams {}, {rate} -> {}; or have the server's limit raised",
                streams * 4,
                rate.scaled(4.0)
            ),
            LimitedBy::SlowStart => return self.warm_start().or_else(|| self.shared_connection()),
            LimitedBy::Limit => format!("raise --limit, or leave it out{}", self.gain_without(limit)),
            LimitedBy::Path => self.shorter_queue().unwrap_or_else(|| self.less_traffic()),
            LimitedBy::Policer => {
                format!(
                    "keep below the policed rate, so that less is lost and sent again: --limit {}",
                    rate.scaled(0.95)
                )
            }
            LimitedBy::Unknown => {
                format!(
                    "{PROBE}, and a record at the server (longhaul serve --record, or a capture) what it does"
                )
            }
            LimitedBy::Application if self.sends() => {
                format!("have the program write sooner{}", self.gain_without(limit))
            }
            LimitedBy::Application => {
                format!("have the program read faster{}", self.gain_without(limit))
            }
        })
    }

    /// Returns the gain of a rate that the transfer had while `limit` did not hold, or that an earlier transfer had; without one, what
    /// would measure it.
    fn gain_without(&self, limit: LimitedBy) -> String {
        let others = LimitedBy::ALL.into_iter().filter(|other| *other != limit);
        let best = others.map(|other| self.attribution.evidence(other).best).max().unwrap_or_default();
        let (rate, known) = (self.evidence.rate(), self.known.path_rate.unwrap_or_default());
        let (gained, how) = if best >= known {
            (best, "reached while this did not limit")
        } else {
            (known, "which the path held before")
        };
        if gained > rate.scaled(WORTHWHILE) {
            format!(": {rate} -> {gained}, {how}")
        } else {
            format!("; {PROBE}")
        }
    }

    /// Returns what saves the round trips of slow start, where they are most of the time.
    fn warm_start(&self) -> Option<String> {
        let (best, rtt) = (self.attribution.best(), self.evidence.min_rtt?);
        // Without a byte there is no rate either.
        if rtt.get() < LONG_RTT || best == Rate::default() {
            return None;
        }
        let least = best.time_for(self.attribution.observed().1).saturating_add(rtt.get() * 2);
        let now = self.attribution.elapsed();
        (least < now.mul_f64(SHORT_SLOW_START)).then(|| {
            format!(
                "{} several files over one connection, or use a server that remembers the path (longhaul serve): {:.1} s -> {:.1} s at the {best} reached",
                if self.sends() { "send" } else { "fetch" },
                now.as_secs_f64(),
                least.as_secs_f64()
            )
        })
    }

    /// Returns what saves connecting and the wait for the first answer: at most the time that their intervals exceed that of their bytes.
    fn shared_connection(&self) -> Option<String> {
        let (time, moved) = self.attribution.observed();
        let needed = self.attribution.best().time_for(self.evidence.moved);
        let saved = self.evidence.time.saturating_sub(needed);
        (moved > Bytes::ZERO && !saved.is_zero()).then(|| {
            format!(
                "move several files in one run, which share connections: up to {} of {} saved for each after the first",
                seconds(saved),
                seconds(time)
            )
        })
    }

    /// Returns what empties a standing queue, whose gain is a delay.
    fn shorter_queue(&self) -> Option<String> {
        let (least, data) = self.bloat()?;
        let queue = Rtt::new(data.get().saturating_sub(least.get()));
        Some(format!(
            "the queue slows other traffic, not this transfer: pace the sender just below {}, which keeps the rate and empties the queue of {queue}: RTT {data} -> {least}",
            self.evidence.rate()
        ))
    }

    /// Says that no setting helps against a path's capacity, and what other traffic leaves of it.
    fn less_traffic(&self) -> String {
        let rate = self.evidence.rate();
        let known: Option<Rate> = self.known.path_rate.filter(|known| *known > rate.scaled(WORTHWHILE));
        known.map_or_else(
            || format!("no setting makes it faster; {PROBE}"),
            |known| {
                format!(
                    "no setting makes it faster, less traffic beside it may: {rate} -> {known}, which the path held before"
                )
            },
        )
    }
}
