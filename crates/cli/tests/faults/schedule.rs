//! What one seed makes happen, as plain data that prints in readable form.

use crate::fault::{DiskFault, Fault, Framing, Relayed, Stop, When};

/// The states that the served file has over time: a part of one of the fixed contents each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) content: usize,
    pub(crate) len: usize,
}

/// How the builds of the file are labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    /// Each build has a strong ETag of its own.
    OwnTags,
    /// Each build has a Last-Modified of its own, a day before Date.
    OwnDates,
    /// Each build has a weak ETag of its own.
    OwnWeakTags,
    /// All builds share one weak ETag.
    SharedWeakTag,
    /// All builds share one Last-Modified, in the very second of Date (RFC 9110, section 8.8.2.2: weak).
    SharedFreshDate,
    /// No validator at all.
    Nothing,
    /// All builds share one strong ETag: a lie that only a checksum finds out.
    LyingTag,
}

impl Labels {
    /// Returns whether ranges of several responses may be combined under such a label.
    pub(crate) fn strong(self) -> bool {
        matches!(self, Self::OwnTags | Self::OwnDates)
    }
}

/// A redirect from the URL to a target that serves only so many requests; the URL then leads to a fresh target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// Requests that a target serves; at least one.
    pub(crate) serves: u32,
    /// How many targets expire in a run; a later one lasts.
    pub(crate) expiries: u32,
    /// The status of an expired target; `None` where its port is closed.
    pub(crate) expired: Option<u16>,
}

/// How the server behaves throughout one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) ranges: bool,
    pub(crate) if_range: bool,
    /// A 206 names no validator.
    pub(crate) bare_206: bool,
    pub(crate) framing: Framing,
    pub(crate) closes_each: bool,
    pub(crate) redirect: Option<Redirect>,
}

/// Traits of a server without fault.
pub(crate) const SOUND: Traits = Traits {
    ranges: true,
    if_range: true,
    bare_206: false,
    framing: Framing::Length,
    closes_each: false,
    redirect: None,
};

/// Which build answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Picks {
    Always(usize),
    EachConnection,
    EachRequest,
    /// From the request of this number on another build, for good.
    Change {
        at: u32,
        to: usize,
    },
}

/// One run of the client, and what it meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) traits: Traits,
    pub(crate) picks: Picks,
    /// By number of the request, from 0.
    pub(crate) faults: Vec<(u32, Fault)>,
    pub(crate) relayed: Vec<Relayed>,
    pub(crate) disk: Option<DiskFault>,
    pub(crate) stop: Option<Stop>,
    pub(crate) no_resume: bool,
}

impl Step {
    /// A run against a server, a disk and a network without fault.
    pub(crate) fn sound(build: usize) -> Self {
        Self {
            traits: SOUND,
            picks: Picks::Always(build),
            faults: Vec::new(),
            relayed: Vec::new(),
            disk: None,
            stop: None,
            no_resume: false,
        }
    }
}

/// Options of `get` that hold for all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) streams: &'static str,
    pub(crate) writer: &'static str,
    pub(crate) retries: u32,
    pub(crate) app_buffer: Option<&'static str>,
    /// The build whose checksum is asked for.
    pub(crate) checksum: Option<usize>,
    /// `-o DIR/`, where nothing is ever replaced, in place of `-o FILE`.
    pub(crate) into_directory: bool,
    /// The user vouches that the file does not change: so it never does.
    pub(crate) assume_unchanged: bool,
}

/// A second server of the file, without faults of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mirror {
    /// Nothing listens there.
    Down,
    /// It has this build under a strong ETag: maybe not the one that the first server has.
    Has(usize),
}

/// Runs of `get` from a first one to one that meets no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GetSchedule {
    pub(crate) builds: Vec<Build>,
    pub(crate) labels: Labels,
    pub(crate) tls: bool,
    /// Another file stands under the final name.
    pub(crate) older: bool,
    pub(crate) options: Options,
    pub(crate) steps: Vec<Step>,
    /// Which build the sound server has in the end.
    pub(crate) settled: usize,
    pub(crate) mirror: Option<Mirror>,
}

impl GetSchedule {
    pub(crate) fn builds_are_of_one_size(&self) -> bool {
        self.builds.iter().all(|build| build.len == self.builds[0].len)
    }

    /// Returns whether the sound server's file can get the final name at all.
    pub(crate) fn can_succeed(&self) -> bool {
        self.options.checksum.is_none_or(|wanted| wanted == self.settled)
            && !(self.older && self.options.into_directory)
    }

