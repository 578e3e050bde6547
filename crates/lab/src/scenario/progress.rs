//! Received bytes per second of a transfer, from the progress lines of `longhaul get --json`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use serde::Deserialize;

use super::summary::Spread;
use crate::spec::PayloadCapacity;

/// Bytes received by a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgressSample {
    /// Time since the transfer's start.
    pub at: Duration,
    /// Bytes received by then.
    pub received: Bytes,
}

const BIN: f64 = 1.0;
/// The ramp-up ends with the first bin at this share of the best bin.
const RAMPED_UP: f64 = 0.9;

/// Maximum bytes of a progress line.
const MAX_EVENT_LINE: u64 = 64 << 10;

/// What `longhaul get --json` printed about a transfer.
#[derive(Debug, Default)]
pub struct ReportedProgress {
    /// The samples; none if it printed several jobs, each of which has its own counter.
    pub samples: Vec<ProgressSample>,
    /// Seconds from the last byte to the verified file; `None` without a digest.
    pub digest_seconds: Option<f64>,
}

impl ReportedProgress {
    /// Reads the file to which it was printed.
    ///
    /// # Errors
    /// Fails if the file is unreadable.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::of(BufReader::new(File::open(path)?))
    }

    fn of(mut lines: impl BufRead) -> io::Result<Self> {
        #[derive(Deserialize)]
        struct EventLine {
            at: f64,
            #[serde(default)]
            event: String,
            received: Option<u64>,
            bytes: Option<u64>,
            job: Option<u64>,
        }
        let (mut samples, mut jobs) = (Vec::<ProgressSample>::new(), BTreeSet::new());
        let (mut verifying, mut done, mut line) = (None, None, Vec::new());
        while lines.by_ref().take(MAX_EVENT_LINE).read_until(b'\n', &mut line)? > 0 {
            let read = serde_json::from_slice(&line);
            line.clear();
            let Ok(EventLine { at, event, received, bytes, job }) = read else { continue };
            match event.as_str() {
                "verifying" => verifying = Some(at),
                "done" => done = Some((at, bytes)),
                _ => {}
            }
            if let (Some(received), Ok(at)) = (received, Duration::try_from_secs_f64(at)) {
                jobs.insert(job);
                samples.push(ProgressSample { at, received: Bytes::new(received) });
            }
        }
        let digest_seconds = verifying.zip(done).map(|(verifying, (done, bytes))| {
            // Writers and hashers may end between the last byte and `verifying`.
            let whole = samples.iter().find(|sample| Some(sample.received.get()) == bytes);
            done - whole.map_or(verifying, |whole| whole.at.as_secs_f64().min(verifying))
        });
        if jobs.len() > 1 {
            samples.clear();
        }
        Ok(Self { samples, digest_seconds })
    }
}

/// Returns the rates, in bytes per second, of the whole seconds from the end of the ramp-up to the
/// last byte of `size`.
///
/// Seconds start at the last sample without data. `None` if no second is complete.
pub fn rates(samples: &[ProgressSample], size: Bytes) -> Option<Spread> {
    Spread::of(bins_after_ramp(&edges(&points(samples, size)?))?)
}

/// Returns bytes per second of each whole second from the end of the ramp-up.
fn bins_after_ramp(edges: &[(f64, f64)]) -> Option<Vec<f64>> {
    let mut bins: Vec<f64> = edges.windows(2).map(|pair| (pair[1].1 - pair[0].1) / BIN).collect();
    let best = bins.iter().copied().fold(0.0, f64::max);
    let ramped_up = bins.iter().position(|bin| *bin >= RAMPED_UP * best)?;
    Some(bins.split_off(ramped_up))
}

/// Returns the rate of each whole second from the start of the transfer to the last byte of `size`.
pub fn by_second(samples: &[ProgressSample], size: Bytes) -> Vec<Rate> {
    let Some(points) = points(samples, size) else { return Vec::new() };
    let since_start: Vec<_> = [(0.0, 0.0)].into_iter().chain(points).collect();
    let rate = |pair: &[(f64, f64)]| Rate::bytes_per_sec(((pair[1].1 - pair[0].1) / BIN) as u64);
    edges(&since_start).windows(2).map(rate).collect()
}

/// Returns the received share of the capacity `left`, from the end of the ramp-up to the last byte
/// of `size`.
///
/// Unlike [`rates`], includes seconds with little data, and the last, incomplete one. The ramp-up
/// ends with the first whole second whose share is 90 % of the best second's share, which counts as
/// at most 1.
pub fn share_of(left: &PayloadCapacity, samples: &[ProgressSample], size: Bytes) -> Option<f64> {
    let points = points(samples, size)?;
    let edges = edges(&points);
    let share = |(from, had): (f64, f64), (to, has): (f64, f64)| (has - had) / left.bytes(from, to);
    let bins: Vec<f64> = edges.windows(2).map(|pair| share(pair[0], pair[1])).collect();
    // A filled gap delivers more than the capacity of a second at once.
    let best = bins.iter().copied().fold(0.0, f64::max).min(1.0);
    let ramped_up = bins.iter().position(|bin| *bin >= RAMPED_UP * best)?;
    Some(share(edges[ramped_up], *points.last()?))
}

/// Returns time and bytes from the last sample without data to the first with all of `size`.
fn points(samples: &[ProgressSample], size: Bytes) -> Option<Vec<(f64, f64)>> {
    let first = samples.iter().position(|sample| sample.received > Bytes::ZERO)?;
    let all = &samples[first.saturating_sub(1)..];
    let last = all.iter().position(|sample| sample.received >= size).unwrap_or(all.len() - 1);
    Some(all[..=last].iter().map(|sample| (sample.at.as_secs_f64(), sample.received.get() as f64)).collect())
}

