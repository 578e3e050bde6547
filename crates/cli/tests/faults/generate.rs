//! Makes a schedule of a seed.
//!
//! A schedule never holds what HTTP gives no means to notice: a page as the first answer of a fresh transfer (the
//! server sees to that), a body that ends early where only the connection's end delimits it, a server that ignores
//! If-Range and sends parts without the date that they belong to.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::schedule::{
    Build, DiskFault, Fault, Framing, GetSchedule, Labels, Meddling, Options, Picks, PutSchedule, PutStep,
    RangeFault, Redirect, Relayed, SOUND, Schedule, Step, Stop, Traits, When,
};

const LONGEST: usize = 24 << 20;

/// Makes the schedule of `seed`; one seed makes one schedule.
pub(crate) fn schedule(seed: u64) -> Schedule {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    if rng.random_ratio(1, 5) { Schedule::Put(put(&mut rng)) } else { Schedule::Get(get(&mut rng)) }
}

fn one_of<T: Copy>(rng: &mut impl Rng, choices: &[T]) -> T {
    *choices.choose(rng).unwrap()
}

/// A size from 1 B to 24 MiB: small ones, those about a block's boundary, and others.
fn size(rng: &mut impl Rng, several_streams: bool) -> usize {
    // The first request of several streams asks for 16 MiB: others have work from there on.
    if several_streams && rng.random_bool(0.6) {
        return rng.random_range(16 << 20..LONGEST);
    }
    match rng.random_range(0..10) {
        0..3 => 1 << rng.random_range(0..17),
        3..6 => {
            let boundary = one_of(rng, &[1 << 16, 1 << 20, 16 << 20]);
            boundary + one_of(rng, &[0, 1, 4096]) - one_of(rng, &[0, 1, 4096])
        }
        _ => rng.random_range(1..=LONGEST),
    }
}

fn get(rng: &mut impl Rng) -> GetSchedule {
    use Labels::{LyingTag, Nothing, OwnDates, OwnTags, OwnWeakTags, SharedFreshDate, SharedWeakTag};
    let labels = one_of(
        rng,
        &[OwnTags, OwnTags, OwnTags, OwnDates, OwnWeakTags, SharedWeakTag, SharedFreshDate, Nothing, LyingTag],
    );
    let streams = one_of(rng, &["1", "2", "4", "4", "auto"]);
    let len = size(rng, streams == "4");
    let mut builds: Vec<Build> =
        (0..rng.random_range(2..=3)).map(|content| Build { content, len }).collect();
    // A new state of the file may have another size.
    if rng.random_ratio(1, 4) {
        builds[1].len = rng.random_range(1..=LONGEST);
    }
    let settled = if rng.random_ratio(1, 5) { 1 } else { 0 };
    let checksum = match rng.random_range(0..10) {
        _ if labels == LyingTag => Some(settled),
        0..2 => Some(settled),
        2 => Some(1 - settled),
        _ => None,
    };
    let older = rng.random_ratio(1, 3);
    let options = Options {
        streams,
        writer: one_of(rng, &["auto", "direct", "mmap", "buffered"]),
        retries: rng.random_range(1..=4),
        app_buffer: one_of(rng, &[None, None, Some("4MiB")]),
        checksum,
        into_directory: rng.random_ratio(1, if older { 12 } else { 4 }),
    };
    let tls = rng.random_ratio(1, 5);
    let disk = rng.random_ratio(1, 6);
    let mut schedule =
        GetSchedule { builds, labels, tls, older, options, steps: Vec::new(), settled };
    for _ in 0..rng.random_range(1..=3) {
        let step = step(rng, &schedule, disk);
        schedule.steps.push(step);
    }
    schedule
}

