//! The events of one seed, as plain, printable data.

use crate::faults::fault::{DiskFault, DiskFaultKind, Fault, Framing, RelayFault, Stop, When};

/// A build of the served file: a prefix of one of the fixed contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) content: usize,
    pub(crate) len: usize,
}

/// The validators of the file's builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    OwnTags,         // Each build has its own strong ETag
    OwnDates,        // Each build has its own Last-Modified, a day before Date
    OwnWeakTags,     // Each build has its own weak ETag
    SharedWeakTag,   // All builds share one weak ETag
    SharedFreshDate, // All builds share one Last-Modified equal to Date (RFC 9110, section 8.8.2.2: weak)
    Nothing,
    LyingTag, // All builds share one strong ETag: wrong, and detected only by a checksum
}

impl Labels {
    /// Returns whether ranges of several responses may be combined with this validator.
    pub(crate) fn strong(self) -> bool {
        matches!(self, Self::OwnTags | Self::OwnDates)
    }
}

/// A redirect to a target that serves a limited number of requests, after which the URL redirects
/// to a fresh target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) serves: u32,          // Requests that a target serves; at least one
    pub(crate) expiries: u32,        // Number of targets that expire in a run; a later one does not
    pub(crate) expired: Option<u16>, // The status of an expired target; `None` if its port is closed
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) ranges: bool,
    pub(crate) if_range: bool,
    pub(crate) bare_206: bool, // Whether a 206 has no validator
    pub(crate) framing: Framing,
    pub(crate) closes_each: bool,
    pub(crate) redirect: Option<Redirect>,
}

pub(crate) const SOUND: Traits = Traits {
    ranges: true,
    if_range: true,
    bare_206: false,
    framing: Framing::Length,
    closes_each: false,
    redirect: None,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildChoice {
    Always(usize),
    EachConnection,
    EachRequest,
    Change(u32, usize), // From this request on another build, permanently
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) traits: Traits,
    pub(crate) picks: BuildChoice,
    pub(crate) faults: Vec<(u32, Fault)>, // Faults by number of the request, from 0
    pub(crate) relayed: Vec<RelayFault>,
    pub(crate) disk: Option<DiskFault>,
    pub(crate) stop: Option<Stop>,
    pub(crate) no_resume: bool,
}

impl Step {
    /// A run against a fault-free server, disk and network.
    pub(crate) fn sound(build: usize) -> Self {
        let (faults, relayed, disk, stop) = (Vec::new(), Vec::new(), None, None);
        let picks = BuildChoice::Always(build);
        Self { traits: SOUND, picks, faults, relayed, disk, stop, no_resume: false }
    }

    /// Returns whether the only possible fault is a changed file.
    pub(crate) fn only_changes(&self) -> bool {
        let traits = Traits { if_range: self.traits.if_range, ..SOUND };
        matches!(self.picks, BuildChoice::Always(_) | BuildChoice::Change(..))
            && *self == Self { picks: self.picks, traits, no_resume: self.no_resume, ..Self::sound(0) }
    }

    pub(crate) fn is_sound(&self) -> bool {
        matches!(self.picks, BuildChoice::Always(build) if *self == Self { no_resume: self.no_resume, ..Self::sound(build) })
    }

    /// Returns whether the client notices a fault by a timeout: bytes that do not arrive, or a
    /// flipped length.
    pub(crate) fn times_out(&self) -> bool {
        !self.relayed.is_empty() || self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Stall(..)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) streams: &'static str,
    pub(crate) writer: &'static str,
    pub(crate) retries: u32,
    pub(crate) app_buffer: Option<&'static str>,
    pub(crate) checksum: Option<usize>, // The build whose checksum is required
    pub(crate) into_directory: bool,    // `-o DIR/`, where nothing is replaced, instead of `-o FILE`
    pub(crate) assume_unchanged: bool,  // `--assume-unchanged`: the file then never changes
}

