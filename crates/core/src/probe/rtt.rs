//! Minimum, median and jitter of RTTs.

use std::time::Duration;

use serde::Serialize;

use crate::units::{Rtt, seconds};

/// The method of measuring RTTs, the preferred one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RttMethod {
    /// ICMP echoes.
    Icmp,
    /// TCP handshakes: SYN to SYN-ACK.
    TcpHandshake,
    /// UDP echoes of the measurement endpoint.
    UdpEcho,
}

impl RttMethod {
    /// Returns the method's name for a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icmp => "ICMP echo",
            Self::TcpHandshake => "TCP handshake",
            Self::UdpEcho => "UDP echo",
        }
    }
}

/// A summary of RTTs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RttSummary {
    /// The method of measuring.
    pub method: RttMethod,
    /// The least RTT: that of the path without queueing.
    pub min: Rtt,
    /// The median.
    pub median: Rtt,
    /// The mean absolute difference of successive RTTs.
    #[serde(with = "seconds")]
    pub jitter: Duration,
    /// Requests sent.
    pub sent: u32,
    /// Requests answered.
    pub answered: u32,
}

impl RttSummary {
    /// Summarises `samples`, in the order of measurement, of `sent` requests; `None` if none was
    /// answered.
    pub fn of(method: RttMethod, samples: &[Duration], sent: u32) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let min = *sorted.first()?;
        let steps = samples.windows(2).map(|two| two[0].abs_diff(two[1])).sum::<Duration>();
        let jitter = steps.checked_div(u32::try_from(samples.len() - 1).unwrap_or(u32::MAX));
        Some(Self {
            method,
            min: Rtt::new(min),
            median: Rtt::new(sorted[sorted.len() / 2]),
            jitter: jitter.unwrap_or_default(),
            sent,
            answered: u32::try_from(samples.len()).unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_minimum_median_and_mean_difference() {
        let ms = Duration::from_millis;
        let samples = [ms(12), ms(10), ms(30), ms(11)];
        let summary = RttSummary::of(RttMethod::Icmp, &samples, 5).unwrap();
        assert_eq!((summary.min, summary.median), (Rtt::new(ms(10)), Rtt::new(ms(12))));
        // The differences are 2, 20 and 19 ms.
        assert_eq!(summary.jitter, ms(41) / 3);
        assert_eq!((summary.sent, summary.answered), (5, 4));
        // One answer has no jitter, and none no summary.
        let one = RttSummary::of(RttMethod::UdpEcho, &[Duration::from_millis(3)], 3).unwrap();
        assert_eq!(one.jitter, Duration::ZERO);
        assert_eq!(RttSummary::of(RttMethod::UdpEcho, &[], 3), None);
    }
}