fn step(rng: &mut impl Rng, schedule: &GetSchedule, disk: bool) -> Step {
    let labels = schedule.labels;
    let equal = schedule.builds.iter().all(|build| build.len == schedule.builds[0].len);
    let other = rng.random_range(1..schedule.builds.len());
    let picks = match rng.random_range(0..8) {
        0 if equal => Picks::EachConnection,
        1 if equal => Picks::EachRequest,
        2 => Picks::Change { at: rng.random_range(1..6), to: other },
        3 => Picks::Always(other),
        _ => Picks::Always(0),
    };
    let mut traits = traits(rng);
    // A part without its date is of the file that If-Range named, where the server heeds that.
    traits.if_range |= traits.bare_206;
    let mut faults: Vec<_> = (0..one_of(rng, &[0, 1, 1, 2, 3]))
        .map(|_| (rng.random_range(0..6), fault(rng, schedule, traits.framing, equal)))
        .collect();
    faults.sort_by_key(|(number, _)| *number);
    faults.dedup_by_key(|(number, _)| *number);
    let flips = if schedule.tls { rng.random_range(0..3) } else { 0 };
    let relayed: Vec<_> = (0..flips).map(|_| flip(rng, schedule.builds[0].len)).collect();
    if !relayed.is_empty() {
        // A flip may hide the first answer, after which a page is never the file.
        faults.retain(|(_, fault)| !matches!(fault, Fault::Page { .. }));
    }
    let all = schedule.builds[0].len as u64;
    Step {
        traits,
        picks,
        faults,
        relayed,
        disk: (disk && rng.random_bool(0.7)).then(|| disk_fault(rng, all)),
        stop: rng.random_bool(0.35).then(|| stop(rng, all)),
        no_resume: labels != Labels::LyingTag && rng.random_ratio(1, 12),
    }
}

fn traits(rng: &mut impl Rng) -> Traits {
    if rng.random_bool(0.5) {
        return SOUND;
    }
    let redirect = rng.random_bool(0.4).then(|| Redirect {
        serves: rng.random_range(1..5),
        expiries: rng.random_range(1..3),
        expired: one_of(rng, &[Some(401), Some(403), Some(404), Some(410), None]),
    });
    Traits {
        ranges: rng.random_bool(0.85),
        if_range: rng.random_bool(0.7),
        bare_206: rng.random_ratio(1, 6),
        framing: one_of(rng, &[Framing::Length, Framing::Length, Framing::Chunked, Framing::UntilClose]),
        closes_each: rng.random_ratio(1, 5),
        redirect,
    }
}

fn fault(rng: &mut impl Rng, schedule: &GetSchedule, framing: Framing, equal: bool) -> Fault {
    let at = rng.random_range(0..1000);
    let small = rng.random_range(1..70_000);
    let strong = schedule.labels.strong();
    match rng.random_range(0..18) {
        // Only a validator tells a page of the file's size, or a body of unknown size, from the file.
        0..3 if strong || framing == Framing::Length => Fault::Page {
            framing: one_of(rng, &[Framing::Length, Framing::Chunked, Framing::UntilClose]),
            as_long_as_the_file: strong && rng.random_ratio(1, 4),
            by_redirect: rng.random_ratio(1, 4),
        },
        3 => Fault::Status {
            code: one_of(rng, &[429, 503, 503, 500, 404, 403, 401, 410]),
            retry_after: one_of(rng, &[None, Some(0), Some(1)]),
        },
        4 => Fault::Range(match rng.random_range(0..8) {
            0 => RangeFault::Later(small),
            1 => RangeFault::Earlier(small),
            2 => RangeFault::Longer(small),
            3 => RangeFault::Shorter,
            4 => RangeFault::Total(one_of(rng, &[-1, 1, 4096, 1 << 20])),
            5 => RangeFault::NoTotal,
            6 => RangeFault::Garbage,
            _ => RangeFault::Missing,
        }),
        5 => Fault::NotSatisfiable(one_of(rng, &[None, Some(0), Some(-1), Some(4096)])),
        6 | 7 if framing != Framing::UntilClose => Fault::Close { at },
        8 | 9 => Fault::Reset { at },
        10 => Fault::Stall { at, millis: one_of(rng, &[200, 1500]) },
        11 => Fault::Drip { at, millis: one_of(rng, &[300, 900]) },
        12 if framing != Framing::UntilClose => Fault::Extra(small as usize),
        13 => Fault::GarbageHead(rng.random_range(0..5)),
        14 => Fault::HangUp,
        15 => Fault::WholeFile,
        16 => Fault::ChunkedPart,
        17 if equal || strong => Fault::Stray(rng.random_range(1..schedule.builds.len())),
        _ => Fault::Reset { at },
    }
}

