//! Rounds in which processes are killed and stopped at seeded moments: how many, and what they add
//! up to.
//!
//! `LONGHAUL_KILL_ROUNDS` sets their number, or a range of seeds (`17..18`).

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::ops::{AddAssign, Range};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::seeds;

/// The rounds of the suite.
const USUAL: Range<u64> = 0..2;
/// The fewest units of which a share is judged: of fewer, one process that is continued may
/// complete more.
const MIN_UNITS: u64 = 1000;
/// The most units of a stopped process that it may complete after it is continued.
const UNDER_WAY: u64 = 3;
/// The interval at which completed files are looked for.
const WATCH: Duration = Duration::from_millis(20);

/// Returns the seeds of the rounds.
pub(crate) fn kill_rounds() -> Range<u64> {
    chosen_kill_rounds().unwrap_or(USUAL)
}

/// Returns the seeds of the rounds that `LONGHAUL_KILL_ROUNDS` sets.
pub(crate) fn chosen_kill_rounds() -> Option<Range<u64>> {
    seeds("LONGHAUL_KILL_ROUNDS")
}

/// What rounds have done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundWork {
    pub(crate) rounds: u64,
    /// The units of work.
    pub(crate) units: u64,
    /// Completions of units that were complete already.
    pub(crate) twice: u64,
    /// How often a process was stopped and continued.
    pub(crate) stops: u64,
    /// The size of all files.
    pub(crate) bytes: u64,
    /// The bytes of files that the server has sent.
    pub(crate) sent: u64,
}

impl RoundWork {
    /// Prints the sums; fails if more than 2 % of the units were done twice.
    pub(crate) fn judge(&self) {
        println!("{} rounds: {self}", self.rounds);
        let most = if self.units < MIN_UNITS { self.stops * UNDER_WAY } else { self.units / 50 };
        assert!(self.twice <= most, "at most {most} may be done twice: {self}");
    }
}

impl AddAssign for RoundWork {
    fn add_assign(&mut self, round: Self) {
        self.rounds += round.rounds;
        self.units += round.units;
        self.twice += round.twice;
        self.stops += round.stops;
        self.bytes += round.bytes;
        self.sent += round.sent;
    }
}

impl fmt::Display for RoundWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units, twice, stops, bytes, sent, .. } = self;
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let (of_units, of_bytes) = (share(*twice, *units), share(sent.saturating_sub(*bytes), *bytes));
        write!(
            f,
            "{units} units, {stops} stops, {twice} done twice ({of_units:.1} %); {of_bytes:.1} % of the bytes sent twice"
        )
    }
}

/// The complete files of a directory: one that is replaced was fetched twice.
pub(crate) struct Completions {
    directory: PathBuf,
    inodes: HashMap<String, u64>,
    pub(crate) replaced: u64,
}

impl Completions {
    pub(crate) fn of(directory: PathBuf) -> Self {
        Self { directory, inodes: HashMap::new(), replaced: 0 }
    }

    /// Records what is complete now.
    pub(crate) fn note(&mut self) {
        for entry in fs::read_dir(&self.directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            // A partial file may get its name after the listing.
            let Some(found) = entry.metadata().ok().filter(|_| !name.contains(".longhaul-")) else {
                continue;
            };
            let before = self.inodes.insert(name, found.ino());
            self.replaced += u64::from(before.is_some_and(|before| before != found.ino()));
        }
    }

    /// Records for this time what is complete.
    pub(crate) fn watch(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.note();
            std::thread::sleep(WATCH.min(time.saturating_sub(began.elapsed())));
        }
        self.note();
    }
}
