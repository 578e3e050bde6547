use std::path::Path;
use std::time::Instant;

use longhaul_core::units::Bytes;

use super::*;
use crate::attempts::MAX_ATTEMPTS;
use crate::plan_writer::{PlanWriter, UnitSize};
use crate::unit::PlannedFile;

/// Writes a plan of `units` units of one file.
fn plan_of(directory: &Path, units: u32, lease: Duration) -> Plan {
    let path = directory.join("plan");
    let size = UnitSize { bytes: Bytes::new(1), files: 1 };
    let mut writer = PlanWriter::create(&path, &directory.join("t"), size, lease).unwrap();
    for number in 0..units {
        let (urls, path) = (vec![format!("http://h/{number}")], number.to_string().into());
        writer.add(PlannedFile { urls, path, size: None, modified: None, checksum: None }).unwrap();
    }
    writer.finish().unwrap();
    Plan::open(&path).unwrap()
}

fn claimed(store: &SharedDirStore) -> Claim {
    match store.claim().unwrap() {
        NextUnit::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    }
}

fn silence(store: &SharedDirStore) {
    for _ in 0..SILENT_POLLS + 1 {
        store.state.lock().liveness.poll(Duration::ZERO).unwrap();
    }
}

#[test]
fn each_unit_is_claimed_once_and_ends_as_done_or_failed() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(dir.path(), 3, Duration::from_secs(60));
    let [one, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    let claims = [claimed(&one), claimed(&other), claimed(&one)];
    let mut units: Vec<u32> = claims.iter().map(|claim| claim.unit.0).collect();
    units.sort_unstable();
    assert_eq!(units, [0, 1, 2]);
    assert_eq!((one.claim().unwrap(), other.claim().unwrap()), (NextUnit::Wait, NextUnit::Wait));
    one.finish(&claims[0], &UnitEnd::Done(Bytes::new(5).into())).unwrap();
    // A failed unit is for another worker, and for this one only after a retry.
    one.finish(&claims[2], &UnitEnd::Failed("full".into())).unwrap();
    assert_eq!(one.claim().unwrap(), NextUnit::Wait, "the other worker is not done");
    let again = claimed(&other);
    assert_eq!(again.unit, claims[2].unit);
    other.finish(&again, &UnitEnd::Failed("full too".into())).unwrap();
    other.finish(&claims[1], &UnitEnd::Done(Bytes::new(5).into())).unwrap();
    let tally = Tally { units: 3, done: 2, failed: 1 };
    assert_eq!(one.claim().unwrap(), NextUnit::Finished(tally));
    assert_eq!(other.claim().unwrap(), NextUnit::Finished(tally));
    assert_eq!(std::fs::read_dir(plan.state().join(CLAIMS)).unwrap().count(), 0);
    assert_eq!(retry(&plan).unwrap(), 1);
    assert_eq!(retry(&plan).unwrap(), 0);
    let last = claimed(&one);
    one.finish(&last, &UnitEnd::Released).unwrap();
    let last = claimed(&other);
    assert_eq!(last.left_by.as_deref(), Some(one.worker()));
    other.finish(&last, &UnitEnd::Done(Bytes::ZERO.into())).unwrap();
    assert_eq!(one.claim().unwrap(), NextUnit::Finished(Tally { units: 3, done: 3, failed: 0 }));
}

/// Writes a plan of one file in three ranges.
fn plan_of_ranges(directory: &Path) -> Plan {
    let path = directory.join("plan");
    let size = UnitSize { bytes: Bytes::mib(1), files: 1 };
    let mut writer = PlanWriter::create(&path, &directory.join("t"), size, Duration::from_secs(60)).unwrap();
    let urls = vec!["http://h/f".into()];
    let (size, modified) = (Some(Bytes::mib(3)), Some(7));
    writer.add_in_ranges(PlannedFile { urls, path: "f".into(), size, modified, checksum: None }).unwrap();
    writer.finish().unwrap();
    Plan::open(&path).unwrap()
}

