//! The transfer that a host is judged for, and the buffers that it needs.

use std::fmt;

use serde::Serialize;

use super::facts::{BufferFacts, HostFacts, KernelVersion};
use crate::buffer_plan::LARGEST_WINDOW;
use crate::units::{Bytes, Rate, Rtt};

/// A transfer's rate and RTT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// The rate to reach.
    #[serde(rename = "rate_bps")]
    pub rate: Rate,
    /// Where the rate comes from.
    pub rate_origin: Origin,
    /// The round-trip time.
    #[serde(rename = "rtt_seconds")]
    pub rtt: Rtt,
    /// Where the RTT comes from.
    pub rtt_origin: Origin,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The command line.
    Given,
    /// A measurement.
    Measured,
    /// Neither: a value that is typical.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "given",
            Self::Measured => "measured",
            Self::Assumed => "assumed",
        })
    }
}

/// The largest value of `tcp_rmem` and `tcp_wmem`: a C integer.
const LARGEST_SETTING: u64 = i32::MAX as u64;

impl Target {
    /// Returns what is in flight on the full path.
    pub fn bdp(&self) -> Bytes {
        self.rate.bdp(self.rtt)
    }

    /// Returns the window that one stream needs: the BDP, but no more than TCP can announce.
    pub fn window(&self) -> Bytes {
        self.bdp().min(LARGEST_WINDOW)
    }

    /// Returns "10.0 Gbit/s x 200 ms = 238.4 MiB".
    pub(super) fn product(&self) -> String {
        format!("{} x {} = {}", self.rate, self.rtt, self.bdp())
    }
}

/// The share of a socket buffer that holds payload; the kernel keeps its bookkeeping in the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PayloadShare {
    /// What can be relied on.
    pub(super) share: f64,
    /// What large packets reach.
    best: f64,
    pub(super) why: &'static str,
}

/// The share with packets of 1500 bytes and offloads: 4.0 of 6 MiB and 21.2 of 32 MiB of
/// `tcp_rmem`, 11.2 of 16 MiB of `tcp_wmem` were in flight (lab, 2 Gbit/s, 200 ms, iperf3, Linux
/// 6.18, 2026-11-24).
const MEASURED_SHARE: f64 = 2.0 / 3.0;

impl PayloadShare {
    /// Returns the share of a receive buffer that becomes window.
    ///
    /// Until Linux 6.5 `tcp_adv_win_scale` fixes it (kernel documentation, ip-sysctl: the
    /// bookkeeping takes buffer/2^scale where scale > 0, else buffer - buffer/2^-scale). Since 6.6
    /// it follows the packets; half is what small packets still give.
    pub(super) fn receiving(facts: &HostFacts) -> Self {
        let is_fixed = !matches!(facts.kernel, Ok(version) if version >= KernelVersion(6, 6));
        let fixed =
            |share| Self { share, best: share, why: "tcp_adv_win_scale leaves the rest to bookkeeping" };
        match facts.buffers.adv_win_scale {
            // The kernel accepts -31 to 31.
            Ok(scale @ 1..=31) if is_fixed => fixed(1.0 - 0.5f64.powi(scale)),
            Ok(scale @ -31..=0) if is_fixed => fixed(0.5f64.powi(-scale)),
            _ => {
                Self { share: 0.5, best: MEASURED_SHARE, why: "half of a receive buffer may be bookkeeping" }
            }
        }
    }

    /// Returns the share of a send buffer that is in flight.
    ///
    /// `tcp_sndbuf_expand` keeps twice the congestion window, so that data to be retransmitted and
    /// new data both have room.
    pub(super) const fn sending() -> Self {
        Self { share: 0.5, best: MEASURED_SHARE, why: "a send buffer is to hold two congestion windows" }
    }

    /// Says whether a buffer holds a window where packets are large.
    pub(super) fn may_hold(self, buffer: Bytes, window: Bytes) -> bool {
        buffer.get() as f64 * self.best >= window.get() as f64
    }

    /// Returns "x 2".
    pub(super) fn factor(self) -> String {
        format!("x {}", (100.0 / self.share).round() / 100.0)
    }

    /// Returns the buffer that holds a window.
    pub(super) fn buffer_for(self, window: Bytes) -> Bytes {
        let bytes = (window.get() as f64 / self.share).ceil() as u64;
        Bytes::new(bytes.min(LARGEST_SETTING))
    }

    /// Returns the window that a buffer holds.
    pub(super) fn window_of(self, buffer: Bytes) -> Bytes {
        // A whole C integer stands for 2 GiB, which no setting can name.
        let whole = if buffer.get() >= LARGEST_SETTING { LARGEST_SETTING + 1 } else { buffer.get() };
        Bytes::new((whole as f64 * self.share) as u64).min(LARGEST_WINDOW)
    }
}

/// Returns the receive and the send buffer that the target needs.
pub(super) fn needed_buffers(facts: &HostFacts, target: &Target) -> [Bytes; 2] {
    [PayloadShare::receiving(facts), PayloadShare::sending()].map(|share| share.buffer_for(target.window()))
}

impl BufferFacts {
    /// Returns the largest receive and send buffer of the kernel's autotuning, where they are
    /// known.
    pub(super) fn largest(&self) -> [Option<Bytes>; 2] {
        [&self.tcp_rmem, &self.tcp_wmem].map(|limits| limits.as_ref().ok().map(|limits| limits.max))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{sound_host, target_of};
    use super::*;

    fn share(kernel: KernelVersion, scale: i32) -> f64 {
        let mut facts = sound_host();
        facts.kernel = Ok(kernel);
        facts.buffers.adv_win_scale = Ok(scale);
        PayloadShare::receiving(&facts).share
    }

    #[test]
    fn share_of_the_window_follows_the_scale_until_6_5() {
        let old = KernelVersion(6, 1);
        let shares = [-2, 0, 1, 2, 31].map(|scale| share(old, scale));
        assert_eq!(shares[..4], [0.25, 1.0, 0.5, 0.75]);
        assert!(shares[4] > 0.99 && shares[4] < 1.0);
        assert_eq!(share(KernelVersion(6, 6), 2), 0.5);
        let half = PayloadShare::sending();
        let may_hold = |buffer| half.may_hold(Bytes::new(buffer), Bytes::new(250_000_000));
        assert_eq!([may_hold(375_000_000), may_hold(374_999_999)], [true, false]);
        // What the kernel would refuse.
        assert_eq!([share(old, 99), share(old, -99)], [0.5; 2]);
    }

    #[test]
    fn buffer_and_window_are_inverse_and_bounded() {
        let half = PayloadShare::sending();
        for (window, buffer) in [(250_000_000, 500_000_000), (1 << 30, 2_147_483_647)] {
            assert_eq!(half.buffer_for(Bytes::new(window)), Bytes::new(buffer));
            assert_eq!(half.window_of(Bytes::new(buffer)), Bytes::new(window));
        }
        assert_eq!(half.window_of(Bytes::gib(8)), Bytes::gib(1));
        let factor = |share| PayloadShare { share, best: share, why: "" }.factor();
        assert_eq!([factor(0.5), factor(0.75), factor(1.0)], ["x 2", "x 1.33", "x 1"]);
        let fast = target_of(100_000);
        assert_eq!((fast.bdp(), fast.window()), (Bytes::new(2_500_000_000), LARGEST_WINDOW));
    }
}