/// A second, fault-free server of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mirror {
    Down,
    Has(usize), // The mirror has this build with a strong ETag; the first server may have another build
}

/// Runs of `get`, of which the last is fault-free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GetSchedule {
    pub(crate) builds: Vec<Build>,
    pub(crate) labels: Labels,
    pub(crate) tls: bool,
    pub(crate) older: bool,
    pub(crate) options: Options,
    pub(crate) steps: Vec<Step>,
    pub(crate) settled: usize, // The build of the final, sound server
    pub(crate) mirror: Option<Mirror>,
    pub(crate) odd_heads: bool, // Whether heads have lines that are no fields, so that each answer is the last of its connection
}

impl GetSchedule {
    pub(crate) fn builds_are_of_one_size(&self) -> bool {
        self.builds.iter().all(|build| build.len == self.builds[0].len)
    }

    /// Returns whether the sound server's file can get the final name.
    pub(crate) fn can_succeed(&self) -> bool {
        self.options.checksum.is_none_or(|wanted| wanted == self.settled)
            && !(self.older && self.options.into_directory)
    }

    /// Returns whether `step` must succeed, if the data left by earlier runs is of build `partial`.
    pub(crate) fn must_succeed(&self, step: &Step, partial: Option<usize>) -> bool {
        let BuildChoice::Always(build) = step.picks else { return false };
        let expiries = step.traits.redirect.map_or(0, |redirect| redirect.expiries);
        let failures = step.faults.len() + step.relayed.len() + expiries as usize;
        let mut strays = step.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Stray(_)));
        let named_by =
            |n: u32| step.faults.iter().all(|(other, fault)| *other != n || fault.names_the_file());
        let settled_before = |number: u32| (0..number).any(named_by);
        // A mapping requires a size.
        let sizeless = step.traits.framing != Framing::Length
            || step.faults.iter().any(|(_, fault)| *fault == Fault::ChunkedPart);
        let past_the_handshake = |relayed: &RelayFault| relayed.at >= 1 << 14;
        step.stop.is_none()
            && self.can_succeed()
            // A mirror with another build may answer before a slow server.
            && self.mirror.is_none_or(|mirror| matches!(mirror, Mirror::Down) || mirror == Mirror::Has(self.settled))
            && build == self.settled
            && partial.is_none_or(|partial| partial == build)
            && step.disk.is_none_or(|disk| !matches!(disk.what, DiskFaultKind::Full(_) | DiskFaultKind::PowerCut))
            && self.labels != Labels::LyingTag
            && !(step.traits.bare_206 && self.labels != Labels::Nothing)
            && failures <= self.options.retries as usize
            && step.faults.iter().all(|(_, fault)| fault.survivable())
            && strays.all(|(number, _)| self.labels == Labels::OwnTags && settled_before(*number))
            && !(self.options.writer == "mmap" && sizeless)
            && step.relayed.iter().all(past_the_handshake)
    }
}

/// One run of `put`, with its faults; by default without.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PutStep {
    pub(crate) relayed: Vec<RelayFault>,
    pub(crate) stop: Option<Stop>,
    pub(crate) server_dies: Option<(When, u64)>, // The server is killed, and restarted this many milliseconds later
    /// The source is overwritten with other content of equal length, and restored after the run.
    pub(crate) source_changes: Option<When>,
    pub(crate) disk: Option<DiskFault>,
    pub(crate) no_resume: bool,
}

/// Runs of `put` to `longhaul serve --writable`, of which the last is fault-free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PutSchedule {
    pub(crate) build: Build,
    pub(crate) older: bool,
    pub(crate) reader: &'static str,
    pub(crate) streams: &'static str,
    pub(crate) retries: u32,
    pub(crate) small_disk: bool, // Whether the server's directory is a separate file system of 64 MiB
    pub(crate) steps: Vec<PutStep>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Schedule {
    Get(GetSchedule),
    Put(PutSchedule),
}
