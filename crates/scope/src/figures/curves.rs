//! Byte counters of a record: received, sent and acknowledged.

use longhaul_core::units::Bytes;

use crate::record::Record;
use crate::record::schema::{Sample, Side};

use super::flow::Counter;

/// Segments count as equally sized if their mean differs from the connection's MSS by less than
/// this share.
const ALIKE: f64 = 0.05;

/// Maximum duration of a reading, as a share of the averaging window.
const DOUBT: f64 = 0.1;

/// Returns whether the record is of a receiver of files; a server also receives uploads.
pub(crate) fn receives(record: &Record) -> bool {
    let sockets = record.samples.last().map(|(_, sample)| sample.sockets).unwrap_or_default();
    match record.header.side {
        Side::Get => true,
        Side::Put => false,
        Side::Serve => sockets.counters.received > sockets.counters.sent,
    }
}

/// Counts the bytes on the wire at this endpoint: received by a receiver, whether read or not; sent
/// by a sender, retransmissions included.
///
/// The kernel counts received bytes only in order: bytes behind a gap count when the gap is filled.
/// It counts segments on arrival, so segments give the exact time if all have one size. Older
/// records have neither counter; then bytes read and unread count for a receiver, and acknowledged
/// bytes for a sender.
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

/// Returns the mean bytes of a received segment; `None` if sizes differ, as on a virtual link,
/// where the kernel counts a burst as one segment.
fn segment(record: &Record) -> Option<f64> {
    let (_, last) = record.samples.last()?;
    let streams = record.samples.iter().rev().flat_map(|(_, sample)| &sample.streams);
    let size = streams.filter_map(|stream| Some(stream.tcp?.tcpi_rcv_mss)).find(|size| *size > 0)? as f64;
    let mean = last.sockets.counters.received.get() as f64 / last.sockets.counters.data_segments as f64;
    ((mean - size).abs() <= ALIKE * size).then_some(mean)
}

/// Counts the acknowledged bytes of a sender.
pub(super) fn acked(record: &Record, window: f64) -> Counter {
    counted(record, window, |sample| sample.moved.get())
}

/// Counts over samples whose time is precise enough for averages over `window` seconds.
///
/// A reading may wait for the socket or for a core. Bytes counted after such a wait have a wrong
/// time: a steady flow would appear to pause and burst.
fn counted(record: &Record, window: f64, of: impl Fn(&Sample) -> u64) -> Counter {
    let seconds = |sample: &Sample| sample.took.unwrap_or_default().as_secs_f64();
    let certain = record.samples.iter().filter(|(_, sample)| seconds(sample) <= DOUBT * window);
    // The sum of two readings may decrease by the bytes that moved between them.
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
    use crate::figures::test_record;
    use crate::record::schema::StreamSample;

    #[test]
    fn each_end_counts_what_passed_its_wire() {
        let mut record = test_record::record(1.0, |at| {
            let mut sample = test_record::moved(at * 100.0);
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
    fn segments_behind_gap_count_on_arrival() {
        // A segment of 1000 bytes every 10 ms; the one of 0.2 s arrives after 0.7 s.
        let mut record = test_record::record(1.0, |at| {
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
        assert_eq!(at_half(&record), 19_000.0, "the segment size is unknown");
        with_mss(&mut record, 1010);
        assert_eq!(at_half(&record), 50_000.0);
        with_mss(&mut record, 500);
        assert_eq!(at_half(&record), 19_000.0, "two of them at once count as one");
        with_mss(&mut record, 0);
        assert_eq!(at_half(&record), 19_000.0);
    }

    #[test]
    fn slow_readings_count_only_in_wide_windows() {
        let mut record = test_record::record(1.0, |at| test_record::moved(at * 1e6));
        record.samples[50].1 =
            Sample { took: Some(Duration::from_millis(10)), ..test_record::moved(900_000.0) };
        let at_half = |window: f64| wire(&record, window).at(0.5);
        assert_eq!((at_half(1.0), at_half(0.001).round()), (900_000.0, 500_000.0));
    }
}
