use std::path::Path;
use std::sync::Arc;

use longhaul_engine::sink::memory_budget::AppBuffer;

use super::*;
use crate::budget::HostUse;
use crate::plan::Plan;
use crate::plan_writer::{PlanWriter, UnitSize};
use crate::shared_dir::SharedDirStore;
use crate::status::PlanStatus;
use crate::store::{Claim, ClaimStore, FarmState, NextUnit, UnitEnd, WorkerProgress};
use crate::unit::UnitId;

/// A store after whose claims something happens.
struct InterruptedStore<AfterClaim: Fn(&SharedDirStore), AfterRange: Fn()> {
    store: SharedDirStore,
    after_claim: AfterClaim,
    after_next_range: AfterRange,
}

impl<AfterClaim: Fn(&SharedDirStore) + Send + Sync, AfterRange: Fn() + Send + Sync> ClaimStore
    for InterruptedStore<AfterClaim, AfterRange>
{
    fn worker(&self) -> &str {
        self.store.worker()
    }

    fn host(&self) -> &str {
        self.store.host()
    }

    fn claim(&self) -> Result<NextUnit, FarmError> {
        self.store.claim().inspect(|_| (self.after_claim)(&self.store))
    }

    fn claim_next_range(&self) -> Result<Option<Claim>, FarmError> {
        self.store.claim_next_range().inspect(|_| (self.after_next_range)())
    }

    fn has_range(&self, unit: UnitId) -> Result<bool, FarmError> {
        self.store.has_range(unit)
    }

    fn finish(&self, claim: &Claim, end: &UnitEnd) -> Result<(), FarmError> {
        self.store.finish(claim, end)
    }

    fn beat(&self, progress: WorkerProgress) -> Result<Vec<UnitId>, FarmError> {
        self.store.beat(progress)
    }

    fn farm(&self) -> Result<FarmState, FarmError> {
        self.store.farm()
    }

    fn announce(&self, uses: Vec<HostUse>) {
        self.store.announce(uses);
    }

    fn tally(&self) -> Result<Tally, FarmError> {
        self.store.tally()
    }

    fn leave(&self) -> Result<(), FarmError> {
        self.store.leave()
    }
}

struct NoDisplay;

