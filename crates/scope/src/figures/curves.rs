//! What a record counted at its end of the path: the bytes that arrived, were sent, and were acknowledged.

use longhaul_core::units::Bytes;

use crate::record::Record;
use crate::record::schema::{Sample, Side};

use super::flow::Counter;

/// Segments have one size where their mean differs from the connection's by less than this part.
const ALIKE: f64 = 0.05;

/// Of a window, the part by which a sample's time may be in doubt.
const DOUBT: f64 = 0.1;

/// Says whether files came in here, and did not leave: a server is sent uploads as well.
pub(crate) fn receives(record: &Record) -> bool {
    let sockets = record.samples.last().map(|(_, sample)| sample.sockets).unwrap_or_default();
    match record.header.side {
        Side::Get => true,
        Side::Put => false,
        Side::Serve => sockets.counters.received > sockets.counters.sent,
    }
}

/// Counts the bytes that passed the wire here: what arrived at a receiver, whoever read it, and what left a
/// sender, once more where it was sent again.
///
/// The kernel counts bytes that arrive only once they are in order: those behind a gap all at once, when it is
/// filled. It counts segments as they come, so that these tell when, wherever all have one size. Older records have
/// neither: then what was read and waited to be read, and what was acknowledged.
pub(super) fn wire(record: &Record, window: f64) -> Counter {
    let last = record.samples.last().map(|(_, sample)| sample.sockets).unwrap_or_default();
    match receives(record) {
        true if last.counters.received > Bytes::ZERO => match segment(record) {
            Some(size) => {
                counted(record, window, |sample| (sample.sockets.counters.data_segments as f64 * size) as u64)
            }
            None => counted(record, window, |sample| sample.sockets.counters.received.get()),
        },
        true => counted(record, window, |sample| (sample.moved + sample.sockets.unread).get()),
        false if last.counters.sent > Bytes::ZERO => {
            counted(record, window, |sample| sample.sockets.counters.sent.get())
        }
        false => acked(record, window),
    }
}

/// Returns the mean bytes of an arriving segment; `None` where they are not all alike, as the segments that a
/// virtual link leaves together, which the kernel counts as one.
fn segment(record: &Record) -> Option<f64> {
    let (_, last) = record.samples.last()?;
    let streams = record.samples.iter().rev().flat_map(|(_, sample)| &sample.streams);
    let size = streams.filter_map(|stream| stream.tcp.as_ref()?.get("tcpi_rcv_mss")).next()? as f64;
    let mean = last.sockets.counters.received.get() as f64 / last.sockets.counters.data_segments as f64;
    ((mean - size).abs() <= ALIKE * size).then_some(mean)
}

/// Counts what the peers of a sender acknowledged.
pub(super) fn acked(record: &Record, window: f64) -> Counter {
    counted(record, window, |sample| sample.moved.get())
}

/// Counts by samples whose time is certain enough for averages over `window` seconds.
///
/// A reading may have to wait for the socket or for a core: what was counted at the end of that then
/// stands at the wrong time, and a steady flow would seem to pause and to burst.
fn counted(record: &Record, window: f64, of: impl Fn(&Sample) -> u64) -> Counter {
    let seconds = |sample: &Sample| sample.took.unwrap_or_default().as_secs_f64();
    let certain = record.samples.iter().filter(|(_, sample)| seconds(sample) <= DOUBT * window);
    // A sum of two readings may fall back by what passed between them.
    let mut most = 0;
    Counter::new(
        0.0,
        certain.map(|(at, sample)| {
            most = most.max(of(sample));
            (*at, most)
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::figures::made_up;
    use crate::record::schema::StreamSample;

    #[test]
    fn each_end_counts_what_passed_its_wire() {
        let mut record = made_up::record(1.0, |at| {
            let mut sample = made_up::moved(at * 100.0);
            sample.sockets.unread = Bytes::new(7);
            sample
        });
        let total = |record: &Record| wire(record, 1.0).total();
        assert_eq!(total(&record), 107.0, "read or not");
        record.samples[50].1.sockets.unread = Bytes::new(9);
        assert_eq!(total(&record), 107.0, "and nothing twice");
        record.header.side = Side::Put;
        assert_eq!(total(&record), 100.0);
        record.samples.iter_mut().for_each(|(_, sample)| sample.sockets.counters.sent = sample.moved * 2);
        assert_eq!((total(&record), acked(&record, 1.0).total()), (200.0, 100.0), "half of it once more");
        record.samples.iter_mut().for_each(|(_, sample)| sample.sockets.counters.received = sample.moved * 3);
        for (side, is_receiver, bytes) in
            [(Side::Get, true, 300.0), (Side::Put, false, 200.0), (Side::Serve, true, 300.0)]
        {
            record.header.side = side;
            assert_eq!((receives(&record), total(&record)), (is_receiver, bytes), "{side:?}");
        }
    }

    #[test]
    fn what_comes_behind_a_gap_counts_when_it_comes() {
        // A segment of 1000 bytes each 10 ms; the one at 0.2 s comes only after 0.7 s.
        let mut record = made_up::record(1.0, |at| {
            let mut sample = Sample::default();
            let segments = (at * 100.0).round() as u64;
            sample.sockets.counters.data_segments = segments;
            sample.sockets.counters.received =
                Bytes::new(if (0.2..0.7).contains(&at) { 19 } else { segments } * 1000);
            sample
        });
        let with_mss = |record: &mut Record, mss: u64| {
            let tcp = serde_json::from_value(serde_json::json!({ "tcpi_rcv_mss": mss })).unwrap();
            record.samples[3].1.streams =
                vec![StreamSample { stream: 0, unread: Bytes::ZERO, tcp: Some(tcp) }];
        };
        let at_half = |record: &Record| wire(record, 1.0).at(0.5);
        assert_eq!(at_half(&record), 19_000.0, "nobody knows how large segments are");
        with_mss(&mut record, 1010);
        assert_eq!(at_half(&record), 50_000.0);
        with_mss(&mut record, 500);
        assert_eq!(at_half(&record), 19_000.0, "two of them at once count as one");
        with_mss(&mut record, 0);
        assert_eq!(at_half(&record), 19_000.0);
    }

    #[test]
    fn what_was_read_too_slowly_counts_only_where_windows_are_wide() {
        let mut record = made_up::record(1.0, |at| made_up::moved(at * 1e6));
        record.samples[50].1 = Sample { took: Some(Duration::from_millis(10)), ..made_up::moved(900_000.0) };
        let at_half = |window: f64| wire(&record, window).at(0.5);
        assert_eq!((at_half(1.0), at_half(0.001).round()), (900_000.0, 500_000.0));
    }
}
