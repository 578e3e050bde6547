//! The hosts that work on a plan, as a worker sees them at its beats, and when their rates belong
//! together.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::units::Rate;

use crate::explanation::FarmRate;
use crate::store::OtherWorker;

/// The beats from which on no rate covers a time before: that of another worker is up to two
/// intervals old.
const MIN_STEADY_BEATS: u32 = 3;
/// The beats for which a worker may be silent, as its beats come between those of this one.
const MAX_SILENT_BEATS: u32 = 1;

/// The workers that use a host.
#[derive(Debug, Default)]
pub(crate) struct FarmView {
    /// The last beat of each other one, and for how many own ones it has been the last.
    others: BTreeMap<String, (u64, u32)>,
    hosts: u32,
    /// The rate of all others.
    rate: Rate,
    /// The own beats for which the same workers have been at work.
    steady: u32,
}

impl FarmView {
    /// Notes the other workers at a beat, or at an announcement between two.
    pub(crate) fn note(&mut self, host: &str, others: &[OtherWorker], is_beat: bool) {
        let is_at_work = |other: &&OtherWorker| match &other.uses {
            Some(uses) => !uses.is_empty(),
            // One of an older version announces none.
            None => other.rate > Rate::default(),
        };
        let at_work = || others.iter().filter(is_at_work);
        let hosts: BTreeSet<&str> = at_work().map(|other| &*other.host).chain([host]).collect();
        let seen = |other: &OtherWorker| match self.others.get(&other.worker) {
            Some((beat, silent)) if *beat == other.beat => (*beat, silent.saturating_add(is_beat.into())),
            _ => (other.beat, 0),
        };
        let now: BTreeMap<String, (u64, u32)> =
            at_work().map(|other| (other.worker.clone(), seen(other))).collect();
        let is_steady =
            now.keys().eq(self.others.keys()) && now.values().all(|(_, silent)| *silent <= MAX_SILENT_BEATS);
        self.steady = if is_steady { self.steady.saturating_add(is_beat.into()) } else { 0 };
        self.hosts = hosts.len() as u32;
        self.rate = others.iter().fold(Rate::default(), |sum, other| sum + other.rate);
        self.others = now;
    }

    /// Returns the rate of all, with this worker's own; `None` if a part of it is of other hosts,
    /// or of none.
    pub(crate) fn rate_with(&self, own: Rate) -> Option<FarmRate> {
        let is_measured = self.steady >= MIN_STEADY_BEATS;
        is_measured.then(|| FarmRate { hosts: self.hosts, rate: self.rate + own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::HostUse;

    const MBIT: fn(u64) -> Rate = |rate| Rate::bits_per_sec(rate * 1_000_000);

    #[test]
    fn rate_is_that_of_the_same_workers_for_full_intervals() {
        let (mut view, own) = (FarmView::default(), MBIT(1));
        let other = |name: &str, beat| OtherWorker {
            worker: format!("{name}-1"),
            beat,
            host: name.to_owned(),
            rate: MBIT(2),
            uses: Some(vec![HostUse::default()]),
        };
        let mut beats = |others: &[(&str, u64)], is_beat| {
            let others: Vec<_> = others.iter().map(|(name, beat)| other(name, *beat)).collect();
            view.note("own", &others, is_beat);
            view.rate_with(own)
        };
        let of = |hosts, mbit| Some(FarmRate { hosts, rate: MBIT(mbit) });
        for (others, is_beat, expected) in [
            (&[][..], false, None),
            (&[], true, None),
            (&[], true, None),
            (&[], false, None),
            (&[], true, of(1, 1)),
            // One joins.
            (&[("a", 1)], false, None),
            (&[("a", 2)], true, None),
            (&[("a", 3)], true, None),
            (&[("a", 4)], true, of(2, 3)),
            // Its beat was late once; then it is silent.
            (&[("a", 4)], true, of(2, 3)),
            (&[("a", 5)], true, of(2, 3)),
            (&[("a", 5)], false, of(2, 3)),
            (&[("a", 5)], true, of(2, 3)),
            (&[("a", 5)], true, None),
            (&[("a", 5)], true, None),
            // Its lease has ended.
            (&[], true, None),
            (&[], true, None),
            (&[], true, None),
            (&[], true, of(1, 1)),
        ] {
            assert_eq!(beats(others, is_beat), expected, "{others:?}");
        }
    }
}
