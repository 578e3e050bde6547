//! Numbers of a record that experiments compare.

use std::path::Path;

use longhaul_core::event::Event;
use longhaul_core::telemetry::{PageCache, Segments};
use longhaul_core::units::{Bytes, Rate};

use crate::record::Record;
use crate::record::schema::Sample;

use super::burstiness::Burstiness;
use super::curves::receives;
use super::flow::{Counter, Span};

/// Returns the numbers of a record, by names that end in their unit; omits unknown ones.
///
/// | name | is |
/// |---|---|
/// | `goodput_bps` | bits a second over the whole transfer |
/// | `steady_bps` | the mean over the last 30 s in which bytes flowed, or over the last third of a shorter flow |
/// | `mean_bps` | the mean rate of bytes received at a receiver or sent by a sender, at steady speed: from the first 90 % of the largest average over 1 s to 1 s before the end |
/// | `steady_goodput_bps` | the mean rate that the application read, or the peer acknowledged, at steady speed |
/// | `peak_1ms_bps` | the largest average over 1 ms at steady speed; if samples are a millisecond apart |
/// | `p99_1ms_bps` | the 99 % quantile of the averages over 1 ms at steady speed |
/// | `burstiness_1ms` | `peak_1ms_bps` / `mean_bps` |
/// | `seen_1ms_share` | the share of the steady time with samples close enough for averages over 1 ms |
/// | `rwin_bytes` | the median receive window (`tcpi_rcv_wnd`) at steady speed; of a receiver |
/// | `rtt_s` | the minimum RTT (`tcpi_min_rtt`) |
/// | `window_bps` | RWIN / RTT: the rate that the window allows; of a receiver |
/// | `cwnd_peak_bytes` | the largest sum of the congestion windows of all connections; of a sender |
/// | `socket_peak_bytes`, `app_peak_bytes` | the most bytes in a receiver's socket and in its application buffer |
/// | `dirty_peak_bytes`, `writeback_peak_bytes`, `cached_peak_bytes` | the most bytes of the output file's pages that were dirty, under writeback, cached |
/// | `host_dirty_peak_bytes` | the most dirty bytes of the whole host |
/// | `out_of_order`, `duplicate_acks` | packets that a receiver got out of order; each causes a duplicate acknowledgement |
/// | `retransmits` | packets that a sender retransmitted |
/// | `ramp_s` | from the first byte to the first bin of 0.5 s with 90 % of `steady_bps` |
/// | `telemetry_cpu_share` | CPU time of recording as a share of one core |
pub fn values(record: &Record) -> Vec<(&'static str, f64)> {
    let moved = Counter::moved(record);
    let steady = moved.steady();
    let steady_bps = steady.map(|span| moved.rate(span) * 8.0);
    let rtt = least_rtt(record);
    // A counter that only the peer has is zero here; it must not appear.
    let received = receives(record);
    let rwin = steady.filter(|_| received).and_then(|span| median_window(record, span));
    let cwnd = || peak(record, |sample| sample.sockets.windows.cwnd.filter(|_| !received));
    let socket = || peak(record, |sample| received.then_some(sample.sockets.unread));
    let pages = |of: fn(&PageCache) -> Bytes| peak(record, |sample| sample.page_cache.as_ref().map(of));
    let even = Burstiness::of(record);
    let bps = |of: fn(&Burstiness) -> Option<f64>| even.as_ref().and_then(of).map(|rate| rate * 8.0);
    let last = record.samples.last();
    let out_of_order =
        last.filter(|_| received).map(|(_, sample)| sample.sockets.counters.out_of_order as f64);
    let known = [
        ("goodput_bps", goodput(record, &moved).map(|rate| rate.as_bits_per_sec() as f64)),
        ("steady_bps", steady_bps),
        ("mean_bps", bps(|even| Some(even.mean))),
        ("steady_goodput_bps", bps(|even| Some(even.goodput))),
        ("peak_1ms_bps", bps(|even| even.peak)),
        ("p99_1ms_bps", bps(|even| even.p99)),
        ("burstiness_1ms", even.and_then(|even| even.ratio())),
        ("seen_1ms_share", even.map(|even| even.seen)),
        ("rwin_bytes", rwin),
        ("rtt_s", rtt),
        ("window_bps", rwin.zip(rtt).map(|(rwin, rtt)| rwin * 8.0 / rtt)),
        ("cwnd_peak_bytes", cwnd()),
        ("socket_peak_bytes", socket()),
        ("app_peak_bytes", peak(record, |sample| sample.segments.as_ref().map(Segments::bytes))),
        ("dirty_peak_bytes", pages(|pages| pages.dirty)),
        ("writeback_peak_bytes", pages(|pages| pages.writeback)),
        ("cached_peak_bytes", pages(|pages| pages.cached)),
        ("host_dirty_peak_bytes", peak(record, |sample| Some(sample.host_pages?.dirty))),
        ("out_of_order", out_of_order),
        ("duplicate_acks", out_of_order),
        (
            "retransmits",
            last.filter(|_| !received).map(|(_, sample)| sample.sockets.counters.retransmits as f64),
        ),
        ("ramp_s", steady_bps.and_then(|steady| ramp(&moved, steady))),
        ("telemetry_cpu_share", telemetry_share(record)),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Reads a record, and returns its numbers.
///
/// # Errors
/// Says why the file is not a whole record.
pub fn values_of_file(path: &Path) -> Result<Vec<(String, f64)>, String> {
    let record = Record::load(path).map_err(|error| error.to_string())?;
    match &record.damage {
        Some(damage) => Err(format!("{} is damaged: {damage}", path.display())),
        None => Ok(values(&record).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
    }
}

/// Returns the minimum RTT in seconds.
pub(super) fn least_rtt(record: &Record) -> Option<f64> {
    let known = record.samples.iter().filter_map(|(_, sample)| sample.sockets.times.min_rtt);
    let known = known.map(|rtt| rtt.get().as_secs_f64());
    known.filter(|rtt| *rtt > 0.0).min_by(f64::total_cmp)
}

/// Returns the mean rate of the transfer: as it reported it, otherwise over the span of growth.
pub(super) fn goodput(record: &Record, moved: &Counter) -> Option<Rate> {
    match record.outcome() {
        Some(Event::Done(done)) => Some(done.goodput),
        _ => moved.growing().map(|span| Rate::bits_per_sec((moved.rate(span) * 8.0) as u64)),
    }
}

/// Returns the CPU time of recording as a share of one core.
pub(super) fn telemetry_share(record: &Record) -> Option<f64> {
    let (end, (time, _)) = (record.end.as_ref()?, record.samples.last()?);
    (*time > 0.0).then(|| end.telemetry.cpu / time)
}

/// Returns the BDP of the fastest bin: the bytes in flight that its rate needs.
pub(super) fn largest_bdp(record: &Record) -> Option<Bytes> {
    let moved = Counter::moved(record);
    let fastest = moved.bins().into_iter().map(|bin| moved.rate(bin)).max_by(f64::total_cmp)?;
    Some(Bytes::new((fastest * least_rtt(record)?) as u64))
}

fn peak(record: &Record, value: impl Fn(&Sample) -> Option<Bytes>) -> Option<f64> {
    record.samples.iter().filter_map(|(_, sample)| value(sample)).max().map(|peak| peak.get() as f64)
}

fn median_window(record: &Record, (from, to): Span) -> Option<f64> {
    let within = record.samples.iter().filter(|(at, _)| (from..=to).contains(at));
    let mut windows: Vec<Bytes> = within.filter_map(|(_, sample)| sample.sockets.windows.rwin).collect();
    windows.sort_unstable();
    windows.get(windows.len() / 2).map(|window| window.get() as f64)
}

fn ramp(moved: &Counter, steady_bps: f64) -> Option<f64> {
    let (begin, _) = moved.growing()?;
    let fast = moved.bins().into_iter().find(|bin| moved.rate(*bin) * 8.0 >= 0.9 * steady_bps)?;
    Some((fast.0 - begin).max(0.0))
}

#[cfg(test)]
mod tests {
    use longhaul_core::event::Done;

    use super::*;
    use crate::figures::test_record;
    use crate::record::schema::{End, Side, Telemetry};

    fn value(record: &Record, name: &str) -> Option<f64> {
        values(record).into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    #[test]
    fn a_transfer_at_the_rate_of_its_window() {
        // 1 MB/s for 4 s, then 10 MB/s for 6 s; the window is 2 MB, the RTT 200 ms.
        let mut record = test_record::record(10.0, |at| {
            let moved = at.min(4.0) * 1e6 + (at - 4.0).max(0.0) * 1e7;
            let mut sample = test_record::moved(moved);
            sample.sockets.windows.rwin = Some(Bytes::new(if at < 5.0 { 100 } else { 2_000_000 }));
            sample.sockets.times.min_rtt = test_record::rtt(0.2);
            sample.sockets.unread = Bytes::new(if (7.0..7.005).contains(&at) { 68_800_000 } else { 1000 });
            sample.sockets.counters.out_of_order = at as u64;
            sample.segments = Some(Segments { in_use: at as usize, count: 16, size: Bytes::mib(4) });
            sample.page_cache = (at > 1.0).then(test_record::pages);
            sample.host_pages = (at > 2.0).then(|| test_record::host_pages(70));
            sample
        });
        let done = Done { goodput: Rate::bits_per_sec(51_200_000), ..Done::default() };
        record.events.push(test_record::event(10, Event::Done(Box::new(done))));
        let telemetry = Telemetry { samples: 1000, dropped: 0, cpu: 0.05 };
        record.end = Some(End { at: 10.0, telemetry, outcome: None });
        for (name, expected) in [
            ("goodput_bps", 51_200_000.0),
            ("steady_bps", 80e6),
            ("rwin_bytes", 2e6),
            ("rtt_s", 0.2),
            ("window_bps", 80e6),
            ("socket_peak_bytes", 68_800_000.0),
            ("app_peak_bytes", 41_943_040.0),
            ("dirty_peak_bytes", 5.0),
            ("writeback_peak_bytes", 3.0),
            ("cached_peak_bytes", 9.0),
            ("out_of_order", 10.0),
            ("host_dirty_peak_bytes", 70.0),
            ("ramp_s", 4.0),
            ("telemetry_cpu_share", 0.005),
        ] {
            let found = value(&record, name).unwrap();
            assert!((found - expected).abs() <= expected * 1e-3, "{name}: {found}, not {expected}");
        }
        assert_eq!(largest_bdp(&record), Some(Bytes::new(2_000_000)));
    }

    #[test]
    fn unknown_values_are_omitted_and_a_record_that_was_cut_off_has_a_goodput() {
        let mut record = test_record::record(0.0, |_| Sample::default());
        let zero = ["socket_peak_bytes", "out_of_order", "duplicate_acks"].map(|name| (name, 0.0));
        assert_eq!(values(&record), zero);
        record.samples.clear();
        assert_eq!(values(&record), []);
        let mut record = test_record::record(2.0, |at| test_record::moved(at * 1e6));
        assert!((value(&record, "goodput_bps").unwrap() - 8e6).abs() < 1e4);
        assert_eq!(value(&record, "telemetry_cpu_share"), None);
        record.samples.push((1e12, test_record::moved(3e6)));
        assert!(value(&record, "steady_bps").unwrap().is_finite(), "a time far off costs no memory");
    }

    #[test]
    fn each_side_has_only_its_own_counters() {
        let mut record = test_record::record(3.0, |at| {
            let mut sample = test_record::moved(at * 1e6);
            let sockets = &mut sample.sockets;
            (sockets.windows.rwin, sockets.windows.cwnd) =
                (Some(Bytes::new(1000)), Some(Bytes::new(at as u64)));
            sockets.times.min_rtt = test_record::rtt(0.1);
            (sockets.counters.retransmits, sockets.counters.out_of_order) = (5, 6);
            sample
        });
        let received = ["rwin_bytes", "window_bps", "socket_peak_bytes", "out_of_order"];
        let sent = |record: &Record| ["cwnd_peak_bytes", "retransmits"].map(|name| value(record, name));
        assert!(received.iter().all(|name| value(&record, name).is_some()) && sent(&record) == [None; 2]);
        record.header.side = Side::Serve;
        assert!(received.iter().all(|name| value(&record, name).is_none()));
        assert_eq!(sent(&record), [Some(3.0), Some(5.0)]);
        assert_eq!(value(&record, "rtt_s"), Some(0.1));
    }
}
