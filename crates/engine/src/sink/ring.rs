//! The application buffer of one transfer: a pool that may grow while the disk stalls.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::plan::{self, SegmentPlan};
use longhaul_core::ranges::ByteRange;
use longhaul_core::telemetry::Segments;
use longhaul_core::tune::app_buffer::{AppBufferTuner, INITIAL_SIZE, WriterStalls, growth_left};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::host;

use super::pool::{Segment, SegmentPool};

/// How much a transfer may hold between socket and file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AppBuffer {
    /// 64 MiB, and more where the disk stalls for longer than that covers.
    #[default]
    Auto,
    /// So much.
    Fixed(Bytes),
}

impl AppBuffer {
    /// Returns its size before anything was measured.
    pub const fn at_start(self) -> Bytes {
        match self {
            Self::Auto => INITIAL_SIZE,
            Self::Fixed(size) => size,
        }
    }
}

/// What a path brings, all of a transfer's connections together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flow {
    /// How fast.
    pub rate: Rate,
    /// How far away the sender is.
    pub rtt: Rtt,
}

/// What buffers have grown by, all those together that share it: an eighth of the memory available at most.
#[derive(Debug, Clone, Default)]
pub struct Growth(Arc<Mutex<Bytes>>);

/// Segments, and what is known of who empties them.
#[derive(Debug)]
pub struct Ring {
    pool: SegmentPool,
    buffer: AppBuffer,
    /// The size of a segment that was asked for.
    segment: Option<Bytes>,
    tuner: Option<Mutex<AppBufferTuner>>,
    stalls: Mutex<WriterStalls>,
    growth: Growth,
    /// By how much this one has grown.
    drawn: Mutex<Bytes>,
    started: Instant,
}

/// Smaller segments cost the disk more than they save memory, unless that is short.
const WORTH_WRITING: Bytes = Bytes::mib(1);
/// How often a receiver that waits for a segment looks whether there should be more of them.
const STEP: Duration = Duration::from_millis(5);

impl Ring {
    /// Plans one for so many streams, with segments of the usual size or of `segment`; it holds no memory yet.
    pub fn new(buffer: AppBuffer, segment: Option<Bytes>, streams: usize) -> Self {
        Self::sharing(Growth::default(), buffer, segment, streams)
    }

    /// Does the same for one of several that grow at the expense of each other.
    pub fn sharing(growth: Growth, buffer: AppBuffer, segment: Option<Bytes>, streams: usize) -> Self {
        let tuner = (buffer == AppBuffer::Auto).then(AppBufferTuner::default);
        let pool = SegmentPool::new(plan_for(buffer.at_start(), segment, streams));
        let (tuner, stalls, drawn) = (tuner.map(Mutex::new), Mutex::default(), Mutex::default());
        Self { pool, buffer, segment, tuner, stalls, growth, drawn, started: Instant::now() }
    }

    /// Cuts the buffer for so many streams: a stream that has no two segments would wait for the others.
    pub fn serve(&self, streams: usize) {
        if self.tuner.is_some() {
            self.grow(WORTH_WRITING * 2 * streams as u64);
        }
        let size = self.buffer.at_start() + *lock(&self.drawn);
        self.pool.cut(plan_for(size, self.segment, streams));
    }

    /// Takes a segment for the part of `range` that lies in one segment's worth of the file.
    ///
    /// Waits up to `patience` for one to be free, and meanwhile grows where the writers stall; `Ok(None)` where
    /// none was.
    ///
    /// # Errors
    /// ENOMEM where the kernel has no memory for it.
    pub fn take(&self, range: ByteRange, patience: Duration, flow: Flow) -> io::Result<Option<Segment>> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let segment = self.pool.take(range, left.min(STEP))?;
            if segment.is_some() || left.is_zero() {
                return Ok(segment);
            }
            if let Some(tuner) = &self.tuner {
                let stall = lock(&self.stalls).longest(self.started.elapsed());
                let wanted = lock(tuner).observe(stall, flow.rate, flow.rtt);
                self.grow(wanted);
            }
        }
    }

    /// Grows towards a size, as far as memory allows.
    fn grow(&self, wanted: Bytes) {
        let mut drawn = lock(&self.drawn);
        let more = wanted.saturating_sub(INITIAL_SIZE + *drawn);
        if more > Bytes::ZERO {
            *drawn += self.growth.draw(more);
            self.pool.grow(INITIAL_SIZE + *drawn);
        }
    }

    /// Runs one write of a segment, and notes how long it takes.
    pub(super) fn writing<T>(&self, write: impl FnOnce() -> T) -> T {
        lock(&self.stalls).begin(self.started.elapsed());
        let done = write();
        lock(&self.stalls).done(self.started.elapsed());
        done
    }

    /// Returns how much is in use.
    pub fn usage(&self) -> Segments {
        self.pool.usage()
    }
}

