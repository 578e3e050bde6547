use proptest::prelude::*;

use super::*;

/// A worker with a use of one host.
#[derive(Debug, Clone)]
struct SimulatedWorker {
    used: HostUse,
    /// The rate that it would have without a limit, in bits per second.
    able: u64,
}

fn worker(host: &str, able: u64) -> SimulatedWorker {
    SimulatedWorker { used: HostUse { host: host.into(), ..HostUse::default() }, able }
}

impl SimulatedWorker {
    fn rate(&self) -> u64 {
        self.able.min(self.used.rate.share)
    }

    /// Announces a beat, after it has read the announcements of `others`.
    fn beat(&mut self, limits: &FarmLimits, others: &[HostUse]) {
        let begins = self.used.rate.share == 0;
        let need = self.used.rate.need_of(Rate::bits_per_sec(self.rate()));
        let others: Vec<Vec<HostUse>> = others.iter().map(|used| vec![used.clone()]).collect();
        share_out(limits, std::slice::from_mut(&mut self.used), &others);
        self.used.rate.need = need.filter(|_| !begins);
    }
}

/// Runs a round of beats, in turn or all from the announcements before the round.
fn round(workers: &mut [SimulatedWorker], limits: &FarmLimits, in_turn: bool) {
    let before: Vec<HostUse> = workers.iter().map(|worker| worker.used.clone()).collect();
    for index in 0..workers.len() {
        let announced: Vec<HostUse> = match in_turn {
            true => workers.iter().map(|worker| worker.used.clone()).collect(),
            false => before.clone(),
        };
        let others: Vec<HostUse> = announced
            .into_iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .map(|(_, used)| used)
            .collect();
        workers[index].beat(limits, &others);
    }
}

fn shares(workers: &[SimulatedWorker]) -> Vec<u64> {
    workers.iter().map(|worker| worker.used.rate.share).collect()
}

fn sum(workers: &[SimulatedWorker], of: impl Fn(&SimulatedWorker) -> bool) -> u64 {
    let of = workers.iter().filter(|worker| of(worker));
    of.fold(0, |sum: u64, worker| sum.saturating_add(worker.used.rate.share))
}

fn limited(rate: u64) -> FarmLimits {
    FarmLimits { rate: Some(Rate::bits_per_sec(rate)), ..FarmLimits::default() }
}

const GBIT: u64 = 1_000_000_000;
/// Rounds until shares no longer change by more than a rounding.
const SETTLED: usize = 40;

#[test]
fn shares_follow_what_each_worker_is_able_to_receive() {
    let cases: [(&str, u64, &[u64], &[u64]); 5] = [
        ("one has all", 8, &[100], &[8_000]),
        ("equal ones have equal parts", 8, &[100, 100], &[4_000, 4_000]),
        ("what one does not use is for others", 8, &[1, 100, 100], &[1_000, 3_350, 3_350]),
        ("an idle one holds next to nothing", 8, &[0, 100], &[0, 8_000]),
        ("without need for it, the limit holds none back", 8, &[1, 2, 3], &[1_000, 2_000, 3_000]),
    ];
    for (what, limit, able, expected) in cases {
        let mut workers: Vec<_> = able.iter().map(|able| worker("h", able * GBIT)).collect();
        (0..SETTLED).for_each(|_| round(&mut workers, &limited(limit * GBIT), true));
        for (worker, expected) in workers.iter().zip(expected) {
            let rate = worker.rate() / 1_000_000;
            assert!(rate.abs_diff(*expected) <= 1, "{what}: {rate} instead of {expected}");
        }
        assert!(sum(&workers, |_| true) <= limit * GBIT, "{what}");
    }
}

#[test]
fn joining_changing_and_lost_workers_get_and_leave_their_shares() {
    let limits = limited(8 * GBIT);
    let mut workers = vec![worker("h", 100 * GBIT)];
    for share in [4, 8] {
        round(&mut workers, &limits, true);
        assert_eq!(shares(&workers), [share * GBIT], "the first one leaves half to others for a beat");
    }
    workers.push(worker("h", 100 * GBIT));
    let first = workers[0].used.clone();
    workers[1].beat(&limits, &[first]);
    assert_eq!(shares(&workers), [8 * GBIT, FIRST_SHARE.as_bits_per_sec()], "nothing is free yet");
    round(&mut workers, &limits, true);
    assert_eq!(shares(&workers), [4 * GBIT, 4 * GBIT], "one beat of each is enough");
    round(&mut workers, &limited(2 * GBIT), true);
    assert_eq!(shares(&workers), [GBIT, GBIT], "a lower limit holds at once");
    round(&mut workers, &FarmLimits::default(), true);
    assert_eq!(shares(&workers), [u64::MAX; 2]);
    round(&mut workers, &limits, true);
    workers.pop();
    round(&mut workers, &limits, true);
    assert_eq!(shares(&workers), [8 * GBIT], "the share of a lost worker is free");
    for (unseen, left) in [(0, 8 * GBIT), (3 * GBIT, 5 * GBIT), (9 * GBIT, MIN_LIMIT.as_bits_per_sec())] {
        round(&mut workers, &limits.clone().without(Rate::bits_per_sec(unseen)), true);
        assert_eq!(shares(&workers), [left], "one that announces no uses receives at {unseen}");
    }
    // One that begins after seven others that have begun to receive nothing yet counts them.
    let mut own = [HostUse { host: "h".into(), ..HostUse::default() }];
    share_out(&limits, &mut own, &[const { vec![] }; 7]);
    assert_eq!(own[0].rate.share, GBIT);
    // Those that begin one after the other within a beat.
    let mut workers = [0; 4].map(|_| worker("h", 100 * GBIT));
    round(&mut workers, &limits, true);
    assert_eq!(shares(&workers), [2 * GBIT, 2 * GBIT, 2 * GBIT, GBIT]);
    round(&mut workers, &limits, true);
    round(&mut workers, &limits, true);
    assert_eq!(shares(&workers), [2 * GBIT; 4]);
}

