//! What limited a run of several files: one diagnosis for all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cure::PROBE;
use super::verdict::{ALSO, SHORTEST, percent, seconds};
use super::{Finding, LONG_RTT, LimitedBy, Shares};
use crate::tune::MAX_PARALLEL_FILES;
use crate::units::{Bytes, Rate, Rtt};

/// The fewest files at once worth a trial.
const FEWEST_PARALLEL: u64 = 8;
/// Servers beyond are not compared.
const MOST_SERVERS: usize = 1000;
/// A server is slow if its files arrive at less than this part of the rate of all others.
const SLOW: f64 = 0.5;

/// A file that a run has moved.
#[derive(Debug, Clone, Copy)]
pub struct FileOfRun<'a> {
    /// The server's name.
    pub server: &'a str,
    /// When the file ended, since the run's start.
    pub ended: Duration,
    /// How long it took.
    pub time: Duration,
    /// What was moved of it.
    pub moved: Bytes,
    /// What limited it.
    pub finding: &'a Finding,
}

/// Sums what the files of a run show.
#[derive(Debug, Clone, Default)]
pub struct RunDiagnosis {
    files: u64,
    moved: Bytes,
    /// The time of all files, of which several run at once.
    time: Duration,
    /// The start of the first file and the end of the last one.
    active: Option<(Duration, Duration)>,
    /// The least RTT of a connection.
    rtt: Option<Rtt>,
    limits: [LimitOfRun; LimitedBy::ALL.len()],
    servers: BTreeMap<String, ServerOfRun>,
    /// The advice of the first file.
    first: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct LimitOfRun {
    time: Duration,
    /// The cure of the file that it limited for longest.
    longest: Duration,
    change: Option<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ServerOfRun {
    files: u64,
    time: Duration,
    moved: Bytes,
}

impl RunDiagnosis {
    /// Adds a file.
    pub fn add(&mut self, file: &FileOfRun<'_>) {
        let FileOfRun { server, ended, time, moved, finding } = *file;
        if self.files == 0 {
            self.first.clone_from(&finding.advice);
        }
        self.files += 1;
        self.moved += moved;
        self.time += time;
        let begun = ended.saturating_sub(time);
        let (first, last) = self.active.unwrap_or((begun, ended));
        self.active = Some((first.min(begun), last.max(ended)));
        for (limit, share) in finding.shares.ranked() {
            let sum = &mut self.limits[limit as usize];
            let limited = time.mul_f64(share);
            sum.time += limited;
            if limit == finding.limit && limited >= sum.longest {
                (sum.longest, sum.change) = (limited, finding.change.clone());
            }
        }
        if self.servers.len() < MOST_SERVERS || self.servers.contains_key(server) {
            let sum = self.servers.entry(server.to_owned()).or_default();
            sum.files += 1;
            sum.time += time;
            sum.moved += moved;
        }
    }

    /// Adds the RTT of a connection.
    pub fn add_rtt(&mut self, rtt: Rtt) {
        self.rtt = self.rtt.into_iter().chain([rtt]).min();
    }

    /// Returns the number of files.
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Returns the bytes of all files.
    pub fn moved(&self) -> Bytes {
        self.moved
    }

    /// Returns what limited the run; a run of one file has the advice of that.
    pub fn finding(&self) -> Finding {
        let times = LimitedBy::ALL.into_iter().map(|limit| (limit, self.limits[limit as usize].time));
        let shares = Shares::of(times);
        let ranked = shares.ranked();
        let limit = ranked.first().map(|(limit, _)| *limit).unwrap_or_default();
        let finding = Finding { limit, shares, ..Finding::default() };
        let Some((_, share)) = ranked.first().filter(|_| self.files > 1) else {
            return Finding { advice: self.first.clone(), ..finding };
        };
        if self.active_time() < SHORTEST {
            return finding;
        }
        let change = self.change(limit);
        let mut advice = vec![format!(
            "limited by {} for {} of the files' time: {}",
            phrase(limit),
            percent(*share),
            self.seen()
        )];
        advice.extend(self.slow_server());
        advice.extend(change.clone());
        let others = ranked.iter().skip(1).filter(|(_, share)| *share >= ALSO);
        let others: Vec<_> =
            others.map(|(limit, share)| format!("{} for {}", phrase(*limit), percent(*share))).collect();
        if !others.is_empty() {
            advice.push(format!("also limited by {}", others.join(", ")));
        }
        Finding { advice, change, ..finding }
    }

    fn active_time(&self) -> Duration {
        self.active.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(first))
    }

    /// Returns how many files were in transit at once, on average.
    fn at_once(&self) -> u64 {
        (self.time.as_secs_f64() / self.active_time().as_secs_f64().max(1e-9)).round().max(1.0) as u64
    }

    fn seen(&self) -> String {
        let each = self.time.div_f64(self.files as f64);
        let trips = self.rtt.filter(|rtt| rtt.get() >= LONG_RTT).map_or_else(String::new, |rtt| {
            format!(" ({:.0} round trips of {rtt})", each.as_secs_f64() / rtt.get().as_secs_f64())
        });
        let size = Bytes::new(self.moved.get() / self.files);
        format!(
            "{} files of {size} on average took {}{trips} each, {} at once",
            self.files,
            seconds(each),
            self.at_once()
        )
    }

    fn change(&self, limit: LimitedBy) -> Option<String> {
        let at_once = self.at_once();
        let more = (at_once * 4).clamp(FEWEST_PARALLEL, MAX_PARALLEL_FILES as u64);
        match limit {
            LimitedBy::SlowStart if more > at_once => {
                Some(format!("does --parallel {more} gain, or one archive of the files?"))
            }
            LimitedBy::SlowStart => Some("does one archive of the files gain?".into()),
            LimitedBy::Server if more > at_once => Some(format!("does --parallel {more} gain?")),
            // The files share the path with each other.
            LimitedBy::Path => Some(PROBE.into()),
            _ => self.limits[limit as usize].change.clone(),
        }
    }

    /// Returns the server that had most of the time, if its files are far slower than those of all others.
    fn slow_server(&self) -> Option<String> {
        let (name, slow) = self.servers.iter().max_by_key(|(_, server)| server.time)?;
        let rest: Vec<_> = self.servers.iter().filter(|(other, _)| *other != name).collect();
        let (time, moved) = rest.iter().fold((Duration::ZERO, Bytes::ZERO), |(time, moved), (_, server)| {
            (time + server.time, moved + server.moved)
        });
        let (rate, others) = (Rate::over(slow.moved, slow.time), Rate::over(moved, time));
        let is_slow = !rest.is_empty() && slow.time > time && rate < others.scaled(SLOW);
        is_slow.then(|| {
            format!(
                "{name} had {} of the files' time: {rate} for each of its {} files, {others} elsewhere; does another server have them?",
                percent(slow.time.as_secs_f64() / (slow.time + time).as_secs_f64()),
                slow.files
            )
        })
    }
}

fn phrase(limit: LimitedBy) -> &'static str {
    match limit {
        LimitedBy::SlowStart => "the round trips of each file",
        _ => limit.phrase(),
    }
}
