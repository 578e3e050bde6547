//! Random elements of a schedule: sizes, server traits, single faults.

use rand::Rng;
use rand::seq::IndexedRandom;

use crate::faults::fault::{
    DiskFault, DiskFaultKind, Fault, Framing, Page, RangeFault, RelayFault, RelayFaultKind, Stop, When,
};
use crate::faults::schedule::{GetSchedule, Redirect, SOUND, Traits};

pub(crate) const LONGEST: usize = 24 << 20;

pub(crate) fn one_of<T: Copy>(rng: &mut impl Rng, choices: &[T]) -> T {
    *choices.choose(rng).unwrap()
}

/// A size from 1 B to 24 MiB: small ones, ones near a block boundary, and others.
pub(crate) fn size(rng: &mut impl Rng, several_streams: bool) -> usize {
    // The first request of several streams covers 16 MiB; other streams have work beyond.
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

pub(crate) fn traits(rng: &mut impl Rng) -> Traits {
    if rng.random_bool(0.5) {
        return SOUND;
    }
    Traits {
        ranges: rng.random_bool(0.85),
        if_range: rng.random_bool(0.7),
        bare_206: rng.random_ratio(1, 6),
        framing: one_of(rng, &[Framing::Length, Framing::Length, Framing::Chunked, Framing::UntilClose]),
        closes_each: rng.random_ratio(1, 5),
        redirect: rng.random_bool(0.4).then(|| redirect(rng)),
    }
}

pub(crate) fn redirect(rng: &mut impl Rng) -> Redirect {
    Redirect {
        serves: rng.random_range(1..5),
        expiries: rng.random_range(1..3),
        expired: one_of(rng, &[Some(401), Some(403), Some(404), Some(410), None]),
    }
}

pub(crate) fn fault(rng: &mut impl Rng, schedule: &GetSchedule, framing: Framing) -> Fault {
    let at = rng.random_range(0..1000);
    let small = rng.random_range(1..70_000);
    let strong = schedule.labels.strong();
    match rng.random_range(0..18) {
        // Only a validator distinguishes a page with the file's size, or a body of unknown size,
        // from the file.
        0..3 if strong || framing == Framing::Length => page(rng, schedule, strong),
        3 => Fault::Status(
            one_of(rng, &[429, 503, 503, 500, 404, 403, 401, 410]),
            one_of(rng, &[None, Some(0), Some(1)]),
        ),
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
        6 | 7 if framing != Framing::UntilClose => Fault::Close(at),
        8 | 9 => Fault::Reset(at),
        10 => Fault::Stall(at, one_of(rng, &[200, 1500])),
        11 => Fault::Drip(at, one_of(rng, &[300, 900])),
        12 if framing != Framing::UntilClose => Fault::Extra(small as usize),
        13 => Fault::GarbageHead(rng.random_range(0..5)),
        14 => Fault::HangUp,
        15 => Fault::WholeFile,
        16 => Fault::ChunkedPart,
        17 if strong || schedule.builds_are_of_one_size() => {
            Fault::Stray(rng.random_range(1..schedule.builds.len()))
        }
        _ => Fault::Reset(at),
    }
}

/// A login page; one as long as the file only where `may_be_as_long`.
pub(crate) fn page(rng: &mut impl Rng, schedule: &GetSchedule, may_be_as_long: bool) -> Fault {
    Fault::Page(Page {
        framing: one_of(rng, &[Framing::Length, Framing::Chunked, Framing::UntilClose]),
        as_long_as_the_file: may_be_as_long && rng.random_ratio(1, 4),
        // Into a directory the redirect's path would name the file, and no partial file of that
        // name exists.
        by_redirect: rng.random_ratio(1, 4) && !schedule.options.into_directory,
    })
}

/// A flipped bit, usually after the handshake.
pub(crate) fn flip(rng: &mut impl Rng, len: usize) -> RelayFault {
    let to_client = rng.random_bool(0.9);
    let late = (1 << 14) + len as u64 / 2;
    let at = if to_client && rng.random_bool(0.8) {
        rng.random_range(1 << 14..=late)
    } else {
        rng.random_range(0..3000)
    };
    RelayFault {
        connection: rng.random_range(0..3),
        to_client,
        at,
        what: RelayFaultKind::Flip(rng.random_range(0..8)),
    }
}

pub(crate) fn when(rng: &mut impl Rng, all: u64) -> When {
    match rng.random_range(0..3) {
        0 => When::Millis(rng.random_range(0..300)),
        1 => When::Later(all, rng.random_range(0..60)),
        _ => When::Bytes(rng.random_range(0..=all)),
    }
}

pub(crate) fn stop(rng: &mut impl Rng, all: u64) -> Stop {
    let when = when(rng, all);
    if rng.random_bool(0.6) { Stop::Kill(when) } else { Stop::Interrupt(when) }
}

pub(crate) fn disk_fault(rng: &mut impl Rng, all: u64) -> DiskFault {
    let at = rng.random_range(0..=all);
    let (at, what) = match rng.random_range(0..5) {
        0 => (one_of(rng, &[0, at]), DiskFaultKind::Full(rng.random_range(0..=all))),
        1 => (at, DiskFaultKind::Hang(rng.random_range(100..1500))),
        2 => (at, DiskFaultKind::Slow(rng.random_range(300..1500))),
        3 => (at, DiskFaultKind::PowerCut),
        _ => return DiskFault::POWER_CUT_AFTER,
    };
    DiskFault { at, what }
}
