//! Drives a model of one direction in real time: TUN -> model -> ring -> TUN.
//!
//! ```text
//! sender's kernel -> TUN -> [reader: model says when, or drops] -> ring -> [writer: waits] -> TUN -> receiver's kernel
//! ```
//!
//! The ring holds packets in transit. The kernel copies each frame twice: on read and on write.

mod capture;
mod catch_up;
mod evidence;
mod held_reader;
mod infidelities;
mod lateness_histogram;
mod read_lag;
mod reader;
mod stats;
mod wait;
mod writer;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::ring::{self, Producer};
use longhaul_sys::tun::Tun;
use parking_lot::Mutex;
use rustix::event::EventfdFlags;

use crate::clock::Clock;
use crate::error::LabError;
use crate::model::{Backlog, Time};
use crate::spec::{PathSpec, QueueLimit};
use crate::wire::MAX_FRAME;

pub(crate) use capture::Capture;
use catch_up::CatchUp;
pub use evidence::{DirectionEvidence, FlowStats, QueueSample};
use read_lag::ReadLag;
use stats::LinkCounters;
pub use stats::{DirectionStats, FrameLateness, ImpairedPackets, PathStats};

/// One running direction; dropping it ends its threads.
#[derive(Debug)]
pub(crate) struct LinkDirection {
    stop: Arc<StopLink>,
    counters: Arc<LinkCounters>,
    evidence: Option<Arc<Mutex<DirectionEvidence>>>,
    reader: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
}

/// Stops both threads; the event descriptor wakes the reader from its poll.
#[derive(Debug)]
struct StopLink {
    flag: AtomicBool,
    event: OwnedFd,
}

impl StopLink {
    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

/// Optional observers of a direction; none by default, at no cost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observers {
    /// Captures the packets of the sending host.
    pub(crate) capture: Option<Capture>,
    pub(crate) evidence: Option<Arc<Mutex<DirectionEvidence>>>,
}

impl Observers {
    fn with(&self, note: impl FnOnce(&mut DirectionEvidence)) {
        if let Some(evidence) = &self.evidence {
            note(&mut evidence.lock());
        }
    }
}

/// What a reader takes frames from, and where they go.
struct ReaderIo {
    from: Arc<Tun>,
    outlet: Outlet,
    clock: Clock,
    stop: Arc<StopLink>,
    counters: Arc<LinkCounters>,
    observers: Observers,
}

/// Puts frames into the ring and wakes a waiting writer.
struct Outlet {
    ring: Producer,
    /// Set while the writer waits for a packet: the reader wakes it only then.
    idle: Arc<AtomicBool>,
    writer: Thread,
}

impl Outlet {
    /// Publishes the frame written to the last reserved slot.
    fn commit(&mut self, leaves: Time, len: usize) {
        self.ring.commit(leaves.as_nanos(), len);
        self.wake_writer();
    }

    /// Copies a frame into the ring; returns false if the ring is full.
    fn put(&mut self, leaves: Time, frame: &[u8]) -> bool {
        let Some(slot) = self.ring.reserve(frame.len()) else { return false };
        slot.copy_from_slice(frame);
        self.commit(leaves, frame.len());
        true
    }

    fn wake_writer(&self) {
        // Pairs with the writer's fence: either the writer reads the record, or this thread reads
        // that the writer waits.
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::Relaxed) {
            self.idle.store(false, Ordering::Relaxed);
            self.writer.unpark();
        }
    }
}

impl LinkDirection {
    /// Starts forwarding packets between two devices by the model of `spec` for direction `stream`.
    /// `observers` observe the sending host, `received` captures the packets of the receiving host.
    pub(crate) fn start(
        (name, stream): (&str, u64),
        spec: &PathSpec,
        (from, to): (Arc<Tun>, Arc<Tun>),
        observers: Observers,
        received: Option<Capture>,
    ) -> Result<Self, LabError> {
        let (producer, consumer) = ring::ring(ring_size(spec).as_usize())
            .map_err(LabError::host("make the ring of packets under way"))?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| LabError::host("make an event descriptor")(errno.into()))?;
        let stop = Arc::new(StopLink { flag: AtomicBool::new(false), event });
        let counters = Arc::new(LinkCounters::default());
        let idle = Arc::new(AtomicBool::new(false));
        let clock = Clock::start();