/// Returns time and bytes at the boundaries of whole seconds.
fn edges(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some((start, _)), Some((end, _))) = (points.first(), points.last()) else { return Vec::new() };
    let times = (0..).map(|index| start + f64::from(index) * BIN).take_while(|edge| edge <= end);
    times.map(|edge| (edge, received_at(points, edge))).collect()
}

/// Interpolates the bytes at `at`, which must be between the first and the last sample.
fn received_at(points: &[(f64, f64)], at: f64) -> f64 {
    let next = points.partition_point(|(time, _)| *time < at).min(points.len() - 1);
    let (time, received) = points[next];
    let (before, had) = points[next.saturating_sub(1)];
    if time <= before { received } else { had + (received - had) * (at - before) / (time - before) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples every 100 ms, with these MB received in each.
    fn transfer(steps: &[u64]) -> (Vec<ProgressSample>, Bytes) {
        let mut received = 0;
        let mut samples = vec![ProgressSample { at: Duration::from_millis(250), received: Bytes::ZERO }];
        for (step, now) in (1..).zip(steps) {
            received += now * 1_000_000;
            let at = Duration::from_millis(250 + 100 * step);
            samples.push(ProgressSample { at, received: Bytes::new(received) });
        }
        (samples, Bytes::new(received))
    }

    #[test]
    fn rate_excludes_ramp_up_incomplete_second_and_samples_after_the_last_byte() {
        let ramp_up = [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 100, 100, 100];
        for (steps, after, expected) in [
            ([&ramp_up[..], &[120; 35], &[1; 4]].concat(), 0_u64, Some(1.2e9)),
            (vec![100; 30], 49, Some(1e9)),
            (vec![100; 9], 0, None),
        ] {
            let (mut samples, size) = transfer(&steps);
            let last = *samples.last().unwrap();
            let at = |n| last.at + Duration::from_millis(100 * n);
            samples.extend((1..=after).map(|n| ProgressSample { at: at(n), ..last }));
            assert_eq!(rates(&samples, size).map(|rates| rates.median.round()), expected, "{steps:?}");
            assert_eq!(rates(&[], size), None);
        }
    }

    #[test]
    fn share_refers_to_remaining_capacity() {
        let left = PayloadCapacity::new(Rate::bytes_per_sec(1_000_000_000))
            .then(Duration::from_millis(4250), Rate::bytes_per_sec(500_000_000));
        // 2 s of ramp-up, 2 s at 90 % of the rate, and 2.5 s at 80 % of the remaining half.
        let steps = [vec![20; 10], vec![50; 10], vec![90; 20], vec![40; 25]].concat();
        let (samples, size) = transfer(&steps);
        let share = share_of(&left, &samples, size).unwrap();
        assert!((share - 2800.0 / 3250.0).abs() < 1e-6, "{share}");
        // A burst from a filled gap exceeds the path's rate.
        let (samples, size) = transfer(&[[0; 10], [300; 10], [90; 10], [95; 10]].concat());
        let left = PayloadCapacity::new(Rate::bytes_per_sec(1_000_000_000));
        assert!(share_of(&left, &samples, size).unwrap() > 1.0);
        assert_eq!(share_of(&left, &samples[..5], size), None);
    }

    #[test]
    fn seconds_count_from_the_start() {
        // The first byte arrives after 250 ms, the last after 2.65 s.
        let (samples, size) = transfer(&[[10; 10], [20; 10]].concat());
        let rates: Vec<_> = by_second(&samples, size).iter().map(|rate| rate.as_bytes_per_sec()).collect();
        assert_eq!(rates.len(), 2);
        // 7.5 slow steps in the first second; 2.5 slow and 7.5 fast ones in the next.
        assert!(rates[0].abs_diff(75_000_000) <= 1 && rates[1].abs_diff(175_000_000) <= 1, "{rates:?}");
        assert!(by_second(&[], size).is_empty());
    }

    #[test]
    fn reads_progress_and_nothing_else() {
        let samples = |text: &[u8]| ReportedProgress::of(text).unwrap().samples;
        let text = b"{\"event\":\"connected\",\"at\":0.4}\n{\"event\":\"progress\",\"at\":0.5,\"received\":7,\"written\":3}\n\
                    {\"event\":\"done\",\"bytes\":9}\nnoise\n";
        let sample = ProgressSample { at: Duration::from_millis(500), received: Bytes::new(7) };
        assert_eq!(samples(text), [sample]);
        let endless = [vec![b'x'; 200_000], b"\n{\"at\":0.5,\"received\":7}".to_vec()].concat();
        assert_eq!(samples(&endless), [sample]);
        // Several jobs have no samples.
        let line = |job: u64| format!("{{\"at\":0.5,\"job\":{job},\"received\":7}}\n");
        assert_eq!(samples((line(1) + &line(1)).as_bytes()).len(), 2);
        assert!(samples((line(1) + &line(2) + &line(1)).as_bytes()).is_empty());
    }

    #[test]
    fn digest_takes_the_time_after_the_last_byte() {
        let digest = |text: &str| ReportedProgress::of(text.as_bytes()).unwrap().digest_seconds;
        let verified = "{\"event\":\"progress\",\"at\":9.0,\"received\":5}\n{\"event\":\"verifying\",\"at\":9.5}\n\
                        {\"event\":\"done\",\"at\":9.75,\"bytes\":5}\n";
        assert_eq!(digest(verified), Some(0.75));
        assert_eq!(digest("{\"event\":\"done\",\"at\":9.75}\nno JSON\n"), None);
    }
}
