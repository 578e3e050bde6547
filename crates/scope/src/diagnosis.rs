//! What limited a transfer, and when: from a record, captured packets, or observed sockets.

use std::time::Duration;

use longhaul_core::advice::{
    Attribution, End, Finding, KnownLimits, LimitedSpan, Reading, SenderPace, Shares, Witness,
};
use longhaul_core::event::{Done, Event, RunDone};
use longhaul_core::units::{Bytes, Rate};

use crate::figures::receives;
use crate::record::Record;
use crate::record::schema::Side;

/// The diagnosis of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The dominant limit, the share of each limit, evidence and remedy.
    pub finding: Finding,
    /// The limit over time; adjacent spans differ.
    pub timeline: Vec<LimitedSpan>,
    /// Bytes moved.
    pub moved: Bytes,
    /// Observed time.
    pub time: Duration,
}

impl Diagnosis {
    /// Returns the mean rate.
    pub fn rate(&self) -> Rate {
        Rate::over(self.moved, self.time)
    }
}

/// Builds a [`Diagnosis`] from successive readings.
#[derive(Debug, Clone)]
pub struct Observation {
    attribution: Attribution,
    timeline: Vec<LimitedSpan>,
    begun: (Duration, Bytes),
    latest: (Duration, Bytes),
}

impl Observation {
    /// Starts an observation when the `attribution` starts: with the transfer, at zero, or after
    /// some bytes have moved.
    pub fn new(attribution: Attribution, begun: (Duration, Bytes)) -> Self {
        Self { attribution, timeline: Vec::new(), begun, latest: begun }
    }

    /// Attributes the time until `now` to the disk: a receiver's file is complete.
    fn settle(&mut self, now: Duration) {
        for span in
            [self.attribution.end(), self.attribution.assign(now, Witness::Flush)].into_iter().flatten()
        {
            append(&mut self.timeline, span);
        }
        self.latest.0 = now;
    }

    /// Adds a reading at `now`.
    pub fn observe(&mut self, now: Duration, reading: &Reading) {
        self.latest = (now, reading.moved);
        if let Some(span) = self.attribution.observe(now, reading) {
            append(&mut self.timeline, span);
        }
    }

    /// Returns the bytes moved since the observation's start.
    pub fn moved(&self) -> Bytes {
        self.latest.1.saturating_sub(self.begun.1)
    }

    /// Ends the observation; `known` holds the limits of the observed endpoint's host, if known.
    pub fn end(mut self, known: &KnownLimits) -> Diagnosis {
        if let Some(span) = self.attribution.end() {
            append(&mut self.timeline, span);
        }
        let (moved, time) = (self.moved(), self.latest.0.saturating_sub(self.begun.0));
        Diagnosis { finding: self.attribution.finding(known), timeline: self.timeline, moved, time }
    }
}

/// Appends a span; a span with the limit of the last one extends it.
fn append(timeline: &mut Vec<LimitedSpan>, span: LimitedSpan) {
    match timeline.last_mut() {
        Some(last) if last.limit == span.limit && last.to == span.from => last.to = span.to,
        _ => timeline.push(span),
    }
}

/// Returns what limited a recorded transfer: the transfer's own diagnosis, or one from the record's
/// samples.
///
/// `None` if the record has neither.
pub fn of_record(record: &Record) -> Option<Diagnosis> {
    let recorded = recorded_timeline(record);
    let result = match record.outcome() {
        Some(Event::Done(done)) if done.finding.shares != Shares::default() => Some(done),
        _ => None,
    };
    if let Some(done) = result {
        return Some(of_result(done, recorded));
    }
    let sampled = of_samples(record);
    if recorded.is_empty() {
        return sampled;
    }
    // An interrupted transfer has a timeline but no result.
    let shares = Shares::of(recorded.iter().map(|span| (span.limit, span.to.saturating_sub(span.from))));
    let (limit, _) = shares.ranked().first().copied()?;
    let (moved, time) =
        sampled.as_ref().map_or_else(Default::default, |sampled| (sampled.moved, sampled.time));
    let advice = sampled.filter(|sampled| sampled.finding.limit == limit);
    let advice = advice.map_or_else(Vec::new, |sampled| sampled.finding.advice);
    Some(Diagnosis {
        finding: Finding { limit, shares, advice, ..Finding::default() },
        timeline: recorded,
        moved,
        time,
    })
}

fn of_result(done: &Done, timeline: Vec<LimitedSpan>) -> Diagnosis {
    let finding = done.finding.clone();
    Diagnosis { finding, timeline, moved: done.bytes - done.resumed, time: done.time }
}

/// Returns what limited the files of a run together.
pub fn of_run(run: &RunDone) -> Diagnosis {
    let (limit, shares, advice) = (run.limited_by, run.shares, run.advice.clone());
    let finding = Finding { limit, shares, advice, ..Finding::default() };
    Diagnosis { finding, timeline: Vec::new(), moved: run.bytes, time: run.time }
}

