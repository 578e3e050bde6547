//! How many streams to begin with: several in slow start at once leave it sooner.

use std::time::Duration;

use crate::units::{Bytes, Rate, Rtt};

use super::StreamTunerStart;
use crate::tune::INITIAL_SEGMENTS;

/// What a packet carries, where nothing larger than Ethernet's frames is on the way.
pub(super) const SEGMENT: Bytes = Bytes::new(1448);
/// What a connection sends in its first round trip.
pub(super) const INITIAL_WINDOW: Bytes = Bytes::new(INITIAL_SEGMENTS * SEGMENT.get());
/// On a shorter path slow start is over before more connections are open.
const SHORTEST: Duration = Duration::from_millis(20);
/// One stream for so much of the round trip,
const PER_STREAM: Duration = Duration::from_millis(5);
/// up to so many: twice as many would save one round trip more.
const MOST: usize = 32;
/// What a stream must find to fetch, so that opening it pays.
const LEAST_SHARE: Bytes = Bytes::mib(8);

/// Returns how many streams to begin with.
///
/// k connections save log2(k) round trips of slow start: each begins with a window of its own.
pub(super) fn streams(start: &StreamTunerStart) -> usize {
    let rtt = start.rtt.get();
    let mut ramp = if rtt < SHORTEST { 1 } else { (rtt.as_nanos() / PER_STREAM.as_nanos()) as usize };
    if let Some(path) = start.remembered {
        // A burst of many first windows is more than a thin path's queue takes.
        ramp = ramp.min(windows_in(path.rate, start.rtt) / 4);
    }
    let shares = usize::try_from(start.left.get() / LEAST_SHARE.get()).unwrap_or(usize::MAX);
    ramp.min(MOST)
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
    use crate::tune::MOST_STREAMS;

    const fn start(rtt_ms: u64, left: Bytes) -> StreamTunerStart {
        StreamTunerStart {
            rtt: Rtt::new(Duration::from_millis(rtt_ms)),
            left,
            most: MOST_STREAMS,
            remembered: None,
        }
    }

    fn remembering(rtt_ms: u64, mbit: u64, streams: usize) -> StreamTunerStart {
        let rate = Rate::bits_per_sec(mbit * 1_000_000);
        let path = Remembered { rtt: Rtt::new(Duration::from_millis(rtt_ms)), rate, streams };
        StreamTunerStart { remembered: Some(path), ..start(200, Bytes::gib(8)) }
    }

    #[test]
    fn long_paths_with_much_left_begin_with_several() {
        let expected = [(1, 1), (19, 1), (20, 4), (100, 20), (200, 32), (900, 32)];
        for (rtt, streams) in expected {
            assert_eq!(super::streams(&start(rtt, Bytes::gib(8))), streams, "{rtt} ms");
        }
        assert_eq!(streams(&start(200, Bytes::mib(64))), 8);
        assert_eq!(streams(&start(200, Bytes::mib(4))), 1);
        assert_eq!(streams(&StreamTunerStart { most: 3, ..start(200, Bytes::gib(8)) }), 3);
        assert_eq!(streams(&StreamTunerStart { most: 0, ..start(0, Bytes::ZERO) }), 1);
    }

    #[test]
    fn a_remembered_path_begins_where_it_ended() {
        assert_eq!(streams(&remembering(210, 10_000, 80)), 80);
        // One was enough, but slow start is as long as it was.
        assert_eq!(streams(&remembering(200, 10_000, 1)), 32);
        // A thin path: 250 KB are in flight.
        assert_eq!(streams(&remembering(200, 10, 1)), 4);
    }
}
