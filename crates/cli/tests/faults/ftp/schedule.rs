//! What one seed makes an FTP server do, as plain data that prints in readable form.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::dice::{LONGEST, one_of, stop};
use crate::fault::Stop;
use crate::schedule::Build;

/// What goes wrong with one transfer; `at` is in thousandths of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FtpFault {
    /// A data connection is closed, and the server reports it.
    Drop { at: u64 },
    /// A data connection is reset, and the server says nothing.
    Reset { at: u64 },
    /// The control connection is closed, and all data connections with it.
    Lost { at: u64 },
    /// Nothing is sent for so long.
    Stall { at: u64, millis: u64 },
    /// The request is refused.
    Refused(u16),
    /// Success is reported before the data is sent.
    EarlySuccess,
    /// Neither success nor failure is reported.
    Silence,
    /// All is sent, and failure reported.
    LateFailure,
    /// Of MODE E: some blocks are left out, and success is reported.
    Missing,
    /// Of MODE E: another number of connections is announced.
    WrongCount(i64),
    /// Of MODE E: the connections announce that they are closed, and are.
    Closes,
    /// Of MODE E: all bytes are wrong, and a block comes twice.
    WrongThenTwice,
    /// Of MODE E: all bytes are wrong, and a block lies outside of the request.
    WrongThenOutside,
    /// Of MODE E: a block comes behind the end of data of its connection.
    AfterEnd,
    /// Of MODE E: a header of no MODE E.
    BadHeader(u8),
}

impl FtpFault {
    /// Returns whether a transfer with retries left must survive it.
    fn survivable(self) -> bool {
        match self {
            Self::Drop { .. }
            | Self::Reset { .. }
            | Self::Lost { .. }
            | Self::Stall { .. }
            | Self::EarlySuccess
            | Self::Silence
            | Self::LateFailure
            | Self::Missing
            | Self::WrongCount(_)
            | Self::Closes => true,
            Self::Refused(code) => matches!(code, 426 | 451),
            Self::WrongThenTwice | Self::WrongThenOutside | Self::AfterEnd | Self::BadHeader(_) => false,
        }
    }
}

/// How the server uses data connections throughout one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    /// Those that are open are used again, as Globus does.
    Kept,
    /// They are opened anew for each transfer.
    Anew,
    /// One is opened, whatever was asked for.
    Single,
}

/// One run of the client, and what it meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtpStep {
    pub(crate) build: usize,
    /// From the transfer of this number on the server has another build.
    pub(crate) change: Option<(u32, usize)>,
    pub(crate) connections: Connections,
    /// By number of the transfer, from 0.
    pub(crate) faults: Vec<(u32, FtpFault)>,
    pub(crate) stop: Option<Stop>,
    pub(crate) no_resume: bool,
}

impl FtpStep {
    pub(crate) fn sound(build: usize) -> Self {
        let (faults, connections) = (Vec::new(), Connections::Kept);
        Self { build, change: None, connections, faults, stop: None, no_resume: false }
    }
}

/// Runs of `get` from an FTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FtpSchedule {
    pub(crate) builds: Vec<Build>,
    /// Whether the server has MODE E.
    pub(crate) extended: bool,
    /// Whether the server begins to send at an offset.
    pub(crate) restarts: bool,
    /// Another file stands under the final name.
    pub(crate) older: bool,
    /// `--streams`, or `apt` for chunks of many lengths.
    pub(crate) streams: &'static str,
    pub(crate) retries: u32,
    pub(crate) steps: Vec<FtpStep>,
    /// Which build the sound server has in the end.
    pub(crate) settled: usize,
}

impl FtpSchedule {
    /// Returns whether `step` must end well where what an earlier run has left is of `partial`, if there is anything.
    pub(crate) fn must_succeed(&self, step: &FtpStep, partial: Option<usize>) -> bool {
        step.stop.is_none()
            && step.change.is_none()
            && partial.is_none_or(|partial| partial == step.build)
            && step.faults.len() <= self.retries as usize
            && step.faults.iter().all(|(_, fault)| fault.survivable())
    }

    /// Writes the schedule for a person.
    pub(crate) fn shown(&self) -> String {
        let Self { builds, extended, restarts, older, streams, retries, steps, settled } = self;
        let sizes: Vec<_> = builds.iter().map(|build| build.len).collect();
        let mut text = format!(
            "ftp: builds of {sizes:?} bytes, MODE E {extended}, REST {restarts}, older file {older}, streams {streams}, retries \
             {retries}, at last build {settled}"
        );
        for (number, step) in steps.iter().enumerate() {
            text += &format!("\n  run {number}: {step:?}");
        }
        text
    }
}

/// Makes the schedule of `seed`; one seed makes one schedule.
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
    // What comes just before a run is ended is proved by the next run only: wrong bytes may have been committed.
    let lies = |fault: &FtpFault| matches!(fault, FtpFault::WrongThenTwice | FtpFault::WrongThenOutside);
    match rng.random_range(0..4) {
        0 => step.change = Some((rng.random_range(0..3), 1 - step.build)),
        1 | 2 if !step.faults.iter().any(|(_, fault)| lies(fault)) => step.stop = Some(stop(rng, len)),
        _ => {}
    }
    step
}

fn fault(rng: &mut ChaCha8Rng, extended: bool) -> FtpFault {
    let at = rng.random_range(0..1000);
    match rng.random_range(0..if extended { 18 } else { 9 }) {
        0 | 1 => FtpFault::Drop { at },
        2 => FtpFault::Reset { at },
        3 => FtpFault::Lost { at },
        4 => FtpFault::Stall { at, millis: one_of(rng, &[300, 3500]) },
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
