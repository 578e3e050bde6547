//! The invariants of every run.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::faults::client::{Ended, check_end};
use crate::faults::content::composition;
use crate::faults::fault::{DiskFaultKind, Fault};
use crate::faults::run::Run;
use crate::faults::schedule::{Build, BuildChoice, GetSchedule, Step};

/// The ranges of the file that the client's journal lists as committed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Partial {
    pub(crate) committed: Vec<(u64, u64)>,
    pub(crate) build: Option<usize>, // The build of all ranges
    pub(crate) size: Option<u64>,    // The file's size in the journal
}

impl Partial {
    /// Reads the journal and the partial file beside `target`. All ranges are of one build, unless
    /// the run `may_mix`.
    ///
    /// The only place that depends on a format of the program: the journal is JSON with its ranges
    /// as `committed`.
    pub(crate) fn read(target: &Path, builds: &[Build], may_mix: bool) -> Result<Self, String> {
        let name = |suffix: &str| {
            target.with_file_name(format!("{}{suffix}", target.file_name().unwrap().to_str().unwrap()))
        };
        let Ok(text) = fs::read(name(".longhaul-journal")) else { return Ok(Self::default()) };
        let journal: Value =
            serde_json::from_slice(&text).map_err(|error| format!("the journal is no JSON: {error}"))?;
        let committed: Vec<(u64, u64)> = serde_json::from_value(journal["committed"].clone())
            .map_err(|error| format!("the journal's ranges cannot be read: {error}"))?;
        if committed.is_empty() {
            return Ok(Self::default());
        }
        // A journal without its file is harmless.
        let Ok(part) = fs::read(name(".longhaul-part")) else { return Ok(Self::default()) };
        let holds = |bytes: &[u8]| {
            committed.iter().all(|&(start, end)| {
                let range = start as usize..end as usize;
                part.get(range.clone()).is_some_and(|found| bytes.get(range) == Some(found))
            })
        };
        let build = builds.iter().position(|build| holds(build.bytes()));
        if build.is_none() && !may_mix {
            return Err(format!("the journal commits what is of no single build: {committed:?}"));
        }
        Ok(Self { committed, build, size: journal["size"].as_u64() })
    }

