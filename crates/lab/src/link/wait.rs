//! Waits for packets, and bounds the time for which they waited unread.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::clock::Clock;
use crate::model::Time;

/// The calling thread's CPU time and its run queue delay, in nanoseconds.
const SCHEDULING: &str = "/proc/thread-self/schedstat";

/// Waits for packets of a device. A packet arrives after the device was last empty, which bounds
/// its time unread.
#[derive(Debug)]
pub(super) struct PacketWait {
    clock: Clock,
    /// `None` if the kernel keeps no scheduling statistics; then a late wake-up is not detected.
    scheduling: Option<File>,
    /// When the device was last empty, or when its first packet woke the thread.
    pub(super) empty: Time,
}

impl PacketWait {
    /// Must be called by the waiting thread.
    pub(super) fn new(clock: Clock) -> Self {
        let scheduling = File::open(SCHEDULING);
        if let Err(error) = &scheduling {
            tracing::debug!("late waking of the link's readers is not seen: {SCHEDULING}: {error}");
        }
        Self { clock, scheduling: scheduling.ok(), empty: clock.now() }
    }

    /// Waits until `device` is readable, `stop` is set or `limit` has passed, after a read would
    /// have blocked.
    pub(super) fn until_readable(
        &mut self,
        device: impl AsFd,
        stop: impl AsFd,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let before = self.run_delay();
        let mut on = [PollFd::new(&device, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        let waited = rustix::event::poll(&mut on, limit.as_ref());
        // The thread runs now, but the packet has waited since the wake-up: subtract the run queue
        // delay.
        let waking = self.run_delay().saturating_sub(before);
        self.empty =
            Time::from_nanos(self.clock.now().since(Time::START).saturating_sub(waking).as_nanos() as u64);
        match waited {
            Err(rustix::io::Errno::INTR) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Returns the thread's total run queue delay; zero if unknown.
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
    fn reads_the_run_queue_delay() {
        assert_eq!(second_number(b"260942 429678 2\n"), Some(429_678));
        assert_eq!(second_number(b""), None);
    }
}
