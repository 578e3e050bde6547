//! The lateness of packets that a faithful path may have.

use std::time::Duration;

use longhaul_core::units::Bytes;

use super::{PathSpec, QueueLimit};

impl PathSpec {
    /// Returns the maximum lateness at the 99th percentile of a faithful path, and the quantity
    /// from which it derives.
    ///
    /// The minimum of 5 % of the one-way delay (1 ms without delay) and 10 % of the full queue's
    /// drain time: 0.8 ms for 1 MB at 1 Gbit/s. The emulator forwards packets in bursts of up to
    /// 0.1 ms, so the queue's part is at least 0.2 ms.
    pub fn allowed_lateness(&self) -> (Duration, &'static str) {
        const WITHOUT_DELAY: Duration = Duration::from_millis(1);
        const MIN_FOR_QUEUE: Duration = Duration::from_micros(200);
        let of_delay = match self.one_way() {
            Duration::ZERO => (WITHOUT_DELAY, "what a path without delay allows"),
            delay => (delay / 20, "5 % of the delay"),
        };
        let of_queue =
            self.queue_time().map(|time| ((time / 10).max(MIN_FOR_QUEUE), "10 % of the queue's time"));
        of_queue.into_iter().fold(of_delay, |least, other| if other.0 < least.0 { other } else { least })
    }

    /// Returns the drain time of a full queue; `None` without a rate.
    pub fn queue_time(&self) -> Option<Duration> {
        let bytes = match self.queue_limit()? {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => Bytes::new(self.ends.mtu.get().saturating_mul(packets)),
        };
        Some(self.rate?.time_for(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuShares, DirectionStats, FrameLateness, PathStats};

    #[test]
    fn allowed_lateness_depends_on_queue_and_delay() {
        let path = |queue: &str| PathSpec::of(&format!("rate=1Gbit; rtt=200ms{queue}"));
        let allowed = |spec: &PathSpec| spec.allowed_lateness().0;
        // 1 MB drains in 8 ms.
        assert_eq!(allowed(&path("; queue=1MB")), Duration::from_micros(800));
        assert_eq!(allowed(&path("")), Duration::from_millis(5), "one BDP: the delay decides");
        assert_eq!(allowed(&path("; queue=10packets")), Duration::from_micros(200));
        assert_eq!(allowed(&PathSpec::default()), Duration::from_millis(1));
        let late = |millis| {
            let late = FrameLateness { p99: Duration::from_millis(millis), ..FrameLateness::default() };
            DirectionStats { late, ..DirectionStats::default() }
        };
        let cpu = CpuShares { busy: 90, stolen: 0 };
        let stats =
            PathStats { client_to_server: late(1), server_to_client: late(2), cpu, ..Default::default() };
        assert!(stats.infidelities(&path("")).is_empty());
        let of_both = stats.infidelities(&path("; queue=1MB"));
        let words = "server -> client: 1 % of packets were 2.00 ms late, 0.80 ms are allowed (10 % of the queue's time): the CPUs were 90 % busy;";
        assert!(of_both.len() == 1 && of_both[0].starts_with(words), "{of_both:?}");
    }
}
