//! The rates of TCP connections, from the bytes that have arrived over time.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::units::{Bytes, Rate, Rtt};

/// The bytes that have arrived at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The time since the start of the measurement.
    pub at: Duration,
    /// The payload received since the start.
    pub bytes: Bytes,
}

/// The bounds of a rate that was not measured more exactly, as that of a connection in slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RateRange {
    /// The lower bound; zero if there is none.
    pub least_bps: Rate,
    /// The upper bound.
    pub most_bps: Rate,
}

impl fmt::Display for RateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.least_bps {
            least if least == Rate::default() => f.pad(&format!("up to {}", self.most_bps)),
            least => f.pad(&format!("{least} to {}", self.most_bps)),
        }
    }
}

/// The shortest window of the burst rate: a shorter one is distorted by the receiver's wake-ups,
/// which are 1 to 2 ms late.
const WINDOW: Duration = Duration::from_millis(20);
/// The smallest payload of a window at the mean rate, so that its number of packets is not too
/// coarse.
const WINDOW_BYTES: Bytes = Bytes::kib(32);
/// The last part of the time, in which a connection counts as steady.
const STEADY_SHARE: f64 = 0.5;
/// The shortest time of a sustained rate, longer than hosts and Wi-Fi links delay packets to
/// deliver them together.
const SUSTAINED: Duration = Duration::from_millis(250);
/// Headers of IPv4 and TCP with timestamps (RFC 7323).
const TCP_HEADERS: u64 = 52;

/// Returns the rate within the bursts of a flow: half of its bytes lie in a window of this rate or
/// a higher one. A window takes at least 20 ms and starts at any arrival, because windows of a
/// fixed grid include the pauses beside a burst. `None` for a flow shorter than two windows.
///
/// Acknowledgements clock a connection in slow start: each flight leaves the bottleneck at the
/// bottleneck's rate, even before the flights fill the RTT.
pub fn burst_rate(progress: &[Progress]) -> Option<Rate> {
    let (first, last) = (progress.first()?, progress.last()?);
    let span = last.at.saturating_sub(first.at);
    let mean = Rate::over(last.bytes.saturating_sub(first.bytes), span);
    let window = WINDOW.max(mean.time_for(WINDOW_BYTES));
    if span < window.saturating_mul(2) {
        return None;
    }
    // The windows that include a step, with decreasing bytes: both ends of a later window are
    // later.
    let mut included: VecDeque<(usize, u64)> = VecDeque::new();
    // For each step of the progress, the most bytes of a window that includes it, and the step's
    // own.
    let mut steps: Vec<(u64, u64)> = progress
        .windows(2)
        .zip(sliding(progress, window))
        .map(|(two, (step, to, bytes))| {
            while included.back().is_some_and(|(_, fewer)| *fewer <= bytes) {
                included.pop_back();
            }
            included.push_back((to, bytes));
            while included.front().is_some_and(|(to, _)| *to <= step) {
                included.pop_front();
            }
            let most = included.front().map_or(0, |(_, bytes)| *bytes);
            (most, two[1].bytes.saturating_sub(two[0].bytes).get())
        })
        .collect();
    let half = steps.iter().map(|(_, own)| own).sum::<u64>() / 2;
    steps.sort_unstable_by(|one, other| other.cmp(one));
    let mut seen = 0;
    let (median, _) = steps.into_iter().find(|(_, own)| {
        seen += own;
        seen >= half
    })?;
    (median > 0).then(|| Rate::over(Bytes::new(median), window))
}

/// Returns the windows of this time that start at each entry: the first and the last entry, and the
/// bytes between.
fn sliding(progress: &[Progress], window: Duration) -> impl Iterator<Item = (usize, usize, u64)> {
    let mut to = 0;
    progress.iter().enumerate().map(move |(from, start)| {
        while progress.get(to + 1).is_some_and(|next| next.at <= start.at + window) {
            to += 1;
        }
        (from, to, progress[to].bytes.saturating_sub(start.bytes).get())
    })
}

/// Returns the highest rate over one RTT, at least 250 ms; a shorter flow counts as if it had
/// lasted so long.
pub fn sustained_rate(progress: &[Progress], rtt: Rtt) -> Rate {
    let over = rtt.get().max(SUSTAINED);
    let (Some(start), Some(end)) = (progress.first(), progress.last()) else { return Rate::default() };
    let rate = |from: &Progress, to: &Progress| {
        Rate::over(to.bytes.saturating_sub(from.bytes), to.at.saturating_sub(from.at).max(over))
    };
    let mut best = rate(start, end);
    let mut from = 0;
    for last in progress {
        while progress[from + 1..].first().is_some_and(|next| next.at + over <= last.at) {
            from += 1;
        }
        best = best.max(rate(&progress[from], last));
    }
    best
}

/// Returns the burst rate, limited to the sustained rate times its growth. The burst rate alone is
/// too high if packets were delayed and delivered together (GRO, Wi-Fi, a stalled receiver).
pub fn supported_rate(progress: &[Progress], rtt: Rtt) -> Rate {
    let sustained = sustained_rate(progress, rtt);
    burst_rate(progress).map_or(sustained, |burst| burst.min(sustained.scaled(growth(progress, rtt))))
}