impl FileDisplay for NoDisplay {
    fn show(&self, _: &JobTag, _: &mut dyn FnMut(JobObserver<'_>) -> Result<Done, Failure>) {}
}

fn options() -> JobOptions {
    JobOptions { keep_time: true, ..JobOptions::default() }
}

#[test]
fn panic_where_a_next_range_is_begun_ends_the_worker_and_frees_its_units() {
    let dir = tempfile::tempdir().unwrap();
    let (path, size) = (dir.path().join("p"), UnitSize { bytes: Bytes::mib(1), files: 1 });
    let lease = Duration::from_secs(300);
    let mut writer = PlanWriter::create(&path, &dir.path().join("t"), size, lease).unwrap();
    let (urls, size) = (vec!["http://h/f".into()], Some(Bytes::mib(3)));
    let file = PlannedFile { urls, path: "f".into(), size, modified: Some(7), checksum: None };
    writer.add_in_ranges(file).unwrap();
    writer.finish().unwrap();
    let plan = Plan::open(&path).unwrap();
    let store = InterruptedStore {
        store: SharedDirStore::join(&plan).unwrap(),
        after_claim: |_| (),
        after_next_range: || panic!("after the claim"),
    };
    let cancel = Cancel::new();
    let worker = Worker::new(&plan, &store, &cancel).unwrap();
    // A range that is under way, and about to end.
    worker.next_file(1).unwrap().end_soon();
    let (engine, began) = (Engine::new(AppBuffer::Auto), Instant::now());
    let ended = WorkRun::new(&engine, &worker, &NoDisplay, options(), &cancel).run(1);
    assert!(matches!(ended, Err(FarmError::Internal("ranges"))), "{ended:?}");
    assert!(began.elapsed() < worker.beat_interval() / 2, "the error is noticed at once");
    let other = SharedDirStore::join(&plan).unwrap();
    for _ in 0..3 {
        let next = other.claim().unwrap();
        let NextUnit::Claimed(claim) = next else { panic!("{next:?}") };
        other.finish(&claim, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    }
}

#[test]
fn worker_has_so_many_units_at_once_and_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (path, size) = (dir.path().join("p"), UnitSize { bytes: Bytes::gib(1), files: 1 });
    let mut writer = PlanWriter::create(&path, &dir.path().join("t"), size, Duration::from_secs(60)).unwrap();
    for name in ["a", "b", "c", "d"] {
        let urls = vec![format!("http://h/{name}")];
        let file = PlannedFile {
            urls,
            path: name.into(),
            size: Some(Bytes::new(1)),
            modified: None,
            checksum: None,
        };
        writer.add(file).unwrap();
    }
    writer.finish().unwrap();
    let plan = Plan::open(&path).unwrap();
    let store = SharedDirStore::join(&plan).unwrap();
    let worker = Worker::new(&plan, &store, &Cancel::new()).unwrap();
    let [first, second] = [(); 2].map(|()| worker.next_file(2).unwrap());
    assert!(worker.next_file(2).is_none() && worker.pause().unwrap().is_none());
    assert!(!worker.finish_file(first, file_failed("missing".to_owned())).unwrap());
    assert!(worker.next_file(2).is_some_and(|task| task.unit() != second.unit()));
}

/// Writes a plan of local files in units of `files` files.
fn plan_of_local_files(dir: &Path, names: &[&str], files: usize) -> Plan {
    let path = dir.join("p");
    let size = UnitSize { bytes: Bytes::gib(1), files };
    let mut writer = PlanWriter::create(&path, &dir.join("t"), size, Duration::from_secs(5)).unwrap();
    for name in names {
        let (below, size) = (name.into(), Bytes::new(1));
        writer.add(PlannedFile::of_local(dir, name.as_ref(), below, size, Some(7))).unwrap();
    }
    writer.finish().unwrap();
    Plan::open(&path).unwrap()
}

/// A worker is stopped after a claim; another one does its unit, the last of the plan, and removes
/// the staging directories.
#[test]
fn unit_that_was_lost_before_it_was_begun_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_local_files(dir.path(), &["f"], 1);
    let other = SharedDirStore::join(&plan).unwrap();
    let store = InterruptedStore {
        store: SharedDirStore::join(&plan).unwrap(),
        after_claim: |store: &SharedDirStore| {
            // Its lease ends at once, instead of by the other one's observations.
            store.leave().unwrap();
            if let NextUnit::Claimed(claim) = other.claim().unwrap() {
                other.finish(&claim, &UnitEnd::Done(Bytes::new(1).into())).unwrap();
                TargetDirectory::open(plan.header()).unwrap().unwrap().clean().unwrap();
            }
        },
        after_next_range: || (),
    };
    let worker = Worker::new(&plan, &store, &Cancel::new()).unwrap();
    assert!(worker.next_file(1).is_none());
    let done = Tally { units: 1, done: 1, failed: 0 };
    assert_eq!((worker.pause().unwrap(), worker.is_retired()), (Some(done), false));
    assert_eq!(PlanStatus::read(&plan).unwrap().failures, []);
}

#[test]
fn units_that_wait_for_a_file_system_are_for_another_worker_and_have_not_failed() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_local_files(dir.path(), &["f", "g", "h"], 1);
    let [store, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    let worker = Worker::new(&plan, &store, &Cancel::new()).unwrap();
    // One is copied, one has another file under way, and one waits for a thread or a connection.
    let [task, begun, waiting] = [(); 3].map(|()| worker.next_file(3).unwrap());
    begun.begin();
    let (begun_unit, source) = (begun.unit(), task.file().local_source().unwrap());
    let claims = task.steps().during(&source, || {
        worker.hand_over_hung(Duration::from_secs(3600));
        assert!(!task.cancel().is_cancelled() && !waiting.cancel().is_cancelled(), "it may answer yet");
        let stop = Cancel::new();
        thread::scope(|threads| {
            let _ends = RaisedOnDrop(&stop);
            threads.spawn(|| worker.keep_alive(&stop, Duration::ZERO));
            assert!([&task, &waiting].iter().all(|task| task.cancel().sleep(Duration::from_secs(60))));
        });
        assert!(!begun.cancel().is_cancelled());
        // Its thread ends, as it waited for the other one's connection.
        assert!(!worker.finish_file(waiting, file_failed("interrupted".to_owned())).unwrap());
        worker.hand_over_hung(Duration::ZERO);
        let status = PlanStatus::read(&plan).unwrap();
        assert_eq!((status.tally.failed, status.failures.len()), (0, 2));
        for failure in status.failures {
            let why = format!("{}: a file system has not answered", source.display());
            assert!(failure.why.starts_with(&why) && failure.attempts == 0, "{failure:?}");
        }
        assert!(worker.finish_file(begun, FileEnd::Present(Bytes::new(1))).unwrap());
        // They would be begun a second time beside the thread that waits, or wait as before.
        assert_eq!(store.claim().unwrap(), NextUnit::Wait);
        [(); 2].map(|()| other.claim().unwrap())
    });
    let [NextUnit::Claimed(one), NextUnit::Claimed(two)] = claims else { panic!("{claims:?}") };
    assert!(one.unit != begun_unit && two.unit != begun_unit);
    assert_eq!((&one.left_by, &two.left_by), (&None, &None), "what is staged may be written yet");
    other.finish(&one, &UnitEnd::Done(Bytes::new(1).into())).unwrap();
    other.finish(&two, &UnitEnd::Released).unwrap();
    // The file system answers at last: this worker may try again.
    assert!(!worker.finish_file(task, FileEnd::Received(Bytes::new(1))).unwrap());
    worker.hand_over_hung(Duration::ZERO);
    let again = worker.next_file(3).unwrap();
    assert_eq!(again.unit(), two.unit);
    assert!(worker.finish_file(again, FileEnd::Present(Bytes::new(1))).unwrap());
    assert_eq!(store.claim().unwrap(), NextUnit::Finished(Tally { units: 3, done: 3, failed: 0 }));
    assert_eq!(PlanStatus::read(&plan).unwrap().failures, []);
}

#[test]
fn unit_of_which_some_files_have_ended_is_for_another_worker_too() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_local_files(dir.path(), &["f", "g", "h", "i"], 2);
    let [store, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    let worker = Worker::new(&plan, &store, &Cancel::new()).unwrap();
    // The first unit holds the threads that the last file of the second one waits for.
    let [hung, _other, ended, waiting] = [(); 4].map(|()| worker.next_file(2).unwrap());
    assert_eq!((hung.unit() == ended.unit(), ended.unit()), (false, waiting.unit()));
    hung.begin();
    ended.begin();
    hung.steps().during(Path::new("f"), || {
        worker.hand_over_hung(Duration::ZERO);
        assert!(hung.cancel().is_cancelled() && !ended.cancel().is_cancelled(), "a file of it is under way");
        assert!(!worker.finish_file(ended, FileEnd::Present(Bytes::new(1))).unwrap());
        worker.hand_over_hung(Duration::from_secs(3600));
        assert!(!waiting.cancel().is_cancelled(), "it may begin yet");
        worker.hand_over_hung(Duration::ZERO);
        assert!(waiting.cancel().is_cancelled());
        for _ in 0..2 {
            assert!(matches!(other.claim().unwrap(), NextUnit::Claimed(_)));
        }
    });
}

#[test]
fn file_that_hangs_while_it_gets_its_name_holds_up_no_heartbeat() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_local_files(dir.path(), &["f"], 1);
    let [store, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
    let worker = Worker::new(&plan, &store, &Cancel::new()).unwrap();
    let task = worker.next_file(1).unwrap();
    task.begin();
    let unit = Arc::clone(&task.unit);
    thread::scope(|threads| {
        // As one that waits for the target does.
        let naming = unit.changed.lock();
        let named = threads.spawn(|| worker.finish_file(task, FileEnd::Received(Bytes::new(1))));
        let deadline = Instant::now() + Duration::from_secs(60);
        while unit.steps.hung(Duration::ZERO).is_none() && Instant::now() < deadline {
            thread::yield_now();
        }
        worker.hand_over_hung(Duration::ZERO);
        assert!(matches!(other.claim().unwrap(), NextUnit::Claimed(_)));
        drop(naming);
        assert!(!named.join().unwrap().unwrap());
    });
}

#[test]
fn name_that_a_directory_has_ends_no_worker() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan_of_local_files(dir.path(), &["f", "g/h"], 1);
    let store = SharedDirStore::join(&plan).unwrap();
    let worker = Worker::new(&plan, &store, &Cancel::new()).unwrap();
    let target = dir.path().join("t");
    std::fs::create_dir(target.join("f")).unwrap();
    std::fs::write(target.join("g"), "").unwrap();
    for _ in 0..2 {
        let task = worker.next_file(1).unwrap();
        std::fs::write(target.join(task.staged()), "x").unwrap();
        assert!(!worker.finish_file(task, FileEnd::Received(Bytes::new(1))).unwrap());
        assert!(!worker.is_retired(), "another file may get its name");
    }
    assert_eq!(worker.tally().unwrap().failed, 2);
}
