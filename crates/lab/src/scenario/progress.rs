//! Received bytes per second of a transfer, from the progress lines of `longhaul get --json`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use serde::Deserialize;
use serde::de::DeserializeOwned;

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
const LONGEST_LINE: u64 = 64 << 10;

/// Reads the samples that `longhaul get --json` printed to a file; empty if it printed several jobs.
///
/// # Errors
/// Fails if the file is unreadable.
pub fn samples(path: &Path) -> io::Result<Vec<ProgressSample>> {
    samples_of(BufReader::new(File::open(path)?))
}

fn samples_of(lines: impl BufRead) -> io::Result<Vec<ProgressSample>> {
    #[derive(Deserialize)]
    struct ProgressLine {
        at: f64,
        received: u64,
        job: Option<u64>,
    }
    let (mut samples, mut known, mut is_one) = (Vec::new(), None, true);
    // Other events lack one of the fields.
    each_line(lines, |ProgressLine { at, received, job }| {
        if let Ok(at) = Duration::try_from_secs_f64(at) {
            // Each job has its own counter.
            is_one &= *known.get_or_insert(job) == job;
            samples.push(ProgressSample { at, received: Bytes::new(received) });
        }
    })?;
    Ok(if is_one { samples } else { Vec::new() })
}

/// Calls `read` for each line that has its fields.
fn each_line<T: DeserializeOwned>(mut lines: impl BufRead, mut read: impl FnMut(T)) -> io::Result<()> {
    let mut line = Vec::new();
    while lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? > 0 {
        if let Ok(fields) = serde_json::from_slice(&line) {
            read(fields);
        }
        line.clear();
    }
    Ok(())
}

/// Returns the seconds from the last byte to the verified file, from what `longhaul get --json` printed; `None` without a digest.
///
/// # Errors
/// Fails if the file is unreadable.
pub fn digest_seconds(path: &Path) -> io::Result<Option<f64>> {
    digest_seconds_of(BufReader::new(File::open(path)?))
}

fn digest_seconds_of(lines: impl BufRead) -> io::Result<Option<f64>> {
    #[derive(Deserialize)]
    struct EventLine {
        event: String,
        at: f64,
        bytes: Option<u64>,
        received: Option<u64>,
    }
    let (mut received, mut verifying, mut done) = (Vec::new(), None, None);
    each_line(lines, |line: EventLine| match line.event.as_str() {
        "verifying" => verifying = Some(line.at),
        "done" => done = Some((line.at, line.bytes)),
        _ => received.extend(line.received.map(|bytes| (bytes, line.at))),
    })?;
    let (Some(verifying), Some((done, bytes))) = (verifying, done) else { return Ok(None) };
    // Writers and hashers may end between the last byte and `verifying`.
    let whole = received.into_iter().find(|(received, _)| Some(*received) == bytes);
    Ok(Some(done - whole.map_or(verifying, |(_, at)| verifying.min(at))))
}

/// Returns the rate of the slowest whole second from the end of the ramp-up to the last byte of `size`.
pub fn least_second(samples: &[ProgressSample], size: Bytes) -> Option<Rate> {
    let bins = bins_after_ramp(&edges(&points(samples, size)?))?;
    bins.into_iter().min_by(f64::total_cmp).map(|least| Rate::bytes_per_sec(least as u64))
}

/// Returns the median rate of the whole seconds from the end of the ramp-up to the last byte of `size`.
///
/// Seconds start at the last sample without data. `None` if no second is complete.
pub fn rate(samples: &[ProgressSample], size: Bytes) -> Option<Rate> {
    let median = Spread::of(bins_after_ramp(&edges(&points(samples, size)?))?)?.median;
    Some(Rate::bytes_per_sec(median as u64))
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

/// Returns the received share of the capacity `left`, from the end of the ramp-up to the last byte of `size`.
///
/// Unlike [`rate`], includes seconds with little data, and the last, incomplete one. The ramp-up ends with the first
/// whole second whose share is 90 % of the best second's share, which counts as at most 1.
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
            ([&ramp_up[..], &[120; 35], &[1; 4]].concat(), 0_u64, Some(1_200_000_000)),
            (vec![100; 30], 49, Some(1_000_000_000)),
            (vec![100; 9], 0, None),
        ] {
            let (mut samples, size) = transfer(&steps);
            let last = *samples.last().unwrap();
            let at = |n| last.at + Duration::from_millis(100 * n);
            samples.extend((1..=after).map(|n| ProgressSample { at: at(n), ..last }));
            assert_eq!(rate(&samples, size).map(|rate| rate.as_bytes_per_sec()), expected, "{steps:?}");
            assert_eq!(rate(&[], size), None);
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
        let text = "{\"event\":\"connected\",\"at\":0.4}\n{\"event\":\"progress\",\"at\":0.5,\"received\":7,\"written\":3}\n\
                    {\"event\":\"done\",\"bytes\":9}\nnoise\n";
        let sample = ProgressSample { at: Duration::from_millis(500), received: Bytes::new(7) };
        assert_eq!(samples_of(text.as_bytes()).unwrap(), [sample]);
        let endless = [vec![b'x'; 200_000], b"\n{\"at\":0.5,\"received\":7}".to_vec()].concat();
        assert_eq!(samples_of(&endless[..]).unwrap(), [sample]);
        // Several jobs have no samples.
        let line = |job: u64| format!("{{\"at\":0.5,\"job\":{job},\"received\":7}}\n");
        assert_eq!(samples_of((line(1) + &line(1)).as_bytes()).unwrap().len(), 2);
        assert!(samples_of((line(1) + &line(2) + &line(1)).as_bytes()).unwrap().is_empty());
    }

    #[test]
    fn digest_takes_the_time_after_the_last_byte() {
        let verified = "{\"event\":\"progress\",\"at\":9.0,\"received\":5}\n{\"event\":\"verifying\",\"at\":9.5}\n\
                        {\"event\":\"done\",\"at\":9.75,\"bytes\":5}\n";
        assert_eq!(digest_seconds_of(verified.as_bytes()).unwrap(), Some(0.75));
        let without = "{\"event\":\"done\",\"at\":9.75}\nno JSON\n";
        assert_eq!(digest_seconds_of(without.as_bytes()).unwrap(), None);
    }
}
