use longhaul_engine::job::{ExistingFilePolicy, TransferOptions};
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_engine::sink::writer::WriterChoice;
use longhaul_engine::verify::Verify;

use super::*;
use crate::budget::HostUse;
use crate::plan::Plan;
use crate::plan_writer::{PlanWriter, UnitSize};
use crate::shared_dir::SharedDirStore;
use crate::store::{Claim, ClaimStore, FarmState, NextUnit, UnitEnd, WorkerProgress};
use crate::unit::UnitId;

/// A store that panics after it has claimed a next range.
struct PanickingStore(SharedDirStore);

impl ClaimStore for PanickingStore {
    fn worker(&self) -> &str {
        self.0.worker()
    }

    fn host(&self) -> &str {
        self.0.host()
    }

    fn claim(&self) -> Result<NextUnit, FarmError> {
        self.0.claim()
    }

    fn claim_next_range(&self) -> Result<Option<Claim>, FarmError> {
        panic!("after the claim {:?}", self.0.claim_next_range());
    }

    fn has_range(&self, unit: UnitId) -> Result<bool, FarmError> {
        self.0.has_range(unit)
    }

    fn finish(&self, claim: &Claim, end: &UnitEnd) -> Result<(), FarmError> {
        self.0.finish(claim, end)
    }

    fn beat(&self, progress: WorkerProgress) -> Result<Vec<UnitId>, FarmError> {
        self.0.beat(progress)
    }

    fn farm(&self) -> Result<FarmState, FarmError> {
        self.0.farm()
    }

    fn announce(&self, uses: Vec<HostUse>) {
        self.0.announce(uses);
    }

    fn tally(&self) -> Result<Tally, FarmError> {
        self.0.tally()
    }

    fn leave(&self) -> Result<(), FarmError> {
        self.0.leave()
    }
}

struct NoDisplay;

impl FileDisplay for NoDisplay {
    fn show(&self, _: &JobTag, _: &mut dyn FnMut(JobObserver<'_>) -> Result<CompleteFile, Failure>) {}
}

fn options() -> JobOptions {
    JobOptions {
        transfer: TransferOptions::default(),
        segment: None,
        count_pages: false,
        verify: Verify::default(),
        writer: WriterChoice::Auto,
        max_size: None,
        assume_unchanged: false,
        existing: ExistingFilePolicy::default(),
        keep_time: true,
        logins_for: None,
    }
}

#[test]
fn panic_where_a_next_range_is_begun_ends_the_worker_and_frees_its_units() {
    let dir = tempfile::tempdir().unwrap();
    let (path, size) = (dir.path().join("p"), UnitSize { bytes: Bytes::mib(1), files: 1 });
    let mut writer = PlanWriter::create(&path, &dir.path().join("t"), size, Duration::from_secs(60)).unwrap();
    let (urls, size) = (vec!["http://h/f".into()], Some(Bytes::mib(3)));
    let file = PlannedFile { urls, path: "f".into(), size, modified: Some(7), checksum: None };
    writer.add_in_ranges(file).unwrap();
    writer.finish().unwrap();
    let plan = Plan::open(&path).unwrap();
    let (store, cancel) = (PanickingStore(SharedDirStore::join(&plan).unwrap()), Cancel::new());
    let worker = Worker::new(&plan, &store, &cancel).unwrap();
    // A range that is under way, and about to end.
    worker.next_file().unwrap().end_soon();
    let engine = Engine::new(AppBuffer::Auto);
    let ended = WorkRun::new(&engine, &worker, &NoDisplay, options(), &cancel).run(1);
    assert!(matches!(ended, Err(FarmError::Internal("ranges"))), "{ended:?}");
    let other = SharedDirStore::join(&plan).unwrap();
    for _ in 0..3 {
        let next = other.claim().unwrap();
        let NextUnit::Claimed(claim) = next else { panic!("{next:?}") };
        other.finish(&claim, &UnitEnd::Done(Bytes::mib(1).into())).unwrap();
    }
}
