//! The bounds of a path's values.

use std::time::Duration;

use longhaul_core::units::Rate;

use crate::error::LabError;

use super::{Aqm, PathSpec};

/// Minimum rate; below it a packet would take seconds.
const MIN_RATE: Rate = Rate::bits_per_sec(8_000);

/// Maximum of cross flows: one thread serves all of them.
const MAX_CROSS_FLOWS: u16 = 64;

impl PathSpec {
    /// Checks the specification.
    ///
    /// # Errors
    /// Names the first value that is out of bounds, and the bounds.
    pub fn validate(&self) -> Result<(), LabError> {
        self.direction(0).validate_direction()?;
        self.direction(1).validate_direction()?;
        if !self.overrides.second.is_none() {
            if self.rate.is_none() {
                return Err(LabError::Spec {
                    what: "second",
                    why: "a second bottleneck needs a rate of the first".to_owned(),
                });
            }
            self.second_bottleneck().validate_direction()?;
        }
        Ok(())
    }

    fn validate_direction(&self) -> Result<(), LabError> {
        let bad = |what, why: String| Err(LabError::Spec { what, why });
        if !(0.0..=1.0).contains(&self.impairments.loss) {
            return bad("loss", format!("{} is not a share between 0 and 1", self.impairments.loss));
        }
        if !(1280..=65_535).contains(&self.ends.mtu.get()) {
            return bad(
                "mtu",
                format!("{} is not between 1280 (IPv6's least) and 65535", self.ends.mtu.get()),
            );
        }
        if let Some(rate) = self.rate.filter(|rate| *rate < MIN_RATE) {
            return bad("rate", format!("{rate} is below {MIN_RATE}: write a unit, as in 100Mbit"));
        }
        if self.rtt.get() > Duration::from_secs(60) {
            return bad("rtt", format!("{} is above one minute", self.rtt));
        }
        if self.traffic.cross_flows.count > MAX_CROSS_FLOWS {
            return bad(
                "cross_flows",
                format!("{} are above {MAX_CROSS_FLOWS}", self.traffic.cross_flows.count),
            );
        }
        if self.traffic.ack_compression.get() > Duration::from_secs(1) {
            return bad("ack_compression", format!("{} is above one second", self.traffic.ack_compression));
        }
        if self.queue.is_some() && self.rate.is_none() {
            return bad("queue", "a queue needs a rate: nothing waits on an unlimited path".to_owned());
        }
        if self.queue.is_some_and(|queue| queue.in_packets(self.ends.mtu) < 1.0) {
            let mtu = self.ends.mtu.get();
            return bad("queue", format!("does not hold a packet of {mtu} bytes: write 250kB or 100packets"));
        }
        if self.impairments.jitter.get() > self.delays().into_iter().min().unwrap_or_default() {
            return bad(
                "jitter",
                format!(
                    "{} is more than the delay one way, which it would make negative",
                    self.impairments.jitter
                ),
            );
        }
        if self.ends.ecn && self.aqm == Aqm::DropTail {
            return bad("ecn", "droptail never marks: choose red, codel or fq_codel as the aqm".to_owned());
        }
        self.validate_aqm()?;
        self.validate_background()?;
        if self.ends.congestion.is_empty()
            || !self.ends.congestion.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            return bad("congestion", format!("'{}' is not a name", self.ends.congestion));
        }
        Ok(())
    }

    fn validate_aqm(&self) -> Result<(), LabError> {
        let bad = |why: String| Err(LabError::Spec { what: "aqm", why });
        match self.queue_limit() {
            Some(queue) => self.aqm.fault(queue.in_packets(self.ends.mtu)).map_or(Ok(()), bad),
            None if self.aqm == Aqm::DropTail => Ok(()),
            None => bad("what drops early needs a rate: nothing waits on an unlimited path".to_owned()),
        }
    }

    fn validate_background(&self) -> Result<(), LabError> {
        let bad = |why: String| Err(LabError::Spec { what: "background", why });
        if self.traffic.background.is_none() {
            return Ok(());
        }
        let Some(path) = self.rate else {
            return bad("background traffic needs a rate: an unlimited path is never shared".to_owned());
        };
        match self.traffic.background.on(path).into_iter().find(|(_, rate)| *rate >= path) {
            Some((_, rate)) => bad(format!("{rate} leave nothing of the path's {path}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_impossible_paths() {
        for possible in [
            "background=0",
            "rate=10Gbit",
            "rate=10Gbit; background=0,9999M@3s",
            "rate=10Gbit; aqm=red",
            "rate=10Gbit; aqm=red:max_th=64",
        ] {
            assert!(PathSpec::of(possible).validate().is_ok(), "{possible}");
        }
        let with = |change: fn(&mut PathSpec)| {
            let mut spec = PathSpec::of("rate=10Gbit");
            change(&mut spec);
            spec
        };
        let values = [
            with(|spec| spec.impairments.loss = 1.5),
            with(|spec| spec.impairments.loss = f64::NAN),
            with(|spec| spec.ends.congestion = "cubic\n".to_owned()),
        ];
        let settings = [
            "rate=10Gbit; mtu=576",
            "rate=0",
            "rate=10Gbit; queue=0packets",
            "queue=10packets",
            "aqm=red",
            "rate=10Gbit; aqm=red:max_th=65",
            "rate=10Gbit; aqm=red; queue=22499",
            "rate=10Gbit; ack_compression=1001ms",
            "rate=10Gbit; cross_flows=65",
            "rate=10Gbit; background=10Gbit",
            "rate=10Gbit; background=0,100%@3s",
            "background=20%",
            "rate=10Gbit; jitter=1ms",
            "rate=10Gbit; ecn=yes",
            "aqm=codel",
            "rate=10Gbit; up=queue=0packets",
            "second=rate=1Mbit",
        ];
        for bad in values.into_iter().chain(settings.map(PathSpec::of)) {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