        let (batch, fine) = (batch(spec), is_fine(spec));
        let writer = writer::TunWriter {
            to,
            ring: consumer,
            clock,
            batch,
            catch_up: CatchUp::new(spec.rate.filter(|_| fine), LUMP),
            stop: Arc::clone(&stop),
            idle: Arc::clone(&idle),
            counters: Arc::clone(&counters),
            capture: received,
        };
        let writer = thread::Builder::new()
            .name(format!("{name}-out"))
            .spawn(move || writer.run())
            .map_err(LabError::host("start a link's thread"))?;
        let evidence = observers.evidence.clone();
        let mut direction = Self { stop, counters, evidence, reader: None, writer: None };
        let io = ReaderIo {
            from,
            outlet: Outlet { ring: producer, idle, writer: writer.thread().clone() },
            clock,
            stop: Arc::clone(&direction.stop),
            counters: Arc::clone(&direction.counters),
            observers,
        };
        let run: Box<dyn FnOnce() + Send> = if spec.is_held() {
            let reader = held_reader::HeldReader {
                io,
                link: spec.held_link(stream),
                seed: spec.seed,
                ecn: spec.ends.ecn,
                backlog: Backlog::default(),
            };
            Box::new(|| reader.run())
        } else {
            let reader = reader::TunReader {
                io,
                link: spec.link(stream),
                lag: spec.rate.map(|rate| ReadLag::new(rate, spec.one_way(), spec.is_alone())),
            };
            Box::new(|| reader.run())
        };
        // An early return below this line drops `direction` and stops the writer.
        direction.writer = Some(writer);
        direction.reader = Some(
            thread::Builder::new()
                .name(format!("{name}-in"))
                .spawn(run)
                .map_err(LabError::host("start a link's thread"))?,
        );
        Ok(direction)
    }

    pub(crate) fn stats(&self) -> DirectionStats {
        self.counters.snapshot()
    }

    /// Returns the observations; `None` without observers.
    pub(crate) fn evidence(&self) -> Option<DirectionEvidence> {
        let evidence = self.evidence.as_ref()?;
        Some(evidence.lock().clone())
    }
}

impl Drop for LinkDirection {
    fn drop(&mut self) {
        self.stop.flag.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.stop.event, &1_u64.to_ne_bytes());
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        if let Some(writer) = self.writer.take() {
            writer.thread().unpark();
            let _ = writer.join();
        }
    }
}

/// Maximum burst: a super-packet that occupies the line for longer is delivered in pieces, as the
/// line would deliver it.
const LUMP: Duration = Duration::from_micros(100);

/// Returns whether a super-packet occupies the line for longer than [`LUMP`]; splitting on faster
/// lines would exceed a core.
fn is_fine(spec: &PathSpec) -> bool {
    spec.rate.is_some_and(|rate| rate.time_for(Bytes::new(MAX_FRAME as u64)) > LUMP)
}

/// Time for which the writer collects due packets to reduce wake-ups: at most a fifth of the
/// lateness that the delay allows.
fn batch(spec: &PathSpec) -> Duration {
    let most = if is_fine(spec) { LUMP } else { 2 * LUMP };
    (spec.one_way() / 100).clamp(Duration::from_micros(20), most)
}

/// Returns the ring's size: BDP and a full queue, a quarter more for record headers, and a margin.
fn ring_size(spec: &PathSpec) -> Bytes {
    const RING_MARGIN: Bytes = Bytes::mib(16);
    const MAX_RING: Bytes = Bytes::gib(16);
    let one_way = Rtt::new(spec.longest_way());
    let departed = match (spec.rate, spec.queue_limit()) {
        (Some(rate), Some(QueueLimit::Bytes(queue))) => rate.bdp(one_way) + queue,
        (Some(rate), Some(QueueLimit::Packets(packets))) => rate.bdp(one_way) + spec.ends.mtu * packets,
        // A path without a rate: about 40 Gbit/s, the most that two cores carry.
        _ => Rate::bits_per_sec(40_000_000_000).bdp(one_way),
    };
    let departed = departed.min(MAX_RING);
    (departed + Bytes::new(departed.get() / 4)).min(MAX_RING) + RING_MARGIN
}

/// Prepares the calling thread for short waits, with real-time priority over the hosts' programs.
///
/// Writers have deadlines; they take precedence over readers, which may process a burst for
/// milliseconds.
fn prepare_thread(priority: u8) {
    let slack = std::num::NonZeroU64::new(1_000);
    if let Err(error) = rustix::thread::set_current_timer_slack(slack) {
        tracing::debug!("timer slack stays as it is: {error}");
    }
    if let Err(error) = longhaul_sys::process::schedule_real_time(priority) {
        tracing::debug!("the link's threads run at normal priority: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_stays_within_memory_for_any_queue() {
        let endless = PathSpec {
            rate: Some(Rate::bits_per_sec(u64::MAX)),
            queue: Some(QueueLimit::Packets(u64::MAX)),
            ..PathSpec::default()
        };
        assert_eq!(ring_size(&endless), Bytes::gib(16) + Bytes::mib(16));
    }
}