    /// Returns whether `step` must end well, given that what an earlier run left is of `partial`.
    pub(crate) fn must_succeed(&self, step: &Step, partial: Option<usize>) -> bool {
        let Picks::Always(build) = step.picks else { return false };
        let expiries = step.traits.redirect.map_or(0, |redirect| redirect.expiries);
        let failures = step.faults.len() + step.relayed.len() + expiries as usize;
        let mut strays = step.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Stray(_)));
        let named_by =
            |n: u32| step.faults.iter().all(|(other, fault)| *other != n || fault.names_the_file());
        let settled_before = |number: u32| (0..number).any(named_by);
        // A mapping needs a size.
        let sizeless = step.traits.framing != Framing::Length
            || step.faults.iter().any(|(_, fault)| *fault == Fault::ChunkedPart);
        let past_the_handshake = |relayed: &Relayed| relayed.at >= 1 << 14;
        step.stop.is_none()
            && self.can_succeed()
            // A mirror of another build may answer for a server that is slow.
            && self.mirror.is_none_or(|mirror| matches!(mirror, Mirror::Down) || mirror == Mirror::Has(self.settled))
            && build == self.settled
            && partial.is_none_or(|partial| partial == build)
            && !matches!(step.disk, Some(DiskFault::Full { .. } | DiskFault::PowerCut { .. }))
            && self.labels != Labels::LyingTag
            && !(step.traits.bare_206 && self.labels != Labels::Nothing)
            && failures <= self.options.retries as usize
            && step.faults.iter().all(|(_, fault)| fault.survivable())
            && strays.all(|(number, _)| self.labels == Labels::OwnTags && settled_before(*number))
            && !(self.options.writer == "mmap" && sizeless)
            && step.relayed.iter().all(past_the_handshake)
    }
}

/// One run of `put`, and what it meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PutStep {
    pub(crate) relayed: Vec<Relayed>,
    pub(crate) stop: Option<Stop>,
    /// The server is killed, and started again so many milliseconds later.
    pub(crate) server_dies: Option<(When, u64)>,
    /// Another program writes the source: other content of the same length, which is gone again after the run.
    pub(crate) source_changes: Option<When>,
    /// Of the server.
    pub(crate) disk: Option<DiskFault>,
    pub(crate) no_resume: bool,
}

/// Runs of `put` to `longhaul serve --writable`, the last without fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PutSchedule {
    pub(crate) build: Build,
    pub(crate) older: bool,
    pub(crate) reader: &'static str,
    pub(crate) streams: &'static str,
    pub(crate) retries: u32,
    /// The server's directory is a file system of its own, of 64 MiB.
    pub(crate) small_disk: bool,
    pub(crate) steps: Vec<PutStep>,
}

/// What a seed makes happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Schedule {
    Get(GetSchedule),
    Put(PutSchedule),
}

impl Schedule {
    /// Writes the schedule for a person: a line for what holds throughout, and one a run.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Get(get) => {
                let GetSchedule { builds, labels, tls, older, options, steps, settled, mirror } = get;
                let sizes: Vec<_> = builds.iter().map(|build| build.len).collect();
                let mut text = format!(
                    "get: builds of {sizes:?} bytes, labels {labels:?}, tls {tls}, older file {older}, at last build {settled}, mirror {mirror:?}\n  {options:?}"
                );
                for (number, step) in steps.iter().enumerate() {
                    text += &format!("\n  run {number}: {}", step.shown());
                }
                text
            }
            Self::Put(put) => {
                let PutSchedule { build, older, reader, streams, retries, small_disk, steps } = put;
                let mut text = format!(
                    "put: {} bytes, older file {older}, reader {reader}, streams {streams}, retries {retries}, small disk {small_disk}",
                    build.len
                );
                for (number, step) in steps.iter().enumerate() {
                    text += &format!("\n  run {number}: {step:?}");
                }
                text
            }
        }
    }
}

impl Step {
    /// Writes what differs from a sound step.
    fn shown(&self) -> String {
        let Self { traits, picks, faults, relayed, disk, stop, no_resume } = self;
        let mut text = format!("{picks:?}");
        if *traits != SOUND {
            text += &format!(", {traits:?}");
        }
        if !faults.is_empty() {
            text += &format!(", faults by request {faults:?}");
        }
        for relayed in relayed {
            text += &format!(", {relayed:?}");
        }
        let parts = [disk.map(|disk| format!(", disk {disk:?}")), stop.map(|stop| format!(", {stop:?}"))];
        text += &parts.into_iter().flatten().collect::<String>();
        if *no_resume { text + ", --no-resume" } else { text }
    }
}