#[test]
fn a_host_has_a_limit_of_its_own_and_connections() {
    let host_rates = BTreeMap::from([("slow".to_owned(), Rate::bits_per_sec(GBIT))]);
    let limits = FarmLimits { rate: Some(Rate::bits_per_sec(8 * GBIT)), host_rates, connections: 10 };
    let mut workers =
        [worker("slow", 100 * GBIT), worker("slow", 100 * GBIT), worker("fast", 100 * GBIT)].to_vec();
    (0..SETTLED).for_each(|_| round(&mut workers, &limits, true));
    assert_eq!(shares(&workers), [GBIT / 2, GBIT / 2, 7 * GBIT]);
    let connections: Vec<u64> = workers.iter().map(|worker| worker.used.connections.share).collect();
    assert_eq!(connections, [5, 5, 10]);
    // Two hundred workers have a connection each, and one more gets one.
    let others: Vec<Vec<HostUse>> = (0..200).map(|_| vec![workers[0].used.clone()]).collect();
    let mut own = [HostUse { host: "slow".into(), ..HostUse::default() }];
    share_out(&limits, &mut own, &others);
    assert_eq!(own[0].connections.share, 1);
}

#[test]
fn limits_are_stored_and_edited_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(FarmLimits::read(dir.path()).unwrap(), FarmLimits::default());
    let host_rates = BTreeMap::from([("h".to_owned(), Rate::bits_per_sec(GBIT))]);
    let limits = FarmLimits { rate: Some(Rate::bits_per_sec(8 * GBIT)), host_rates, connections: 10 };
    limits.store(dir.path()).unwrap();
    assert_eq!(FarmLimits::read(dir.path()).unwrap(), limits);
    std::fs::write(dir.path().join(LIMITS), r#"{"rate":"fast"}"#).unwrap();
    let error = FarmLimits::read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("limits.json") && error.contains("longhaul plan limit"), "{error}");
}

fn abilities() -> impl Strategy<Value = Vec<(bool, u64)>> {
    prop::collection::vec((any::<bool>(), prop_oneof![Just(0), 0..20 * GBIT]), 1..12)
}

proptest! {
    #[test]
    fn sum_is_within_the_limit_and_none_starves(
        able in abilities(),
        later in abilities(),
        limits in (1_000_000..20 * GBIT, 1_000_000..20 * GBIT),
        in_turn: bool,
    ) {
        let host_rates = BTreeMap::from([("a".to_owned(), Rate::bits_per_sec(limits.1))]);
        let limits = FarmLimits { host_rates, ..limited(limits.0) };
        let total = limits.rate.unwrap().as_bits_per_sec();
        let of_host = limits.host_rates["a"].as_bits_per_sec();
        let mut workers: Vec<_> =
            able.iter().map(|(is_a, able)| worker(if *is_a { "a" } else { "b" }, *able)).collect();
        for step in 0..SETTLED {
            round(&mut workers, &limits, in_turn);
            // In the first round of workers that begin at once, they do not know of each other.
            if step > 0 {
                prop_assert!(sum(&workers, |_| true) <= total, "{step}: {workers:?}");
                prop_assert!(sum(&workers, |worker| worker.used.host == "a") <= of_host, "{workers:?}");
            }
            // Needs change at any time.
            if step % 7 == 6 && step < SETTLED / 2 {
                for (worker, (_, able)) in workers.iter_mut().zip(later.iter().cycle().skip(step)) {
                    worker.able = *able;
                }
            }
        }
        let count = workers.len() as u64;
        for worker in &workers {
            let bound = if worker.used.host == "a" { total.min(of_host) } else { total };
            // A rounding is lost in each raise.
            let fair = worker.able.min(bound / count).saturating_sub(count * SETTLED as u64);
            prop_assert!(worker.rate() >= fair, "{fair}: {workers:?}");
            prop_assert!(worker.used.rate.share > 0);
        }
    }

    #[test]
    fn targets_grow_with_the_limit_and_with_the_need(
        needs in prop::collection::vec(prop::option::of(0..20 * GBIT), 1..12),
        limit in 1_000_000..20 * GBIT,
        more in 0..20 * GBIT,
    ) {
        let targets = |limit, needs: &[Option<u64>]| {
            let bounds = Bounds { all: Some(limit), hosts: BTreeMap::new(), workers: 1, least: 1 };
            let demand = |need: &Option<u64>| Demand { host: "h", portion: Portion { share: 1, need: *need } };
            bounds.targets(&needs.iter().map(demand).collect::<Vec<_>>())
        };
        let before = targets(limit, &needs);
        prop_assert!(before.iter().sum::<u64>() <= limit);
        let count = needs.len() as u64;
        for (more, before) in targets(limit + more, &needs).into_iter().zip(&before) {
            prop_assert!(more + count >= *before, "a larger limit");
        }
        let mut needier = needs.clone();
        needier[0] = needs[0].map(|need| need + more);
        prop_assert!(targets(limit, &needier)[0] + count >= before[0], "a larger need");
    }
}
