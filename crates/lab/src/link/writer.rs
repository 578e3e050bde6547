//! Writes packets to the receiver's TUN at their due times.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;
use std::time::Duration;

use longhaul_sys::ring::Consumer;
use longhaul_sys::tun::Tun;

use crate::clock::Clock;
use crate::model::Time;
use crate::wire::Shape;

use super::capture::Capture;
use super::catch_up::CatchUp;
use super::stats::LinkCounters;
use super::{StopLink, prepare_thread};

pub(super) struct TunWriter {
    pub(super) to: Arc<Tun>,
    pub(super) ring: Consumer,
    pub(super) clock: Clock,
    /// Minimum wait: packets due within it are written together, at most this much late.
    pub(super) batch: Duration,
    pub(super) catch_up: CatchUp,
    pub(super) stop: Arc<StopLink>,
    /// Set while this thread waits for a packet: the reader wakes it only then.
    pub(super) idle: Arc<AtomicBool>,
    pub(super) counters: Arc<LinkCounters>,
    /// Captures the packets of the receiving host.
    pub(super) capture: Option<Capture>,
}

impl TunWriter {
    pub(super) fn run(mut self) {
        prepare_thread(2);
        while !self.stop.is_set() {
            let Some((stamp, frame)) = self.ring.peek() else {
                self.wait_for_record();
                continue;
            };
            let due = Time::from_nanos(stamp);
            let leaves = self.catch_up.leaves(due);
            let now = self.clock.now();
            if leaves > now {
                // Overdue frames are paced one by one.
                let least = if leaves > due { Duration::ZERO } else { self.batch };
                thread::park_timeout(leaves.since(now).max(least));
                continue;
            }
            let shape = Shape::of(frame);
            // EINVAL, EIO: the device is down, or the host's kernel refuses the packet.
            match self.to.write(frame) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => self.counters.overflowed(shape.packets()),
                Ok(()) => {}
            }
            if let Some(capture) = &self.capture {
                capture.frame(frame);
            }
            self.catch_up.left(due, shape.bytes(), now);
            self.counters.lateness.record(now.since(due));
            self.ring.release();
        }
    }

    fn wait_for_record(&mut self) {
        self.idle.store(true, Ordering::Relaxed);
        // Pairs with the reader's fence: either this thread sees the record, or the reader sees
        // that this thread waits.
        fence(Ordering::SeqCst);
        if self.ring.peek().is_none() && !self.stop.is_set() {
            thread::park();
        }
        self.idle.store(false, Ordering::Relaxed);
    }
}
