//! The behaviour of an FTP server by seed, as plain, printable data.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::faults::dice::{LONGEST, one_of, stop};
use crate::faults::fault::Stop;
use crate::faults::schedule::Build;

/// Faults of one transfer. Places are in thousandths of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FtpFault {
    Drop(u64),       // A data connection closes, and the server reports it
    Reset(u64),      // A data connection is reset, and the server reports nothing
    Lost(u64),       // The control connection closes, with all data connections
    Stall(u64, u64), // No data for this many milliseconds
    Refused(u16),
    EarlySuccess,     // Success is reported before the data is sent
    Silence,          // No reply at the end
    LateFailure,      // All data is sent, but failure is reported
    Missing,          // MODE E: some blocks are omitted, and success is reported
    WrongCount(i64),  // MODE E: the announced number of connections is wrong
    Closes,           // MODE E: connections announce their close, and close
    WrongThenTwice,   // MODE E: all bytes are wrong, and a block is sent twice
    WrongThenOutside, // MODE E: all bytes are wrong, and a block lies outside the request
    AfterEnd,         // MODE E: a block follows the end of data of its connection
    BadHeader(u8),
}

impl FtpFault {
    /// Returns whether a transfer with retries left must survive the fault.
    fn survivable(self) -> bool {
        match self {
            Self::Refused(code) => matches!(code, 426 | 451),
            Self::WrongThenTwice | Self::WrongThenOutside | Self::AfterEnd | Self::BadHeader(_) => false,
            _ => true,
        }
    }
}

/// The server's use of data connections during one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    Kept, // Open connections are reused, like Globus
    Anew,
    Single, // A single connection, regardless of the request
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtpStep {
    pub(crate) build: usize,
    pub(crate) change: Option<(u32, usize)>, // From this transfer on the server has another build
    pub(crate) connections: Connections,
    pub(crate) faults: Vec<(u32, FtpFault)>, // Faults by number of the transfer, from 0
    pub(crate) stop: Option<Stop>,
    pub(crate) no_resume: bool,
}

impl FtpStep {
    /// Returns whether the client notices a fault by a timeout.
    pub(crate) fn times_out(&self) -> bool {
        use FtpFault::{Drop, EarlySuccess, LateFailure, Lost, Refused};
        let is_reported =
            |fault: &FtpFault| matches!(fault, Drop(_) | EarlySuccess | LateFailure | Lost(_) | Refused(_));
        !self.faults.iter().all(|(_, fault)| is_reported(fault))
    }

    pub(crate) fn sound(build: usize) -> Self {
        let (faults, connections) = (Vec::new(), Connections::Kept);
        Self { build, change: None, connections, faults, stop: None, no_resume: false }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtpSchedule {
    pub(crate) builds: Vec<Build>,
    pub(crate) extended: bool,
    pub(crate) restarts: bool,
    pub(crate) older: bool,
    pub(crate) streams: &'static str, // `--streams`, or `apt` for chunks of varying length
    pub(crate) retries: u32,
    pub(crate) steps: Vec<FtpStep>,
    pub(crate) settled: usize, // The build of the final, sound server
}

impl FtpSchedule {
    /// Returns whether `step` must succeed, if the data left by earlier runs is of build `partial`.
    pub(crate) fn must_succeed(&self, step: &FtpStep, partial: Option<usize>) -> bool {
        step.stop.is_none()
            && step.change.is_none()
            && partial.is_none_or(|partial| partial == step.build)
            && step.faults.len() <= self.retries as usize
            && step.faults.iter().all(|(_, fault)| fault.survivable())
    }
}

pub(crate) fn schedule(seed: u64) -> FtpSchedule {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let extended = rng.random_ratio(2, 3);
    let len = one_of(rng, &[1, 70_000, 3 << 20, 9 << 20, 9 << 20, LONGEST - 1]);
    let len = rng.random_range(len / 2 + 1..=len);
    let mut builds: Vec<Build> = (0..2).map(|content| Build { content, len }).collect();
    if rng.random_ratio(1, 4) {
        builds[1].len = rng.random_range(1..=LONGEST);
    }
    let streams: &[_] = if extended { &["1", "3", "4", "auto", "apt", "apt"] } else { &["1", "3", "auto"] };
    let steps = one_of(rng, &[1, 1, 2, 3]);
    FtpSchedule {
        extended,
        restarts: extended || rng.random_ratio(4, 5),
        older: rng.random_ratio(1, 4),
        streams: one_of(rng, streams),
        retries: rng.random_range(1..=3),
        steps: (0..steps).map(|_| step(rng, extended, len as u64)).collect(),
        settled: usize::from(rng.random_ratio(1, 5)),
        builds,
    }
}

fn step(rng: &mut ChaCha8Rng, extended: bool, len: u64) -> FtpStep {
    let numbers: Vec<_> = (0..one_of(rng, &[0, 1, 1, 2, 3])).map(|_| one_of(rng, &[0, 0, 1, 2])).collect();
    let mut faults: Vec<_> = numbers.into_iter().map(|number| (number, fault(rng, extended))).collect();
    faults.sort_by_key(|(number, _)| *number);
    faults.dedup_by_key(|(number, _)| *number);
    let connections = one_of(rng, &[Connections::Kept, Connections::Anew, Connections::Single]);
    let mut step = FtpStep { connections, faults, ..FtpStep::sound(usize::from(rng.random_ratio(1, 6))) };
    step.no_resume = rng.random_ratio(1, 10);
    // Wrong bytes just before the end of a run may be committed; only the next run detects them.
    let is_wrong = |fault: &FtpFault| matches!(fault, FtpFault::WrongThenTwice | FtpFault::WrongThenOutside);
    match rng.random_range(0..4) {
        0 => step.change = Some((rng.random_range(0..3), 1 - step.build)),
        1 | 2 if !step.faults.iter().any(|(_, fault)| is_wrong(fault)) => step.stop = Some(stop(rng, len)),
        _ => {}
    }
    step
}

fn fault(rng: &mut ChaCha8Rng, extended: bool) -> FtpFault {
    let at = rng.random_range(0..1000);
    match rng.random_range(0..if extended { 18 } else { 9 }) {
        0 | 1 => FtpFault::Drop(at),
        2 => FtpFault::Reset(at),
        3 => FtpFault::Lost(at),
        4 => FtpFault::Stall(at, one_of(rng, &[300, 3500])),
        5 => FtpFault::Refused(one_of(rng, &[421, 425, 426, 451, 501, 550])),
        6 => FtpFault::EarlySuccess,
        7 => FtpFault::Silence,
        8 => FtpFault::LateFailure,
        9 | 10 => FtpFault::Missing,
        11 => FtpFault::WrongCount(one_of(rng, &[-1, 1, 100])),
        12 => FtpFault::Closes,
        13 | 14 => FtpFault::WrongThenTwice,
        15 => FtpFault::WrongThenOutside,
        16 => FtpFault::AfterEnd,
        _ => FtpFault::BadHeader(one_of(rng, &[3, 16, 32])),
    }
}
