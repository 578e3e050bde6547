//! What a worker reports of itself to the others, and the shares of the farm's limits that follow
//! from what they report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::rate_limit::RateLimit;
use parking_lot::Mutex;

use crate::boot_clock::since_boot;
use crate::budget::HostUse;
use crate::explanation::FarmRate;
use crate::farm_view::FarmView;
use crate::host_gate::{Admission, HostGates};
use crate::shared_dir::SILENT_POLLS;
use crate::store::{ClaimStore, FarmState, WorkerProgress};
use crate::unit::UnitId;

/// The parts of a worker's first interval; a beat between two of them measures nothing yet.
const FIRST_PARTS: u32 = 12;
/// The other workers for each of which a beat reads a heartbeat in each part of the first interval.
/// Of more, beats are rarer: a hundred that begin together read about a hundred heartbeats each in
/// that interval, not a thousand.
const MAX_OTHERS_IN_PART: usize = 8;
/// The intervals without a heartbeat after which other workers may soon take this one for lost.
const MAX_SILENT_INTERVALS: u32 = SILENT_POLLS - 2;
/// The longest part of a wait for the next beat: the time after which a suspension of the host is
/// noticed.
const MAX_WAIT_PART: Duration = Duration::from_secs(1);

/// The heartbeats of a worker.
pub(crate) struct Presence<'a> {
    store: &'a dyn ClaimStore,
    interval: Duration,
    /// The bytes received.
    received: AtomicU64,
    /// The bytes read to verify files.
    verified: AtomicU64,
    gates: HostGates,
    /// What was reported last. Held while a beat is made, as one that is overtaken would announce
    /// old shares.
    progress: Mutex<WorkerProgress>,
    farm: Mutex<FarmView>,
    /// The time since boot of the last beat whose lost units are cancelled.
    beaten: Mutex<Duration>,
}

impl<'a> Presence<'a> {
    pub(crate) fn new(store: &'a dyn ClaimStore, interval: Duration) -> Self {
        Self {
            store,
            interval,
            received: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            gates: HostGates::new(None, interval),
            progress: Mutex::default(),
            farm: Mutex::default(),
            beaten: Mutex::new(since_boot()),
        }
    }

    /// Sets the limit of this worker's user, within which the farm's limits apply.
    pub(crate) fn with_limit(self, limit: Option<RateLimit>) -> Self {
        Self { gates: HostGates::new(limit, self.interval), ..self }
    }

    /// Counts bytes that were received.
    pub(crate) fn count(&self, bytes: Bytes, admission: &Admission) {
        self.received.fetch_add(bytes.get(), Ordering::Relaxed);
        admission.count(bytes);
    }

    /// Counts bytes that were read to verify a file.
    pub(crate) fn count_verified(&self, bytes: Bytes) {
        self.verified.fetch_add(bytes.get(), Ordering::Relaxed);
    }

    /// Waits until a file may be received from `host`, over at most so many connections. Calls
    /// `lose` for units that other workers have taken over, here as in [`keep`](Self::keep).
    pub(crate) fn admit(
        &self,
        host: &str,
        wants: usize,
        cancel: &Cancel,
        lose: impl Fn(UnitId),
    ) -> Admission {
        let (gate, is_new) = self.gates.enter(host);
        if is_new {
            // Announced before it is used.
            self.beat(None, lose);
            gate.set_announced();
        }
        gate.admit(wants, cancel)
    }

    /// Reports this worker as alive until `stop` is raised; calls `tend` before it renews its
    /// lease.
    pub(crate) fn keep(&self, stop: &Cancel, lose: impl Fn(UnitId), tend: impl Fn()) {
        let (mut reported, mut at) = ((0, 0), Instant::now());
        // Workers that begin together share the limits soon.
        let (mut passed, mut others) = (0, 0);
        while let Some(parts) = parts_until_beat(passed, others) {
            if wait(self.interval / FIRST_PARTS * parts, stop, since_boot) {
                return;
            }
            passed += parts;
            others = self.beat(None, &lose);
        }
        // More often than needed: a late timer must not cost the lease.
        while !wait(self.interval, stop, since_boot) {
            tend();
            let received = self.received.load(Ordering::Relaxed);
            let verified = self.verified.load(Ordering::Relaxed);
            let elapsed = at.elapsed().max(Duration::from_millis(1));
            let over = |bytes, before| Rate::over(Bytes::new(bytes - before), elapsed);
            let (rate, verifying) = (over(received, reported.0), over(verified, reported.1));
            (reported, at) = ((received, verified), Instant::now());
            self.beat(Some(WorkerProgress { bytes: Bytes::new(received), rate, verifying }), &lose);
        }
    }

    /// Reports this worker as alive if that is overdue, as after a stop of its process or a
    /// suspension of its host.
    pub(crate) fn catch_up(&self, lose: impl Fn(UnitId)) {
        let silent = since_boot().saturating_sub(*self.beaten.lock());
        if silent > self.interval * MAX_SILENT_INTERVALS {
            self.beat(None, lose);
        }
    }

