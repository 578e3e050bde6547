//! The receive buffer that a path needs.

use longhaul_core::plan::{self, RecvBuffer, RecvLimits};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::{host, sockopt};

/// The least rate that buffers are planned for, whatever the interfaces say of themselves.
const PLANNED_RATE: Rate = Rate::bits_per_sec(10_000_000_000);

/// How much faster a path may have become that a set buffer is for.
const GROWTH: f64 = 1.5;

/// Returns the receive buffer that lets a path's window be open from the first round trip on, where the kernel grants it.
///
/// Autotuning opens it from 64 KiB: ten round trips on the way to 100 MB. A buffer that is set is offered at once.
pub(super) fn open_at_once(rate: Rate, rtt: Rtt) -> Option<Bytes> {
    let rmem_max = host::rmem_max().unwrap_or_default();
    let limits =
        RecvLimits { tcp_rmem_max: Bytes::ZERO, rmem_max, may_force: sockopt::may_force_recv_buffer() };
    match plan::recv_buffer(limits, rate.scaled(GROWTH), rtt) {
        RecvBuffer::Set(buffer) if limits.may_force || buffer < rmem_max => Some(buffer),
        RecvBuffer::Set(_) | RecvBuffer::Autotune => None,
    }
}

/// Returns the receive buffer to ask for, where autotuning cannot reach the path's need.
pub(super) fn larger_than_kernels(rtt: Rtt, streams: usize) -> Option<Bytes> {
    let limits = RecvLimits {
        tcp_rmem_max: host::tcp_rmem_max()?,
        rmem_max: host::rmem_max().unwrap_or_default(),
        may_force: sockopt::may_force_recv_buffer(),
    };
    match plan::recv_buffer(limits, share(streams), rtt) {
        RecvBuffer::Set(buffer) => Some(buffer),
        RecvBuffer::Autotune => None,
    }
}

/// Returns what each of several streams may have in flight before the path's rate is known.
pub(super) fn share_in_flight(rtt: Rtt, streams: usize) -> Bytes {
    share(streams).bdp(rtt)
}

fn share(streams: usize) -> Rate {
    let line = host::fastest_interface().unwrap_or_default().max(PLANNED_RATE);
    Rate::bits_per_sec(line.as_bits_per_sec() / streams.max(1) as u64)
}
