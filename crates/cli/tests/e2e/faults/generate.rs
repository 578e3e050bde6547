//! Generates a schedule from a seed.
//!
//! A schedule never contains faults that HTTP cannot detect: a page as the first response of a
//! fresh transfer (excluded by the server), a truncated body delimited by the connection's close, a
//! server that ignores If-Range and sends parts without their date.

use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::faults::dice::{
    LONGEST, disk_fault, fault, flip, one_of, page, redirect, size, stop, traits, when,
};
use crate::faults::fault::{
    DiskFault, DiskFaultKind, Fault, Framing, RangeFault, RelayFault, RelayFaultKind, Stop, When,
};
use crate::faults::schedule::{
    Build, BuildChoice, GetSchedule, Labels, Mirror, Options, PutSchedule, PutStep, Redirect, SOUND,
    Schedule, Step, Traits,
};

pub(crate) fn schedule(seed: u64) -> Schedule {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    if rng.random_ratio(1, 5) { Schedule::Put(put(&mut rng)) } else { Schedule::Get(get(&mut rng)) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScheduleTheme {
    Wild,        // Arbitrary faults, often several at once
    MixedBuilds, // Several builds of equal size with weak or no validators
    Changed,     // A file that changes permanently during a run, with a correct validator
    Resumed,     // A partial file, and runs that receive something other than the file
    Survivable,  // One run, which must succeed
}

fn get(rng: &mut ChaCha8Rng) -> GetSchedule {
    use Labels::{LyingTag, Nothing, OwnDates, OwnTags, OwnWeakTags, SharedFreshDate, SharedWeakTag};
    use ScheduleTheme::{Changed, MixedBuilds, Resumed, Survivable, Wild};
    let theme =
        one_of(rng, &[Wild, Wild, Wild, MixedBuilds, Changed, Resumed, Resumed, Survivable, Survivable]);
    let labels = match theme {
        Wild => one_of(
            rng,
            &[OwnTags, OwnTags, OwnDates, OwnWeakTags, SharedWeakTag, SharedFreshDate, Nothing, LyingTag],
        ),
        MixedBuilds => {
            one_of(rng, &[OwnTags, OwnDates, OwnWeakTags, SharedWeakTag, SharedFreshDate, Nothing, Nothing])
        }
        Changed | Resumed => one_of(rng, &[OwnTags, OwnTags, OwnDates]),
        Survivable => one_of(rng, &[OwnTags, OwnTags, OwnDates, OwnWeakTags, Nothing]),
    };
    let streams = one_of(
        rng,
        if matches!(theme, MixedBuilds | Changed) { &["2", "4", "4"] } else { &["1", "2", "4", "4", "auto"] },
    );
    let len = match theme {
        MixedBuilds | Changed => rng.random_range(17 << 20..LONGEST),
        Resumed => rng.random_range(3 << 20..LONGEST),
        _ => size(rng, streams == "4"),
    };
    let mut builds: Vec<Build> = (0..rng.random_range(2..=3)).map(|content| Build { content, len }).collect();
    // A new build may have another size.
    if theme != MixedBuilds && rng.random_ratio(1, if theme == Changed { 2 } else { 4 }) {
        builds[1].len = rng.random_range(1..=LONGEST);
    }
    let settled = match theme {
        Survivable => 0,
        Changed => 1,
        _ => usize::from(rng.random_ratio(1, 5)),
    };
    let checksum = match rng.random_range(0..10) {
        _ if labels == LyingTag => Some(settled),
        0..2 => Some(settled),
        2 if !matches!(theme, Survivable | Changed) => Some(1 - settled),
        _ => None,
    };
    let older = rng.random_ratio(1, 3);
    let options = Options {
        streams,
        writer: one_of(rng, &["auto", "direct", "mmap", "buffered"]),
        retries: rng.random_range(if theme == Survivable { 3..=4 } else { 1..=3 }),
        app_buffer: one_of(rng, &[None, None, Some("4MiB")]),
        checksum,
        into_directory: rng.random_ratio(1, if older { 12 } else { 4 }),
        assume_unchanged: false,
    };
    let tls = rng.random_ratio(1, if theme == Survivable { 3 } else { 5 });
    // Into a directory the first server determines the file's name.
    let mirror = match rng.random_range(0..12) {
        0 => Some(Mirror::Down),
        1 | 2 => Some(Mirror::Has(settled)),
        3 if labels != LyingTag => Some(Mirror::Has(rng.random_range(0..builds.len()))),
        _ => None,
    };
    let mut schedule = GetSchedule {
        builds,
        labels,
        tls,
        older,
        options,
        steps: Vec::new(),
        settled,
        mirror,
        odd_heads: false,
    };
    schedule.steps = match theme {
        Wild => {
            let disk = rng.random_ratio(1, 3);
            (0..rng.random_range(1..=3)).map(|_| wild(rng, &schedule, disk)).collect()
        }
        MixedBuilds => (0..rng.random_range(1..=2)).map(|_| mixed(rng, &schedule)).collect(),
        Changed => {
            let picks = BuildChoice::Change(rng.random_range(1..4), 1);
            // A server that ignores If-Range answers 416 beyond the end of a shorter file.
            vec![Step { picks, traits: Traits { if_range: rng.random(), ..SOUND }, ..Step::sound(0) }]
        }
        Resumed => {
            let mut steps = vec![interrupted(rng, len)];
            steps.extend((0..rng.random_range(1..=2)).map(|_| resumed(rng, &schedule)));
            steps
        }
        Survivable => vec![survivable(rng, &schedule)],
    };
    schedule.options.assume_unchanged = schedule.never_changes() && mirror.is_none() && rng.random();
    schedule.odd_heads = rng.random_ratio(1, 3);
    schedule
}

impl GetSchedule {
    /// Returns whether a file without validators never changes.
    fn never_changes(&self) -> bool {
        let same = |step: &Step| {
            step.picks == BuildChoice::Always(0)
                // The file is identified by its size only.
                && !step.faults.iter().any(|(_, fault)| {
                    matches!(fault, Fault::Stray(_) | Fault::Range(RangeFault::Total(_)))
                })
        };
        !self.labels.strong()
            && self.labels != Labels::LyingTag
            && self.settled == 0
            && self.steps.iter().all(same)
    }
}

/// Returns the number of a request, usually an early one that every run has.
fn early(rng: &mut impl Rng) -> u32 {
    one_of(rng, &[0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5])
}

fn in_order(mut faults: Vec<(u32, Fault)>) -> Vec<(u32, Fault)> {
    faults.sort_by_key(|(number, _)| *number);
    faults.dedup_by_key(|(number, _)| *number);
    faults
}

fn wild(rng: &mut impl Rng, schedule: &GetSchedule, disk: bool) -> Step {
    let (all, labels) = (schedule.builds[0].len as u64, schedule.labels);
    let other = rng.random_range(1..schedule.builds.len());
    let picks = match rng.random_range(0..8) {
        0 if schedule.builds_are_of_one_size() => BuildChoice::EachConnection,
        1 if schedule.builds_are_of_one_size() => BuildChoice::EachRequest,
        2 => BuildChoice::Change(rng.random_range(1..6), other),
        3 => BuildChoice::Always(other),
        _ => BuildChoice::Always(0),
    };
    let mut traits = traits(rng);
    // A part without a date is of the file that If-Range named, if the server evaluates it.
    traits.if_range |= traits.bare_206;
    let mut faults = in_order(
        (0..one_of(rng, &[0, 1, 2, 3, 4]))
            .map(|_| (early(rng), fault(rng, schedule, traits.framing)))
            .collect(),
    );
    let flips = if schedule.tls { rng.random_range(0..3) } else { 0 };
    let relayed: Vec<_> = (0..flips).map(|_| flip(rng, schedule.builds[0].len)).collect();
    if !relayed.is_empty() {
        // A flip may hide the first response, after which a page may not be sent.
        faults.retain(|(_, fault)| !matches!(fault, Fault::Page(_)));
    }
    Step {
        traits,
        picks,
        faults,
        relayed,
        disk: (disk && rng.random_bool(0.7)).then(|| disk_fault(rng, all)),
        stop: rng.random_bool(0.4).then(|| stop(rng, all)),
        no_resume: labels != Labels::LyingTag && rng.random_ratio(1, 12),
    }
}

fn mixed(rng: &mut impl Rng, schedule: &GetSchedule) -> Step {
    let to = rng.random_range(1..schedule.builds.len());
    let picks = match rng.random_range(0..3) {
        0 => BuildChoice::EachConnection,
        1 => BuildChoice::EachRequest,
        _ => BuildChoice::Change(rng.random_range(1..4), to),
    };
    let traits = Traits {
        if_range: rng.random(),
        framing: one_of(rng, &[Framing::Length, Framing::Chunked]),
        closes_each: rng.random_ratio(1, 4),
        ..SOUND
    };
    let broken = rng.random_bool(0.5).then(|| (early(rng), Fault::Reset(rng.random_range(0..1000))));
    Step { traits, picks, faults: broken.into_iter().collect(), ..Step::sound(0) }
}

/// A run that is stopped half-way, usually with resumable data.
fn interrupted(rng: &mut impl Rng, len: usize) -> Step {
    // The first request of several streams ends at 16 MiB.
    let first = len.min(16 << 20) as u64;
    let at = rng.random_range(100..900);
    let (stop, millis) = match rng.random_range(0..8) {
        // The journal is written every 2 s.
        0 => (Stop::Kill(When::Millis(rng.random_range(2000..2600))), 2800),
        1 => (Stop::Kill(When::Bytes(first * at / 1000)), 600),
        _ => (Stop::Interrupt(When::Bytes(first * at / 1000)), 600),
    };
    let faults = vec![(0, Fault::Drip(at, millis))];
    Step { faults, stop: Some(stop), ..Step::sound(0) }
}

/// A run with a partial file whose first response is not of the file.
fn resumed(rng: &mut impl Rng, schedule: &GetSchedule) -> Step {
    let other = rng.random_range(1..schedule.builds.len());
    let mut step = Step::sound(0);
    step.traits.redirect = rng.random_ratio(1, 4).then(|| redirect(rng));
    if rng.random_ratio(1, 5) {
        // Another interruption.
        let faults = vec![(0, Fault::Drip(rng.random_range(0..1000), 600))];
        let when = When::Millis(rng.random_range(50..600));
        let stop = if rng.random() { Stop::Kill(when) } else { Stop::Interrupt(when) };
        return Step { faults, stop: Some(stop), ..step };
    }
    match rng.random_range(0..6) {
        0 => step.picks = BuildChoice::Always(other),
        1..4 => step.faults.push((0, page(rng, schedule, true))),
        _ => step.faults.push((0, fault(rng, schedule, Framing::Length))),
    }
    if rng.random_bool(0.5) {
        step.faults.push((1 + early(rng), fault(rng, schedule, Framing::Length)));
    }
    step
}

/// A run whose faults it must survive.
fn survivable(rng: &mut ChaCha8Rng, schedule: &GetSchedule) -> Step {
    let all = schedule.builds[0].len as u64;
    let mut traits = SOUND;
    traits.closes_each = rng.random_ratio(1, 4);
    traits.redirect =
        rng.random_bool(0.3).then(|| Redirect { serves: rng.random_range(1..3), ..redirect(rng) });
    let mut left = schedule.options.retries - traits.redirect.map_or(0, |redirect| redirect.expiries);
    let flips = u32::from(schedule.tls && left > 0);
    left -= flips;
    let strays = schedule.labels == Labels::OwnTags && rng.random_bool(0.4);
    let mut faults = Vec::new();
    if left > 0 && (strays || traits.redirect.is_some()) {
        // Forces a further request.
        faults.push((0, Fault::Close(rng.random_range(0..900))));
        left -= 1;
    }
    if left > 0 && strays {
        faults.push((rng.random_range(1..4), Fault::Stray(rng.random_range(1..schedule.builds.len()))));
        left -= 1;
    }
    for _ in 0..rng.random_range(0..=left) {
        let at = rng.random_range(0..1000);
        let fault = match rng.random_range(0..8) {
            0 => Fault::Close(at),
            1 => Fault::Reset(at),
            2 => Fault::Stall(at, 1500),
            3 => Fault::Drip(at, 600),
            4 => Fault::HangUp,
            5 => Fault::Status(one_of(rng, &[429, 503]), one_of(rng, &[None, Some(0), Some(1)])),
            6 => Fault::Range(one_of(rng, &[RangeFault::Shorter, RangeFault::NoTotal])),
            _ => Fault::ChunkedPart,
        };
        faults.push((early(rng), fault));
    }
    let faults = in_order(faults);
    let flip = |rng: &mut ChaCha8Rng| RelayFault {
        connection: one_of(rng, &[0, 0, 0, 1]),
        to_client: true,
        at: rng.random_range(1 << 14..=(1 << 14) + all),
        what: RelayFaultKind::Flip(rng.random_range(0..8)),
    };
    let disk_fault_at = |rng: &mut ChaCha8Rng, kind: fn(u64) -> DiskFaultKind, millis: Range<u64>| {
        let at = rng.random_range(0..=all);
        Some(DiskFault { at, what: kind(rng.random_range(millis)) })
    };
    let disk = match rng.random_range(0..8) {
        0 => disk_fault_at(rng, DiskFaultKind::Hang, 100..2500),
        1 => disk_fault_at(rng, DiskFaultKind::Slow, 300..1500),
        2 => Some(DiskFault::POWER_CUT_AFTER),
        _ => None,
    };
    Step { traits, faults, relayed: (0..flips).map(|_| flip(rng)).collect(), disk, ..Step::sound(0) }
}

fn put(rng: &mut impl Rng) -> PutSchedule {
    let len = size(rng, false);
    let small_disk = rng.random_ratio(1, 4);
    let step = |rng: &mut ChaCha8Rng| {
        let all = len as u64;
        let meddling = |rng: &mut ChaCha8Rng| RelayFault {
            connection: one_of(rng, &[0, 0, 0, 1, 1, 2]),
            to_client: rng.random_ratio(1, 5),
            at: if rng.random_bool(0.3) {
                rng.random_range(0..2000)
            } else {
                rng.random_range(0..=all + 1000)
            },
            what: match rng.random_range(0..5) {
                0 => RelayFaultKind::Close,
                1 => RelayFaultKind::Reset,
                2 => RelayFaultKind::Stall(one_of(rng, &[200, 1500])),
                3 => RelayFaultKind::Refuse(one_of(rng, &[429, 503])),
                _ => RelayFaultKind::Flip(rng.random_range(0..8)),
            },
        };
        PutStep {
            relayed: (0..one_of(rng, &[0, 1, 1, 2])).map(|_| meddling(rng)).collect(),
            stop: rng.random_bool(0.3).then(|| stop(rng, all)),
            server_dies: rng.random_bool(0.3).then(|| (when(rng, all), rng.random_range(0..400))),
            source_changes: rng.random_ratio(1, 6).then(|| when(rng, all)),
            disk: (small_disk && rng.random_bool(0.7)).then(|| disk_fault(rng, all)),
            no_resume: rng.random_ratio(1, 8),
        }
    };
    let mut inner = ChaCha8Rng::seed_from_u64(rng.random());
    PutSchedule {
        build: Build { content: 0, len },
        older: rng.random_bool(0.4),
        reader: one_of(rng, &["auto", "sendfile", "direct"]),
        streams: one_of(&mut inner, &["1", "1", "2", "5", "auto"]),
        retries: rng.random_range(1..=4),
        small_disk,
        steps: (0..rng.random_range(1..=3)).map(|_| step(&mut inner)).collect(),
    }
}