#[test]
fn ranges_are_joined_after_all_of_them_are_done() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_ranges(dir.path());
    let [one, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    let third = SharedDirStore::join(&plan).unwrap();
    let stores = [&one, &other, &third];
    let claims = stores.map(claimed);
    for (done, (store, claim)) in stores.into_iter().zip(&claims).enumerate() {
        assert!(claim.unit < UnitId(3));
        assert_eq!(one.claim().unwrap(), NextUnit::Wait);
        assert_eq!(one.has_range(claim.unit).unwrap(), done > 0);
        store.finish(claim, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    }
    assert_eq!(one.tally().unwrap().done, 3);
    // A worker whose search for a free unit has missed the end of the last range.
    assert!(one.awaits_ranges(&mut one.state.lock(), &HashMap::new()).unwrap());
    let join = claimed(&other);
    assert_eq!(join.unit, UnitId(3));
    other.finish(&join, &UnitEnd::Done(Bytes::ZERO.into())).unwrap();
    let tally = Tally { units: 4, done: 4, failed: 0 };
    assert_eq!(one.claim().unwrap(), NextUnit::Finished(tally));
}

#[test]
fn worker_has_one_range_at_a_time_and_others_get_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_ranges(dir.path());
    let [one, other, third] = [(); 3].map(|()| SharedDirStore::join(&plan).unwrap());
    let first = claimed(&one);
    assert_eq!(one.claim().unwrap(), NextUnit::Wait, "two ranges are free");
    let lost = claimed(&other);
    silence(&one);
    assert_eq!(one.claim().unwrap(), NextUnit::Wait, "neither is one taken over");
    assert!(![first.unit, lost.unit].contains(&claimed(&third).unit));
    third.beat(WorkerProgress::default()).unwrap();
    one.state.lock().liveness.poll(Duration::ZERO).unwrap();
    one.finish(&first, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    assert_eq!(claimed(&one).unit, lost.unit);
}

#[test]
fn worker_whose_range_is_about_to_end_claims_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_ranges(dir.path());
    let one = SharedDirStore::join(&plan).unwrap();
    let first = claimed(&one);
    let next = one.claim_next_range().unwrap().unwrap();
    assert_ne!(next.unit, first.unit);
    assert_eq!(one.claim_next_range().unwrap(), None, "it has two");
    one.finish(&first, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    let last = one.claim_next_range().unwrap().unwrap();
    one.finish(&next, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    assert_eq!(one.claim_next_range().unwrap(), None, "the unit that joins them is no range");
    one.finish(&last, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    assert_eq!(one.claim_next_range().unwrap(), None, "it has none that is about to end");
}

#[test]
fn worker_waits_for_a_range_that_it_has_failed_at_while_another_one_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_ranges(dir.path());
    let [one, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    one.finish(&claimed(&one), &UnitEnd::Failed("reset".into())).unwrap();
    for _ in 0..2 {
        one.finish(&claimed(&one), &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    }
    let failed = NextUnit::Finished(Tally { units: 4, done: 2, failed: 1 });
    assert_eq!(one.claim().unwrap(), failed, "no worker has it");
    let again = claimed(&other);
    assert_eq!(one.claim().unwrap(), NextUnit::Wait);
    silence(&one);
    assert_eq!(one.claim().unwrap(), failed, "the other one is lost");
    other.finish(&again, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    assert_eq!(claimed(&one).unit, UnitId(3));
}

#[test]
fn ranges_that_cannot_be_joined_fail_once_for_each_worker() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_ranges(dir.path());
    let failed = NextUnit::Finished(Tally { units: 4, done: 0, failed: 1 });
    for _ in 0..MAX_ATTEMPTS {
        let store = SharedDirStore::join(&plan).unwrap();
        store.finish(&claimed(&store), &UnitEnd::Unjoinable("weak".into())).unwrap();
        assert_eq!(store.claim().unwrap(), failed);
    }
    let store = SharedDirStore::join(&plan).unwrap();
    assert_eq!(store.claim().unwrap(), failed);
    let log = &store.state.lock().log;
    assert_eq!(log.failures(UnitId(3)), MAX_ATTEMPTS);
    assert!((0..3).all(|range| log.failures(UnitId(range)) == 0));
}

#[test]
fn retry_lets_ranges_be_tried_that_could_not_be_joined() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_ranges(dir.path());
    let store = SharedDirStore::join(&plan).unwrap();
    let claim = claimed(&store);
    store.finish(&claim, &UnitEnd::Unjoinable("changed".into())).unwrap();
    assert_eq!(retry(&plan).unwrap(), 1);
    assert!(claimed(&store).unit < UnitId(3));
}

#[test]
fn unit_that_fails_everywhere_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(dir.path(), 1, Duration::from_secs(60));
    for _ in 0..MAX_ATTEMPTS {
        let store = SharedDirStore::join(&plan).unwrap();
        let claim = claimed(&store);
        store.finish(&claim, &UnitEnd::Failed("404".into())).unwrap();
    }
    let store = SharedDirStore::join(&plan).unwrap();
    assert_eq!(store.claim().unwrap(), NextUnit::Finished(Tally { units: 1, done: 0, failed: 1 }));
}

#[test]
fn silent_worker_loses_its_claim_and_what_it_does_later_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(dir.path(), 1, Duration::from_secs(60));
    let stopped = SharedDirStore::join(&plan).unwrap();
    let old = claimed(&stopped);
    let [one, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    assert_eq!(one.claim().unwrap(), NextUnit::Wait);
    assert_eq!(stopped.beat(WorkerProgress::default()).unwrap(), [], "its lease is renewed");
    silence(&one);
    silence(&other);
    let new = claimed(&one);
    assert_eq!((new.unit, new.epoch), (old.unit, 2));
    one.beat(WorkerProgress::default()).unwrap();
    other.state.lock().liveness.poll(Duration::ZERO).unwrap();
    assert_eq!(other.claim().unwrap(), NextUnit::Wait, "the new holder is alive");
    assert_eq!(stopped.beat(WorkerProgress::default()).unwrap(), [old.unit]);
    stopped.finish(&old, &UnitEnd::Failed("cancelled".into())).unwrap();
    assert_eq!(one.tally().unwrap().failed, 0);
    one.finish(&new, &UnitEnd::Failed("full".into())).unwrap();
    // No epoch is used twice: what the first worker still removes is not of another one.
    let third = claimed(&other);
    assert_eq!(third.epoch, 3);
    stopped.claims.remove_up_to(old.unit, old.epoch).unwrap();
    stopped.state.lock().mine.insert(old.unit, old.epoch);
    assert_eq!(stopped.beat(WorkerProgress::default()).unwrap(), [old.unit]);
    // That all files are under their names is true, whichever worker says so.
    stopped.finish(&old, &UnitEnd::Done(Bytes::ZERO.into())).unwrap();
    assert_eq!(other.claims.holder(third.unit, third.epoch).unwrap().as_deref(), Some(other.worker()));
    other.finish(&third, &UnitEnd::Done(Bytes::ZERO.into())).unwrap();
    assert_eq!(other.claim().unwrap(), NextUnit::Finished(Tally { units: 1, done: 1, failed: 0 }));
}

#[test]
fn worker_that_left_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(dir.path(), 1, Duration::from_secs(60));
    let left = SharedDirStore::join(&plan).unwrap();
    claimed(&left);
    left.leave().unwrap();
    let one = SharedDirStore::join(&plan).unwrap();
    assert_eq!(claimed(&one).epoch, 2);
}

#[test]
fn claim_whose_creation_has_seemed_to_fail_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(dir.path(), 1, Duration::from_secs(60));
    let [one, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    // As if the logs could not be read for a moment.
    assert!(one.claims.create(UnitId(0), 1).unwrap());
    assert_eq!(other.claim().unwrap(), NextUnit::Wait);
    assert_eq!(claimed(&one).epoch, 2);
}

#[test]
fn stray_claims_are_ignored_and_copied_ones_expire() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(dir.path(), 1, Duration::from_secs(60));
    let claims = plan.state().join(CLAIMS);
    for name in ["900.1", "0.18446744073709551615", "0.10000000000"] {
        std::os::unix::fs::symlink("w", claims.join(name)).unwrap();
    }
    let one = SharedDirStore::join(&plan).unwrap();
    let claim = claimed(&one);
    assert_eq!(claim.epoch, 1);
    one.finish(&claim, &UnitEnd::Released).unwrap();
    // As cp -L makes it.
    std::fs::write(claims.join("0.2"), "").unwrap();
    assert_eq!(one.claim().unwrap(), NextUnit::Wait);
    silence(&one);
    let claim = claimed(&one);
    assert_eq!(claim.epoch, 3);
    one.finish(&claim, &UnitEnd::Released).unwrap();
    // A claim by a worker that had not read the logs, and was killed, does not block the unit.
    std::os::unix::fs::symlink("killed", claims.join("0.1")).unwrap();
    assert_eq!(one.claim().unwrap(), NextUnit::Wait);
    silence(&one);
    let claim = claimed(&one);
    assert_eq!(claim.epoch, 4);
    one.finish(&claim, &UnitEnd::Done(Bytes::ZERO.into())).unwrap();
    assert_eq!(one.claim().unwrap(), NextUnit::Finished(Tally { units: 1, done: 1, failed: 0 }));
}