/// A bit that flips; most past the handshake.
fn flip(rng: &mut impl Rng, len: usize) -> Relayed {
    let to_client = rng.random_bool(0.9);
    let late = (1 << 14) + len as u64 / 2;
    let at = if to_client && rng.random_bool(0.8) { rng.random_range(1 << 14..=late) } else { rng.random_range(0..3000) };
    Relayed { connection: rng.random_range(0..3), to_client, at, what: Meddling::Flip(rng.random_range(0..8)) }
}

fn when(rng: &mut impl Rng, all: u64) -> When {
    match rng.random_range(0..3) {
        0 => When::Millis(rng.random_range(0..300)),
        // Where the file gets its name.
        1 => When::Bytes(all),
        _ => When::Bytes(rng.random_range(0..=all)),
    }
}

fn stop(rng: &mut impl Rng, all: u64) -> Stop {
    let when = when(rng, all);
    if rng.random_bool(0.6) { Stop::Kill(when) } else { Stop::Interrupt(when) }
}

fn disk_fault(rng: &mut impl Rng, all: u64) -> DiskFault {
    let at = rng.random_range(0..=all);
    match rng.random_range(0..4) {
        0 => DiskFault::Full { at: one_of(rng, &[0, at]), leave: rng.random_range(0..=all) },
        1 => DiskFault::Hang { at, millis: rng.random_range(100..1500) },
        2 => DiskFault::Slow { at, millis: rng.random_range(300..1500) },
        _ => DiskFault::PowerCut { at },
    }
}

fn put(rng: &mut impl Rng) -> PutSchedule {
    let len = size(rng, false);
    let small_disk = rng.random_ratio(1, 4);
    let step = |rng: &mut ChaCha8Rng| {
        let all = len as u64;
        let meddling = |rng: &mut ChaCha8Rng| Relayed {
            connection: rng.random_range(0..4),
            to_client: rng.random_ratio(1, 5),
            at: if rng.random_bool(0.3) { rng.random_range(0..2000) } else { rng.random_range(0..=all + 1000) },
            what: match rng.random_range(0..4) {
                0 => Meddling::Close,
                1 => Meddling::Reset,
                2 => Meddling::Stall(one_of(rng, &[200, 1500])),
                _ => Meddling::Flip(rng.random_range(0..8)),
            },
        };
        PutStep {
            relayed: (0..one_of(rng, &[0, 1, 1, 2])).map(|_| meddling(rng)).collect(),
            stop: rng.random_bool(0.3).then(|| stop(rng, all)),
            server_dies: rng.random_bool(0.3).then(|| (when(rng, all), rng.random_range(0..400))),
            full: (small_disk && rng.random_bool(0.6)).then(|| rng.random_range(0..=2 * all)),
            no_resume: rng.random_ratio(1, 8),
        }
    };
    let mut inner = ChaCha8Rng::seed_from_u64(rng.random());
    PutSchedule {
        build: Build { content: 0, len },
        older: rng.random_bool(0.4),
        reader: one_of(rng, &["auto", "sendfile", "direct"]),
        retries: rng.random_range(1..=4),
        small_disk,
        steps: (0..rng.random_range(1..=3)).map(|_| step(&mut inner)).collect(),
    }
}