fn plan_for(size: Bytes, segment: Option<Bytes>, streams: usize) -> SegmentPlan {
    segment.map_or_else(|| plan::segments(size, streams), |segment| plan::segments_of(segment, size, streams))
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.growth.give_back(*lock(&self.drawn));
    }
}

impl Growth {
    /// Takes up to `wanted` of what is left.
    fn draw(&self, wanted: Bytes) -> Bytes {
        let mut drawn = lock(&self.0);
        // Where the host does not tell its memory, buffers stay as they start.
        let available = host::available_memory().unwrap_or_default();
        let granted = wanted.min(growth_left(available, *drawn));
        *drawn += granted;
        granted
    }

    fn give_back(&self, granted: Bytes) {
        let mut drawn = lock(&self.0);
        *drawn = drawn.saturating_sub(granted);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Numbers, whole whatever happened to another thread.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Flow =
        Flow { rate: Rate::bits_per_sec(10_000_000_000), rtt: Rtt::new(Duration::from_millis(200)) };
    const WAIT: Duration = Duration::from_millis(50);

    /// Takes segments until none is left or `most` are held.
    fn fill(ring: &Ring, most: usize) -> Vec<Segment> {
        let size = ring.usage().size.get();
        let take = |n: u64| ring.take(ByteRange::new(n * size, (n + 1) * size), WAIT, FAST).unwrap();
        (0..most as u64).map_while(take).collect()
    }

    #[test]
    fn grows_while_the_writers_stall() {
        let ring = Ring::new(AppBuffer::Auto, None, 1);
        assert_eq!(ring.usage().capacity(), INITIAL_SIZE);
        let held = ring.writing(|| fill(&ring, 20));
        assert_eq!(held.len(), 20);
        // At least a BDP of 250 MB, on a host that has eight times that.
        assert!(ring.usage().capacity() >= Bytes::mib(80), "{:?}", ring.usage());
    }

    #[test]
    fn what_one_has_grown_by_another_cannot_until_it_is_given_back() {
        let growth = Growth::default();
        let ring = || Ring::sharing(growth.clone(), AppBuffer::Auto, None, 1);
        let (first, second) = (ring(), ring());
        first.grow(Bytes::new(u64::MAX));
        let most = *lock(&growth.0);
        second.grow(Bytes::new(u64::MAX));
        // The host's other programs take and free memory meanwhile.
        assert!(most > Bytes::ZERO && *lock(&second.drawn) < Bytes::new(most.get() / 4));
        drop((first, second));
        assert_eq!(*lock(&growth.0), Bytes::ZERO);
    }

    #[test]
    fn many_streams_have_two_segments_each() {
        let ring = Ring::new(AppBuffer::Auto, None, 1);
        ring.serve(100);
        let usage = ring.usage();
        assert!(usage.count >= 200, "{usage:?}");
        ring.serve(1);
        assert_eq!(ring.usage().size, Bytes::mib(4));
        let fixed = Ring::new(AppBuffer::Fixed(Bytes::mib(8)), None, 1);
        fixed.serve(100);
        assert_eq!((fixed.usage().size, fixed.usage().count), (Bytes::kib(64), 200));
    }

    #[test]
    fn stays_as_it_was_asked_for() {
        let ring = Ring::new(AppBuffer::Fixed(Bytes::mib(8)), None, 1);
        assert_eq!(ring.writing(|| fill(&ring, 20)).len(), 2);
        let large = Ring::new(AppBuffer::Fixed(Bytes::gib(4)), None, 1);
        assert_eq!((large.usage().capacity(), large.usage().in_use), (Bytes::gib(4), 0));
    }
}
