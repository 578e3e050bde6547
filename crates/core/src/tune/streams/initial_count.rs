//! The initial number of streams: several connections leave slow start sooner than one.

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

use super::StreamTunerStart;
use crate::tune::INITIAL_SEGMENTS;

/// The payload of a packet on Ethernet (MTU 1500, with TCP timestamps).
pub(super) const SEGMENT: Bytes = Bytes::new(1448);
/// The bytes that a connection sends in its first RTT.
pub(super) const INITIAL_WINDOW: Bytes = Bytes::new(INITIAL_SEGMENTS * SEGMENT.get());
/// On a shorter path slow start ends before further connections are open.
const MIN_SEVERAL_RTT: Duration = Duration::from_millis(20);
/// One stream per this part of the RTT: at 10 Gbit/s 3.75 MB pass in it, the bytes in flight of one
/// stream of a server with default settings (docs/servers.md).
const RTT_PER_STREAM: Duration = Duration::from_millis(3);
/// The largest initial number: twice as many would save one further RTT.
pub const MAX_INITIAL_STREAMS: usize = 64;
/// The least bytes to fetch per stream.
const MIN_BYTES_PER_STREAM: Bytes = Bytes::mib(8);

/// Returns the initial number of streams.
///
/// k connections save log2(k) RTTs of slow start, for each starts with its own initial window.
pub(crate) fn streams(start: &StreamTunerStart) -> usize {
    let rtt = start.rtt.get();
    let mut ramp =
        if rtt < MIN_SEVERAL_RTT { 1 } else { (rtt.as_nanos() / RTT_PER_STREAM.as_nanos()) as usize };
    if let Some(path) = start.remembered {
        // Many initial windows at once would overflow the queue of a thin path.
        ramp = ramp.min(windows_in(path.rate, start.rtt) / 4);
    }
    let shares = usize::try_from(start.left.get() / MIN_BYTES_PER_STREAM.get()).unwrap_or(usize::MAX);
    ramp.min(MAX_INITIAL_STREAMS)
        .max(start.remembered.map_or(1, |path| path.streams))
        .min(shares)
        .clamp(1, start.most.max(1))
}

fn windows_in(rate: Rate, rtt: Rtt) -> usize {
    usize::try_from(rate.bdp(rtt).get() / INITIAL_WINDOW.get()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::Remembered;
    use super::*;
    use crate::tune::MAX_STREAMS;

    fn start(rtt_ms: u64, left: Bytes) -> StreamTunerStart {
        let rtt = Rtt::new(Duration::from_millis(rtt_ms));
        StreamTunerStart { rtt, left, most: MAX_STREAMS, remembered: None, bound: None }
    }

    fn remembering(rtt_ms: u64, mbit: u64, streams: usize) -> StreamTunerStart {
        let rtt = Rtt::new(Duration::from_millis(rtt_ms));
        let remembered = Some(Remembered { rtt, rate: Rate::mbit(mbit), streams });
        StreamTunerStart { remembered, ..start(200, Bytes::gib(8)) }
    }

    #[test]
    fn long_or_remembered_paths_with_much_to_fetch_start_with_several_streams() {
        let expected = [(1, 1), (19, 1), (20, 6), (100, 33), (200, 64), (900, 64)];
        for (rtt, streams) in expected {
            assert_eq!(super::streams(&start(rtt, Bytes::gib(8))), streams, "{rtt} ms");
        }
        assert_eq!(streams(&start(200, Bytes::mib(64))), 8);
        assert_eq!(streams(&start(200, Bytes::mib(4))), 1);
        assert_eq!(streams(&StreamTunerStart { most: 3, ..start(200, Bytes::gib(8)) }), 3);
        assert_eq!(streams(&StreamTunerStart { most: 0, ..start(0, Bytes::ZERO) }), 1);
        // A remembered path starts with its last number.
        assert_eq!(streams(&remembering(210, 10_000, 80)), 80);
        // One stream was enough, but slow start takes as long as before.
        assert_eq!(streams(&remembering(200, 10_000, 1)), 64);
        // A thin path with a BDP of 250 KB.
        assert_eq!(streams(&remembering(200, 10, 1)), 4);
    }
}