    /// Returns the rate of all hosts together, where it is known.
    pub(crate) fn farm_rate(&self) -> Option<FarmRate> {
        let own = self.progress.lock().rate;
        self.farm.lock().rate_with(own)
    }

    /// Reports and announces, and applies the shares of the farm's limits; one without progress
    /// measures nothing. Returns the number of other workers.
    pub(crate) fn beat(&self, progress: Option<WorkerProgress>, lose: impl Fn(UnitId)) -> usize {
        let (mut last, mut others) = (self.progress.lock(), 0);
        *last = progress.unwrap_or(*last);
        match self.store.farm() {
            Ok(farm) => {
                others = farm.others.len();
                self.store.announce(self.share_out(farm, progress.is_some()));
            }
            // The shares do not change.
            Err(error) => tracing::warn!("{error}"),
        }
        let (now, lost) = (since_boot(), self.store.beat(*last));
        drop(last);
        match lost {
            Ok(lost) => {
                self.gates.apply();
                lost.into_iter().for_each(lose);
                *self.beaten.lock() = now;
            }
            // The lease ends if it goes on; nothing that this worker writes meanwhile is wrong.
            Err(error) => tracing::warn!("{error}"),
        }
        others
    }

    /// Sets the next shares; returns what to announce.
    fn share_out(&self, farm: FarmState, is_beat: bool) -> Vec<HostUse> {
        let FarmState { limits, others } = farm;
        self.farm.lock().note(self.store.host(), &others, is_beat);
        let unseen = others.iter().filter(|other| other.uses.is_none());
        let limits = limits.without(unseen.fold(Rate::default(), |sum, other| sum + other.rate));
        let uses: Vec<Vec<HostUse>> = others.into_iter().filter_map(|other| other.uses).collect();
        self.gates.share_out(&limits, &uses, is_beat)
    }
}

/// Returns the parts of the first interval until the next beat in it, with this number of other
/// workers; `None` if no further one is made after those that have passed.
fn parts_until_beat(passed: u32, others: usize) -> Option<u32> {
    let parts = u32::try_from(1 + others / MAX_OTHERS_IN_PART).unwrap_or(FIRST_PARTS);
    Some(parts).filter(|parts| passed.saturating_add(*parts) < FIRST_PARTS)
}

/// Waits for `time` of a clock that counts suspensions, or until `stop` is raised; returns whether
/// it is.
fn wait(time: Duration, stop: &Cancel, clock: impl Fn() -> Duration) -> bool {
    let end = clock() + time;
    loop {
        let left = end.saturating_sub(clock());
        if left.is_zero() {
            return stop.is_cancelled();
        }
        if stop.sleep(left.min(MAX_WAIT_PART)) {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::plan::Plan;
    use crate::plan_writer::{PlanWriter, UnitSize};
    use crate::shared_dir::{SharedDirStore, beat_interval};
    use crate::unit::PlannedFile;

    #[test]
    fn beats_of_the_first_interval_are_rarer_the_more_workers_begin_together() {
        for (others, beats) in [(0, 11), (7, 11), (8, 6), (20, 4), (50, 2), (99, 1), (usize::MAX, 1)] {
            let (mut passed, mut made) = (0, 0);
            // The first one is made before the others are seen.
            while let Some(parts) = parts_until_beat(passed, if made == 0 { 0 } else { others }) {
                (passed, made) = (passed + parts, made + 1);
            }
            assert_eq!(made, beats, "{others} others");
        }
    }

    #[test]
    fn beat_follows_a_suspension_at_once_and_before_a_file_gets_its_name() {
        let hour = Duration::from_secs(3600);
        // The host is suspended within the first part of the wait, which begins with two looks at
        // the clock.
        let looks = Cell::new(0);
        let clock = || {
            looks.set(looks.get() + 1);
            if looks.get() <= 2 { Duration::ZERO } else { hour }
        };
        let stop = Cancel::new().child_until(Instant::now() + Duration::from_secs(60));
        assert!(!wait(hour, &stop, clock) && looks.get() == 3);

        let dir = tempfile::tempdir().unwrap();
        let (at, target, size) = (dir.path().join("p"), dir.path().join("t"), UnitSize::default());
        let lease = Duration::from_secs(60);
        let mut writer = PlanWriter::create(&at, &target, size, lease).unwrap();
        let (urls, path) = (vec!["http://h/f".into()], "f".into());
        writer.add(PlannedFile { urls, path, size: None, modified: None, checksum: None }).unwrap();
        writer.finish().unwrap();
        let plan = Plan::open(&at).unwrap();
        let [store, other] = [(); 2].map(|()| SharedDirStore::join(&plan).unwrap());
        let presence = Presence::new(&store, beat_interval(lease));
        let seen = || other.farm().unwrap().others[0].beat;
        let before = seen();
        presence.catch_up(|_| ());
        assert_eq!(seen(), before, "it is not overdue");
        *presence.beaten.lock() = Duration::ZERO;
        presence.catch_up(|_| ());
        assert!(seen() > before);
    }
}
