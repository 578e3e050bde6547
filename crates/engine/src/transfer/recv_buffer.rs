//! Chooses the size of the receive buffer for a path.

use longhaul_core::buffer_plan::{self, RecvLimits};
use longhaul_core::tune::pace::HeldRate;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::{host, sockopt};

/// The minimum rate that buffers are planned for, even if all interfaces report less.
pub(crate) const PLANNED_RATE: Rate = Rate::bits_per_sec(10_000_000_000);

/// Autotuning opens a smaller window within four round trips.
const WORTH_OPENING: Bytes = Bytes::mib(1);

/// Returns the receive buffer that opens the window of a known path in the first round trip; `None`
/// if the window is small or the kernel does not grant the buffer.
///
/// Autotuning starts from 64 KiB, and takes ten round trips to 100 MB. Setting a buffer opens the
/// window at once, but disables autotuning. The buffer is therefore at least the maximum of
/// autotuning, and at least the buffer of an unknown path of this RTT.
pub(crate) fn open_at_once(known: HeldRate) -> Option<Bytes> {
    if known.rate.bdp(known.rtt) < WORTH_OPENING {
        return None;
    }
    // setsockopt doubles the value.
    let reached = Bytes::new(host::tcp_rmem_max()?.get().div_ceil(2));
    let buffer = larger_than_kernels(known.rtt, 1).unwrap_or_default().max(reached);
    let granted = sockopt::may_force_recv_buffer() || host::rmem_max().is_some_and(|max| buffer <= max);
    granted.then_some(buffer)
}

/// Returns the receive buffer to set if autotuning cannot reach the path's BDP.
pub(crate) fn larger_than_kernels(rtt: Rtt, streams: usize) -> Option<Bytes> {
    let limits = RecvLimits {
        tcp_rmem_max: host::tcp_rmem_max()?,
        rmem_max: host::rmem_max().unwrap_or_default(),
        may_force: sockopt::may_force_recv_buffer(),
    };
    buffer_plan::recv_buffer(limits, share(streams), rtt)
}

/// Returns the bytes that each of several streams may have in flight before the path's rate is
/// known.
pub(crate) fn share_in_flight(rtt: Rtt, streams: usize) -> Bytes {
    share(streams).bdp(rtt)
}

fn share(streams: usize) -> Rate {
    let line = host::fastest_interface().unwrap_or_default().max(PLANNED_RATE);
    Rate::bits_per_sec(line.as_bits_per_sec() / streams.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Host limits differ between machines, but a buffer that disables autotuning must reach the
    /// maximum of autotuning.
    #[test]
    fn buffer_that_disables_autotuning_reaches_its_maximum() {
        for (mbit, ms, worth_it) in
            [(1, 1, false), (1_000, 1, false), (100, 20, false), (1_000, 200, true), (40_000, 300, true)]
        {
            let rtt = Rtt::new(Duration::from_millis(ms));
            let set = open_at_once(HeldRate { rate: Rate::bits_per_sec(mbit * 1_000_000), rtt });
            let (reached, unknown) = (host::tcp_rmem_max().unwrap(), larger_than_kernels(rtt, 1));
            assert!(set.is_none_or(|set| set * 2 >= reached), "{mbit} Mbit/s x {ms} ms: {set:?}, {reached}");
            assert!(set.is_none_or(|set| Some(set) >= unknown), "{mbit} x {ms}: {set:?}, {unknown:?}");
            let granted = sockopt::may_force_recv_buffer();
            assert!(set.is_some() == worth_it || !granted, "{mbit} Mbit/s x {ms} ms: {set:?}");
        }
    }
}
