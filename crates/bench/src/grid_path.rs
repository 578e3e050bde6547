//! The paths of the pacing grid: all are simulated, some are also emulated.

use std::fmt;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::{PathSpec, QueueLimit};

/// A path with one sender under CUBIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GridPath {
    pub(crate) mbit: u64,
    pub(crate) rtt_ms: u64,
    pub(crate) queue: GridQueue,
}

/// The length of a path's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GridQueue {
    /// In milliseconds of the path's rate.
    Millis(u64),
    /// In percent of the bandwidth-delay product.
    BdpPercent(u64),
}

impl GridPath {
    /// Returns the path's rate.
    pub(crate) fn rate(self) -> Rate {
        Rate::bits_per_sec(self.mbit * 1_000_000)
    }

    /// Returns the length of the queue at the path's rate.
    pub(crate) fn queue_time(self) -> Duration {
        match self.queue {
            GridQueue::Millis(millis) => Duration::from_millis(millis),
            GridQueue::BdpPercent(percent) => Duration::from_micros(self.rtt_ms * percent * 10),
        }
    }

    /// Returns the size of the queue.
    pub(crate) fn queue_bytes(self) -> Bytes {
        self.rate().bytes_in(self.queue_time())
    }

    /// Returns whether the queue is a tenth of the BDP or shorter.
    pub(crate) fn is_shallow(self) -> bool {
        self.queue_time() * 10 <= Duration::from_millis(self.rtt_ms)
    }

    /// Returns the emulated or simulated path.
    pub(crate) fn spec(self) -> PathSpec {
        PathSpec {
            rate: Some(self.rate()),
            rtt: Rtt::new(Duration::from_millis(self.rtt_ms)),
            queue: Some(QueueLimit::Bytes(self.queue_bytes())),
            ..PathSpec::default()
        }
    }

    /// Returns the bytes that the path carries in a time, in whole segments.
    pub(crate) fn bytes_in(self, time: Duration, segment: Bytes) -> Bytes {
        segment * (self.rate().bytes_in(time).get() / segment.get())
    }
}

impl fmt::Display for GridPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} ms, queue ", self.rate(), self.rtt_ms)?;
        match self.queue {
            GridQueue::Millis(millis) => write!(f, "{millis} ms"),
            GridQueue::BdpPercent(percent) => write!(f, "{} BDP", percent as f64 / 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_what_it_is_named() {
        let path = |queue| GridPath { mbit: 1000, rtt_ms: 20, queue };
        let queues = [
            (GridQueue::Millis(8), 1_000_000, false, "1.00 Gbit/s, 20 ms, queue 8 ms"),
            (GridQueue::BdpPercent(10), 250_000, true, "1.00 Gbit/s, 20 ms, queue 0.1 BDP"),
            (GridQueue::BdpPercent(100), 2_500_000, false, "1.00 Gbit/s, 20 ms, queue 1 BDP"),
        ];
        for (queue, bytes, is_shallow, name) in queues {
            let path = path(queue);
            assert_eq!(path.spec().queue, Some(QueueLimit::Bytes(Bytes::new(bytes))), "{path}");
            assert_eq!((path.is_shallow(), path.to_string()), (is_shallow, name.to_owned()));
            path.spec().validate().unwrap();
        }
        assert_eq!(path(queues[0].0).bytes_in(Duration::from_secs(1), Bytes::new(1500)).get(), 124_999_500);
    }
}
