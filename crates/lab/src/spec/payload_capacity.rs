//! Capacity of a path left for payload beside cross traffic.

use std::time::Duration;

use longhaul_core::units::Rate;

use super::{PathSpec, RateSchedule};

/// Header bytes per packet: IPv4 and TCP (40), TCP timestamps (12, RFC 7323).
const HEADERS: f64 = 52.0;

/// The path's capacity for payload, a rate that changes in steps.
#[derive(Debug, Clone)]
pub struct PayloadCapacity {
    /// Start of each step in seconds since the start of the transfer, and its rate in bytes per
    /// second; sorted.
    steps: Vec<(f64, f64)>,
}

impl PayloadCapacity {
    /// Creates a capacity that starts with `rate`.
    pub fn new(rate: Rate) -> Self {
        Self { steps: vec![(f64::NEG_INFINITY, rate.as_bytes_per_sec() as f64)] }
    }

    /// Adds a step to `rate` at `from`, after all previous steps.
    pub fn then(mut self, from: Duration, rate: Rate) -> Self {
        self.steps.push((from.as_secs_f64(), rate.as_bytes_per_sec() as f64));
        self
    }

    /// Returns the capacity in bytes between two times, in seconds since the start of the transfer.
    pub fn bytes(&self, from: f64, to: f64) -> f64 {
        let ends = self.steps.iter().skip(1).map(|(from, _)| *from).chain([f64::INFINITY]);
        let within =
            |((begin, rate), end): (&(f64, f64), f64)| (to.min(end) - from.max(*begin)).max(0.0) * rate;
        self.steps.iter().zip(ends).map(within).sum()
    }
}

impl PathSpec {
    /// Returns the maximum rate of TCP payload; `None` without a rate.
    ///
    /// A path's rate counts bytes of IP packets.
    pub fn payload_rate(&self) -> Option<Rate> {
        let mtu = self.ends.mtu.get() as f64;
        Some(Rate::bits_per_sec((self.rate?.as_bits_per_sec() as f64 * (mtu - HEADERS) / mtu) as u64))
    }

    /// Returns the capacity left for payload towards the client beside background traffic, in the
    /// client's time.
    ///
    /// `None` if the path has no rate, or if something besides background traffic changes the
    /// capacity: rate steps, a second bottleneck, cross flows, other pairs.
    pub fn payload_capacity(&self) -> Option<PayloadCapacity> {
        let down = self.direction(1);
        let is_constant = down.schedule == RateSchedule::None && down.overrides.second.is_none();
        if !is_constant || down.traffic.cross_flows.count > 0 || !down.ends.pairs.0.is_empty() {
            return None;
        }
        let (rate, payload) = (down.rate?, down.payload_rate()?);
        let mut left = PayloadCapacity::new(payload);
        for (from, taken) in down.traffic.background.on(rate) {
            let share = 1.0 - taken.as_bits_per_sec() as f64 / rate.as_bits_per_sec() as f64;
            let rate = Rate::bits_per_sec((payload.as_bits_per_sec() as f64 * share) as u64);
            // Background steps count from the sender's first packet, which arrives half an RTT
            // later.
            left = left.then(from + self.round_trip(), rate);
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_counts_for_its_duration() {
        let capacity = PayloadCapacity::new(Rate::bytes_per_sec(100))
            .then(Duration::from_secs(2), Rate::bytes_per_sec(50))
            .then(Duration::from_secs(4), Rate::bytes_per_sec(10));
        for (from, to, bytes) in [(0.0, 1.0, 100.0), (1.0, 3.0, 150.0), (1.5, 5.0, 160.0), (7.0, 7.0, 0.0)] {
            assert_eq!(capacity.bytes(from, to), bytes, "{from} to {to}");
        }
    }

    #[test]
    fn payload_capacity_is_what_background_leaves_in_the_direction_down() {
        let path = PathSpec::of("rate=1Gbit; rtt=302ms; background=0@0s,20%@8s,50%@16s");
        let directed = PathSpec::of(
            "rate=1Gbit; rtt=100ms; background=20%; mtu=9000; up=rate=1Mbit;background=0; \
             down=rate=100Mbit;delay=1s;background=0@0s,50%@2s",
        );
        let steps = [(0.0, 1.0), (7.0, 1.0), (9.0, 0.8), (15.0, 0.8), (17.0, 0.5), (90.0, 0.5)];
        for (path, full, steps) in [
            (path, 1e9 * 1448.0 / 1500.0 / 8.0, &steps[..]),
            (directed, 1e8 * 8948.0 / 9000.0 / 8.0, &[(0.0, 1.0), (2.0, 1.0), (3.1, 0.5)]),
        ] {
            let left = path.payload_capacity().unwrap();
            for (from, share) in steps {
                let bytes = left.bytes(*from, from + 1.0);
                assert!((bytes - full * share).abs() < 100.0, "{from}: {bytes}");
            }
        }
        assert!(PathSpec::default().payload_capacity().is_none());
    }

    #[test]
    fn payload_capacity_is_unknown_beside_other_traffic_than_background() {
        assert!(PathSpec::of("rate=1Gbit").payload_capacity().is_some());
        for other in [
            "rate_steps=10Mbit@0s, 20Mbit@5s",
            "down=rate_steps=10Mbit@0s, 20Mbit@5s",
            "second=rate=10Mbit",
            "cross_flows=2",
            "pairs=10ms,50ms",
        ] {
            let path = PathSpec::of(&format!("rate=1Gbit; {other}"));
            assert!(path.payload_capacity().is_none(), "{other}");
        }
    }
}