    pub(crate) fn total(&self) -> u64 {
        self.committed.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the number of bytes that are in `ranges` too.
    pub(crate) fn overlap(&self, ranges: &[(u64, u64)]) -> u64 {
        let both = |a: &(u64, u64), b: &(u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
        ranges.iter().flat_map(|range| self.committed.iter().map(move |own| both(own, range))).sum()
    }
}

/// Maximum bytes that a run against a sound server may request again to verify the file's identity.
const PROBE: u64 = 64 << 10;

/// Judges a run of `step`; returns what is wrong with it.
pub(crate) fn judge(schedule: &GetSchedule, step: &Step, run: &Run) -> Result<(), String> {
    check_end(run.ended, step.stop, &run.stderr)?;
    let may_lose_name = step.disk.is_some_and(|disk| disk.what == DiskFaultKind::PowerCut);
    let [stood, found] = [&run.stood, &run.found].map(Option::as_deref);
    let build = check_name(run.ended, stood, found, &schedule.builds, may_lose_name)?;
    if let (Some(build), Some(wanted)) = (build, schedule.options.checksum)
        && build != wanted
    {
        return Err(format!("the final name holds build {build}, of another checksum"));
    }
    let code = match run.ended {
        Ended::Exit(code) => code,
        Ended::Killed => return partial_survives(schedule, step, run),
    };
    if code == 0 {
        if !run.leftovers.is_empty() {
            return Err(format!("exit 0 leaves {:?}", run.leftovers));
        }
    } else {
        if run.must_succeed {
            return Err(format!("exit {code}, though all that went wrong can be survived"));
        }
        let must_refuse = step.only_changes()
            && schedule.labels.strong()
            && schedule.can_succeed()
            && !run.stands_in_the_way;
        if code != 65 && must_refuse {
            return Err(format!("exit {code} where the file has changed and nothing else is wrong, not 65"));
        }
        partial_survives(schedule, step, run)?;
    }
    let resumes =
        run.before.total() > 0 && !step.no_resume && schedule.labels.strong() && !is_refuted(schedule, run);
    if code == 0 && resumes && build != run.before.build {
        let (bytes, was) = (run.before.total(), run.before.build);
        return Err(format!(
            "{bytes} bytes of build {was:?} are given up for build {build:?}, without --no-resume"
        ));
    }
    if resumes && step.is_sound() && run.before.build.map(BuildChoice::Always) == Some(step.picks) {
        // Into a directory the file's name is in the first response, and only then the partial file
        // is found.
        let asked = &run.asked[usize::from(schedule.options.into_directory).min(run.asked.len())..];
        let again = run.before.overlap(asked);
        if again > PROBE {
            let all = run.before.total();
            return Err(format!("{again} bytes of {all} that were committed are fetched again"));
        }
    }
    Ok(())
}

/// Checks that the final name holds a whole build exactly if the exit code says so, otherwise what
/// `stood` there before. Returns the build that it holds.
pub(crate) fn check_name(
    ended: Ended,
    stood: Option<&[u8]>,
    found: Option<&[u8]>,
    builds: &[Build],
    may_lose_name: bool,
) -> Result<Option<usize>, String> {
    let build = found.and_then(|found| builds.iter().position(|build| build.bytes() == found));
    let holds = match ended {
        // The rename may succeed and the directory lose it: the program can only warn.
        Ended::Exit(0) => build.is_some() || (may_lose_name && found == stood),
        // Killed just before or after the rename.
        Ended::Killed => build.is_some() || found == stood,
        Ended::Exit(_) => found == stood,
    };
    let shown = || found.map_or("nothing".to_owned(), composition);
    if holds { Ok(build) } else { Err(format!("{ended:?}, and the final name holds {}", shown())) }
}

/// Checks that committed data survives, unless the run succeeded or had to start over.
fn partial_survives(schedule: &GetSchedule, step: &Step, run: &Run) -> Result<(), String> {
    let starts_over = step.no_resume
        || is_refuted(schedule, run)
        // Killed after the rename.
        || (run.ended == Ended::Killed && run.found != run.stood)
        // The server sends no ranges of this build.
        || !step.traits.ranges
        || !step.traits.if_range
        || step.faults.iter().any(|(_, fault)| *fault == Fault::WholeFile);
    let kept = run.after.overlap(&run.before.committed);
    if !starts_over && kept < run.before.total() {
        let (bytes, build) = (run.before.total(), run.before.build);
        return Err(format!(
            "{bytes} bytes of build {build:?} were committed before the run, {kept} after it"
        ));
    }
    Ok(())
}

/// Returns whether a complete file with another checksum existed before: it is fetched again.
fn is_refuted(schedule: &GetSchedule, run: &Run) -> bool {
    let complete = schedule.builds.iter().any(|build| build.len as u64 == run.before.total());
    complete && schedule.options.checksum.is_some_and(|wanted| run.before.build != Some(wanted))
}

#[test]
fn success_requires_a_whole_build_and_failure_an_unchanged_name() {
    let builds = [0, 1].map(|content| Build { content, len: 9000 });
    let (first, second) = (builds[0].bytes(), builds[1].bytes());
    let mixed = [&first[..4096], &second[4096..]].concat();
    for (ended, found, holds) in [
        (Ended::Exit(0), Some(first), true),
        (Ended::Exit(0), Some(&mixed[..]), false),
        (Ended::Exit(0), Some(&first[..8999]), false),
        (Ended::Exit(0), None, false),
        (Ended::Exit(65), None, true),
        (Ended::Exit(65), Some(first), false),
        (Ended::Exit(101), None, false),
        (Ended::Killed, Some(second), true),
        (Ended::Killed, None, true),
        (Ended::Killed, Some(&mixed[..]), false),
    ] {
        let verdict =
            check_end(ended, None, "").and_then(|()| check_name(ended, None, found, &builds, false));
        assert_eq!(verdict.is_ok(), holds, "{ended:?}: {verdict:?}");
    }
}