/// Returns the ratio of the rate at the end of the flow to the rate one sustained period before: 1
/// to 2, because slow start doubles per RTT; 2 if the flow is too short.
fn growth(progress: &[Progress], rtt: Rtt) -> f64 {
    const SLOW_START_GROWTH: f64 = 2.0;
    let over = rtt.get().max(SUSTAINED);
    let (Some(first), Some(last)) = (progress.first(), progress.last()) else { return SLOW_START_GROWTH };
    let ago = |periods: u32| last.at.checked_sub(over * periods).filter(|at| *at >= first.at);
    let Some((one, two)) = ago(1).zip(ago(2)) else { return SLOW_START_GROWTH };
    let until = |at: Duration| {
        let known = progress.partition_point(|progress| progress.at <= at).saturating_sub(1);
        progress[known].bytes.get() as f64
    };
    let (late, before) = (last.bytes.get() as f64 - until(one), until(one) - until(two));
    if before > 0.0 { (late / before).clamp(1.0, SLOW_START_GROWTH) } else { SLOW_START_GROWTH }
}

/// Returns the mean rate over the second half of the time; zero for an empty flow.
pub fn steady_rate(progress: &[Progress]) -> Rate {
    let (Some(first), Some(last)) = (progress.first(), progress.last()) else { return Rate::default() };
    let from = last.at.saturating_sub((last.at.saturating_sub(first.at)).mul_f64(STEADY_SHARE));
    let Some(middle) = progress.iter().find(|progress| progress.at >= from) else { return Rate::default() };
    Rate::over(last.bytes.saturating_sub(middle.bytes), last.at.saturating_sub(middle.at))
}

/// Returns whether the rates of the last two quarters of the time are equal: the rate no longer
/// grows.
pub fn is_flat(progress: &[Progress]) -> bool {
    /// The largest relative difference of equal rates.
    const SAME: f64 = 0.15;
    let [before, after] = last_quarters(progress).map(|rate| rate.as_bits_per_sec() as f64);
    before > 0.0 && (after / before - 1.0).abs() < SAME
}

/// Returns the bounds of the rate of a flow that is not flat: the lower rate of the last half and
/// the last quarter of its time, and the highest of a window of 10 ms, which a flight of slow start
/// fills before it fills one of the burst rate. After losses the windows are left out: bytes behind
/// a lost packet arrive at once.
pub fn rate_range(progress: &[Progress], had_losses: bool) -> RateRange {
    let window = WINDOW / 2;
    let bytes = sliding(progress, window).map(|(_, _, bytes)| bytes).max().filter(|_| !had_losses);
    let fastest = Rate::over(Bytes::new(bytes.unwrap_or_default()), window);
    let ([before, last], half) = (last_quarters(progress), steady_rate(progress));
    RateRange { least_bps: half.min(last), most_bps: fastest.max(before).max(last).max(half) }
}

/// Returns the rates of the last two quarters of the time; zero for an empty flow.
fn last_quarters(progress: &[Progress]) -> [Rate; 2] {
    let (Some(first), Some(last)) = (progress.first(), progress.last()) else { return [Rate::default(); 2] };
    let span = last.at.saturating_sub(first.at);
    let until = |share: f64| {
        let limit = first.at + span.mul_f64(share);
        progress.iter().take_while(|progress| progress.at <= limit).last().copied().unwrap_or(*first)
    };
    let (half, three) = (until(0.5), until(0.75));
    let rate = |from: Progress, to: Progress| {
        Rate::over(to.bytes.saturating_sub(from.bytes), to.at.saturating_sub(from.at))
    };
    [rate(half, three), rate(three, *last)]
}

/// Adds the progress of several connections.
pub fn sum(flows: &[Vec<Progress>]) -> Vec<Progress> {
    let mut steps: Vec<(Duration, u64)> = Vec::new();
    for flow in flows {
        let mut before = Bytes::ZERO;
        for progress in flow {
            steps.push((progress.at, progress.bytes.saturating_sub(before).get()));
            before = progress.bytes;
        }
    }
    steps.sort_unstable();
    let mut total = 0;
    let add = |(at, more): (Duration, u64)| {
        total += more;
        Progress { at, bytes: Bytes::new(total) }
    };
    steps.into_iter().map(add).collect()
}

/// Returns the rate at the IP layer of a payload rate `payload` in packets of `mtu` bytes.
pub fn ip_rate(payload: Rate, mtu: Bytes) -> Rate {
    let mtu = mtu.get().max(TCP_HEADERS * 2) as f64;
    payload.scaled(mtu / (mtu - TCP_HEADERS as f64))
}

