//! Waits for packets, and bounds how long they may have waited unread.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::clock::Clock;
use crate::model::Time;

/// The calling thread's time on a CPU and its time runnable without one, in nanoseconds.
const SCHEDULING: &str = "/proc/thread-self/schedstat";

/// The reader's waiting. A packet reached the device after it was last empty, so that bounds how late it is read.
#[derive(Debug)]
pub(super) struct PacketWait {
    clock: Clock,
    /// None where the kernel does not count; then only what queues up behind a reader is seen, no late waking.
    scheduling: Option<File>,
    empty: Time,
}

impl PacketWait {
    /// Made by the thread that waits.
    pub(super) fn new(clock: Clock) -> Self {
        let scheduling = File::open(SCHEDULING);
        if let Err(error) = &scheduling {
            tracing::debug!("late waking of the link's readers is not seen: {SCHEDULING}: {error}");
        }
        Self { clock, scheduling: scheduling.ok(), empty: clock.now() }
    }

    /// Returns when the device was last seen empty, or its first packet woke the thread.
    pub(super) fn empty(&self) -> Time {
        self.empty
    }

    /// Waits until `device` has a packet or `stop` is set, after a read that found none.
    pub(super) fn until_readable(&mut self, device: impl AsFd, stop: impl AsFd) -> io::Result<()> {
        self.until_readable_for(device, stop, None)
    }

    /// Waits until `device` has a packet, `stop` is set or `limit` has passed, after a read that found none.
    pub(super) fn until_readable_for(
        &mut self,
        device: impl AsFd,
        stop: impl AsFd,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let before = self.run_delay();
        let mut on = [PollFd::new(&device, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        let waited = rustix::event::poll(&mut on, limit.as_ref());
        // Awake since now, but woken before: the packet has waited for the CPU as long as we have.
        let waking = self.run_delay().saturating_sub(before);
        self.empty =
            Time::from_nanos(self.clock.now().since(Time::START).saturating_sub(waking).as_nanos() as u64);
        match waited {
            Err(rustix::io::Errno::INTR) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Returns how long the thread has been runnable without running; zero where that is not counted.
    fn run_delay(&self) -> Duration {
        let mut text = [0; 96];
        let len = self.scheduling.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        Duration::from_nanos(second_number(&text[..len]).unwrap_or(0))
    }
}

fn second_number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_time_runnable_without_a_cpu() {
        assert_eq!(second_number(b"260942 429678 2\n"), Some(429_678));
        assert_eq!(second_number(b""), None);
    }
}
