//! What limited a run of several files: one diagnosis for all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cure::PROBE;
use super::verdict::{SHORTEST, further_limits, percent, seconds};
use super::{Finding, LONG_RTT, LimitedBy, Shares};
use crate::tune::MAX_PARALLEL_FILES;
use crate::units::{Bytes, Rtt};

/// The fewest files at once worth a trial.
const MIN_PARALLEL: u64 = 8;
/// Servers beyond are not compared.
const MAX_SERVERS: usize = 1000;
/// A server is slow if its files take more than so many times as long as files of their size
/// elsewhere.
const SLOW: f64 = 2.0;

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

#[derive(Debug, Clone, Default)]
struct ServerOfRun {
    all: FilesOfRun,
    /// The files by the logarithm of their size: slow start makes small files slower than large
    /// ones.
    by_size: BTreeMap<u32, FilesOfRun>,
    /// The least RTT of a connection.
    rtt: Option<Rtt>,
}

#[derive(Debug, Clone, Copy, Default)]
struct FilesOfRun {
    count: u64,
    time: Duration,
}

impl FilesOfRun {
    fn add(&mut self, files: Self) {
        self.count += files.count;
        self.time += files.time;
    }

    /// Returns the mean time of a file.
    fn each(&self) -> Duration {
        self.time.div_f64(self.count.max(1) as f64)
    }
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
        if let Some(server) = self.server(server) {
            let file = FilesOfRun { count: 1, time };
            server.all.add(file);
            server.by_size.entry(moved.get().max(1).ilog2()).or_default().add(file);
        }
    }

    /// Adds the RTT of a connection to a server.
    pub fn add_rtt(&mut self, server: &str, rtt: Rtt) {
        if let Some(server) = self.server(server) {
            server.rtt = server.rtt.into_iter().chain([rtt]).min();
        }
    }

    fn server(&mut self, name: &str) -> Option<&mut ServerOfRun> {
        if self.servers.len() < MAX_SERVERS || self.servers.contains_key(name) {
            return Some(self.servers.entry(name.to_owned()).or_default());
        }
        None
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
        advice.extend(further_limits(&ranked, phrase));
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
        let mut rtts = self.servers.values().filter_map(|server| server.rtt);
        // Of several servers the round trips differ.
        let rtt = rtts.next().filter(|rtt| rtt.get() >= LONG_RTT && rtts.next().is_none());
        let trips = rtt.map_or_else(String::new, |rtt| {
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
        let more = (at_once * 4).clamp(MIN_PARALLEL, MAX_PARALLEL_FILES as u64);
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

    /// Returns the server that had most of the time, if its files are far slower than files of
    /// their size elsewhere.
    fn slow_server(&self) -> Option<String> {
        let (name, slow) = self.servers.iter().max_by_key(|(_, server)| server.all.time)?;
        let rest = || self.servers.iter().filter(|(other, _)| *other != name).map(|(_, server)| server);
        let (mut compared, mut elsewhere) = (FilesOfRun::default(), Duration::ZERO);
        for (size, files) in &slow.by_size {
            let mut alike = FilesOfRun::default();
            rest().filter_map(|server| server.by_size.get(size)).for_each(|files| alike.add(*files));
            if alike.count > 0 {
                compared.add(*files);
                elsewhere += alike.each().mul_f64(files.count as f64);
            }
        }
        let others = rest().map(|server| server.all.time).sum::<Duration>();
        let is_slow = slow.all.time > others
            && compared.time > slow.all.time / 2
            && compared.time > elsewhere.mul_f64(SLOW);
        let rtt = |rtt: Option<Rtt>| rtt.map_or_else(String::new, |rtt| format!(" (RTT {rtt})"));
        is_slow.then(|| {
            format!(
                "{name}{} had {} of the files' time: {} for each of its {} files, and for one of that size elsewhere{} {}; does another server have them?",
                rtt(slow.rtt),
                percent(slow.all.time.as_secs_f64() / (slow.all.time + others).as_secs_f64()),
                seconds(slow.all.each()),
                slow.all.count,
                rtt(rest().filter_map(|server| server.rtt).min()),
                seconds(elsewhere.div_f64(compared.count as f64)),
            )
        })
    }
}

fn phrase(limit: LimitedBy) -> &'static str {
    match limit {
        LimitedBy::SlowStart => "the round trips of each file",
        LimitedBy::Limit => "the rate that is set",
        _ => limit.phrase(),
    }
}