/// Returns the rate of TCP payload on a path of `rate` at the IP layer.
pub fn payload_rate(rate: Rate, mtu: Bytes) -> Rate {
    let mtu = mtu.get().max(TCP_HEADERS * 2) as f64;
    rate.scaled((mtu - TCP_HEADERS as f64) / mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn progress(at: Duration, bytes: u64) -> Progress {
        Progress { at, bytes: Bytes::new(bytes) }
    }

    #[track_caller]
    fn assert_rate(rate: Rate, mbit: std::ops::RangeInclusive<f64>) {
        assert!(mbit.contains(&(rate.as_bits_per_sec() as f64 / 1e6)), "{rate} outside {mbit:?}");
    }

    /// Flights of a slow start at an RTT of 100 ms across 100 Mbit/s: each twice the previous, one
    /// read per millisecond.
    fn slow_start() -> Vec<Progress> {
        let reads =
            (0..7).flat_map(|flight| (1..=1_u64 << flight).map(move |step| 100 * (flight + 1) + step));
        let course = reads.zip(1..).map(|(at, number)| progress(MS(at), 12_500 * number));
        std::iter::once(progress(MS(0), 0)).chain(course).collect()
    }

    fn steady(bytes_per_ms: u64, milliseconds: u64) -> Vec<Progress> {
        (0..=milliseconds).map(|at| progress(MS(at), at * bytes_per_ms)).collect()
    }

    /// Every `period` ms, `bytes` arrive within `within` ms.
    fn bursts(count: u64, period: u64, within: u64, bytes: u64) -> Vec<Progress> {
        let burst = |n: u64| {
            [(0, 0), (within, 1)].map(|(at, part)| progress(MS(period * n + at), bytes * (n + part)))
        };
        (0..count).flat_map(burst).collect()
    }

    #[test]
    fn flights_of_a_slow_start_show_the_bottleneck() {
        assert_rate(burst_rate(&slow_start()).unwrap(), 90.0..=105.0);
        // The mean rate over that time is far lower.
        assert_rate(steady_rate(&slow_start()), 0.0..=60.0);
        assert!(!is_flat(&slow_start()));
        let range = rate_range(&slow_start(), false);
        assert_rate(range.least_bps, 20.0..=60.0);
        assert_rate(range.most_bps, 99.0..=101.0);
        assert_rate(rate_range(&slow_start(), true).most_bps, 30.0..=60.0);
        assert_rate(supported_rate(&slow_start(), Rtt::new(MS(100))), 60.0..=105.0);
    }

    #[test]
    fn late_wake_ups_do_not_raise_the_burst_rate() {
        // 100 Mbit/s with two reads per millisecond; every tenth read is 2 ms late and returns all
        // bytes since the last.
        let reads = (0..2000_u64).filter(|step| step % 20 < 16);
        let course: Vec<_> =
            reads.map(|step| progress(Duration::from_micros(500 * step), 6250 * step)).collect();
        assert_rate(burst_rate(&course).unwrap(), 95.0..=108.0);
    }

    #[test]
    fn delayed_packets_do_not_raise_the_supported_rate() {
        // 100 Mbit/s, delayed for 200 ms at a time and delivered within 2 ms: 1 Gbit/s in windows
        // of 20 ms.
        let course = bursts(20, 200, 2, 2_500_000);
        assert_rate(burst_rate(&course).unwrap(), 900.0..=1100.0);
        assert_rate(supported_rate(&course, Rtt::new(MS(10))), 100.0..=400.0);
        // The rate does not grow: 100 Mbit/s; the bytes of each 25 ms arrive within 15 ms.
        let course = bursts(40, 25, 15, 312_500);
        assert_rate(burst_rate(&course).unwrap(), 120.0..=180.0);
        assert_rate(supported_rate(&course, Rtt::new(MS(50))), 95.0..=108.0);
        // In a short flow, twice the sustained rate is still supported.
        assert_rate(supported_rate(&course[..30], Rtt::new(MS(50))), 120.0..=220.0);
    }

    #[test]
    fn steady_flow_is_flat_and_has_one_rate_unless_it_is_too_short() {
        let flow = steady(1250, 1000);
        assert!(is_flat(&flow));
        assert_eq!(steady_rate(&flow), Rate::mbit(10));
        assert_rate(burst_rate(&flow).unwrap(), 9.9..=10.1);
        assert_rate(supported_rate(&steady(1250, 2000), Rtt::new(MS(100))), 9.9..=10.6);
        assert_rate(steady_rate(&sum(&[flow.clone(), flow])), 20.0..=20.99);
        assert_eq!((burst_rate(&steady(1_250_000, 39)), burst_rate(&[])), (None, None));
        assert_eq!((steady_rate(&[]), supported_rate(&[], Rtt::new(MS(100)))), Default::default());
        assert!(!is_flat(&[]));
    }

    #[test]
    fn headers_are_part_of_the_path_rate() {
        let payload = Rate::bits_per_sec(1448);
        assert_eq!(ip_rate(payload, Bytes::new(1500)), Rate::bits_per_sec(1500));
        assert_eq!(payload_rate(Rate::bits_per_sec(1500), Bytes::new(1500)), payload);
    }
}