fn of_samples(record: &Record) -> Option<Diagnosis> {
    let end = if receives(record) { End::Receiver } else { End::Sender };
    let pace = record.header.pace.filter(|_| end == End::Sender);
    let pace = pace.map(|rate| match record.header.side {
        Side::Serve => SenderPace::Requested(rate),
        Side::Get | Side::Put => SenderPace::Shared(rate),
    });
    let attribution = Attribution::new(end).with_pace(pace);
    let mut observation = Observation::new(attribution, Default::default());
    let size = size(record);
    for (at, sample) in &record.samples {
        let at = Duration::try_from_secs_f64(*at).ok()?;
        let buffer_full = |segments: longhaul_core::telemetry::Segments| {
            end == End::Receiver && segments.count > 0 && segments.in_use >= segments.count
        };
        let reading = Reading {
            buffer_full: sample.segments.is_some_and(buffer_full),
            ..Reading::of(end, sample.moved, &sample.sockets)
        };
        // Everything has arrived, and is being written.
        if end == End::Receiver
            && sample.sockets.open == 0
            && size.is_some_and(|size| sample.moved >= size && size > Bytes::ZERO)
        {
            observation.settle(at);
        } else {
            observation.observe(at, &reading);
        }
    }
    (!record.samples.is_empty()).then(|| observation.end(&KnownLimits::default()))
}

/// Returns how much a transfer has to move, if that is known.
fn size(record: &Record) -> Option<Bytes> {
    let mut sizes = record.events.iter().filter_map(|line| match &*line.event {
        Event::Opened { size, resumed, .. } => Some(size.map(|size| size.saturating_sub(*resumed))),
        _ => None,
    });
    sizes.next_back().flatten()
}

/// Returns the recorded timeline of limits; empty if none was recorded.
pub fn recorded_timeline(record: &Record) -> Vec<LimitedSpan> {
    let changes = record.events.iter().filter_map(|line| match &*line.event {
        Event::Limited { by, ago } => Some((line.at.saturating_sub(*ago), *by)),
        _ => None,
    });
    let changes: Vec<_> = changes.collect();
    let of_samples = record.samples.last().and_then(|(at, _)| Duration::try_from_secs_f64(*at).ok());
    let end =
        record.events.last().map(|line| line.at).into_iter().chain(of_samples).max().unwrap_or_default();
    let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let mut timeline = Vec::new();
    for ((from, limit), to) in changes.iter().copied().zip(ends) {
        if to > from {
            append(&mut timeline, LimitedSpan { from, to, limit });
        }
    }
    timeline
}

#[cfg(test)]
mod tests {
    use longhaul_core::advice::LimitedBy;
    use longhaul_core::units::Rtt;

    use super::*;
    use crate::figures::test_record;

    /// Losses begin after the first second and halve the rate.
    fn lossy(seconds: f64) -> Record {
        test_record::record(seconds, |at| {
            let mut sample = test_record::moved(at * 1e6 + at.min(1.0) * 1e6);
            sample.sockets.open = 1;
            sample.sockets.times.min_rtt = Some(Rtt::new(Duration::from_millis(50)));
            sample.sockets.times.data_rtt = sample.sockets.times.min_rtt;
            sample.sockets.windows.rwin = Some(Bytes::mib(16));
            sample.sockets.counters.out_of_order = (at * 2.0) as u64;
            sample
        })
    }

    #[test]
    fn time_after_the_last_byte_is_the_disks() {
        let mut record = test_record::record(8.0, |at| {
            let mut sample = test_record::moved(at.min(2.0) * 1e6);
            sample.sockets.open = usize::from(at < 2.0);
            sample
        });
        let limit = |record: &Record| of_record(record).unwrap().finding.limit;
        assert_eq!(limit(&record), LimitedBy::Server, "the size is not known");
        let size = Some(Bytes::new(2_000_000));
        let opened = Event::Opened {
            path: "f".into(),
            size,
            resumed: Bytes::ZERO,
            resumable: true,
            writer: "direct".into(),
        };
        record.events.push(test_record::event(0, opened));
        assert_eq!(limit(&record), LimitedBy::Disk);
    }

    #[test]
    fn diagnosis_of_transfer_is_kept_and_interrupted_transfer_has_timeline() {
        let mut record = lossy(4.0);
        let sampled = of_record(&record).unwrap().finding;
        assert!(sampled.limit == LimitedBy::Loss && sampled.shares.get(LimitedBy::Loss) > 0.5, "{sampled:?}");
        let limited = |by| Event::Limited { by, ago: Duration::from_secs(1) };
        record.events = vec![
            test_record::event(1, limited(LimitedBy::SlowStart)),
            test_record::event(2, limited(LimitedBy::Disk)),
        ];
        let interrupted = of_record(&record).unwrap();
        assert_eq!((interrupted.finding.limit, interrupted.timeline.len()), (LimitedBy::Disk, 2));
        let spans = interrupted.timeline.iter().map(|span| (span.from.as_secs(), span.to.as_secs()));
        assert_eq!(spans.collect::<Vec<_>>(), [(0, 1), (1, 4)], "{interrupted:?}");
        assert!((interrupted.finding.shares.get(LimitedBy::Disk) - 0.75).abs() < 0.01, "{interrupted:?}");
        let done = Done {
            finding: Finding {
                limit: LimitedBy::Cpu,
                shares: Shares::of([(LimitedBy::Cpu, Duration::from_secs(1))]),
                advice: vec!["busy".into()],
                ..Finding::default()
            },
            ..Done::default()
        };
        record.events.push(test_record::event(4, Event::Done(Box::new(done))));
        let complete = of_record(&record).unwrap();
        assert_eq!(complete.finding.limit, LimitedBy::Cpu);
        assert_eq!(complete.finding.advice, ["busy"]);
    }
}