#[test]
fn worker_of_an_older_plan_of_the_name_ends() {
    let dir = tempfile::tempdir().unwrap();
    let old = SharedDirStore::join(&plan_of(dir.path(), 1, Duration::from_secs(60))).unwrap();
    let claim = claimed(&old);
    std::fs::remove_dir_all(dir.path().join("plan")).unwrap();
    let new = plan_of(dir.path(), 1, Duration::from_secs(60));
    assert!(old.finish(&claim, &UnitEnd::Done(Bytes::ZERO.into())).is_err());
    assert!(old.claim().is_err());
    assert_eq!(SharedDirStore::join(&new).unwrap().tally().unwrap().done, 0);
}

/// Claims and ends the last units of a plan by four workers at once; returns the times of claims,
/// sorted.
fn claim_times(units: u32, open: u32) -> Vec<Duration> {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of(dir.path(), units, Duration::from_secs(60));
    let done = (0..units).filter(|unit| unit % (units / open) > 0);
    let lines: String = done
        .map(|unit| format!("{{\"unit\":{unit},\"epoch\":1,\"result\":\"done\",\"bytes\":1}}\n"))
        .collect();
    std::fs::write(plan.state().join(LOG).join("earlier.log"), lines).unwrap();
    let times = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let store = SharedDirStore::join(&plan).unwrap();
                // Reads what is done.
                store.tally().unwrap();
                loop {
                    let began = Instant::now();
                    let next = store.claim().unwrap();
                    let took = began.elapsed();
                    let NextUnit::Claimed(claim) = next else { return };
                    times.lock().push(took);
                    store.finish(&claim, &UnitEnd::Done(Bytes::ZERO.into())).unwrap();
                }
            });
        }
    });
    let mut times = times.into_inner();
    times.sort_unstable();
    assert_eq!(times.len(), open as usize);
    times
}

#[test]
fn claims_of_a_long_plan_take_little_time() {
    let times = claim_times(4000, 200);
    // The figure of 5 ms is judged below; a busy machine is far from it.
    assert!(times[100] < Duration::from_millis(100), "{times:?}");
}

#[test]
#[ignore = "judges times: cargo test --release -p longhaul-farm --lib -- --ignored --nocapture"]
fn claims_of_a_million_units_take_less_than_five_milliseconds() {
    let times = claim_times(1_000_000, 1000);
    println!("claims: p50 {:?}, p99 {:?}, longest {:?}", times[500], times[990], times[999]);
    assert!(times[990] < Duration::from_millis(5), "{:?}", times[990]);
}
