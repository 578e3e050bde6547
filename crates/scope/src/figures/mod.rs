//! Charts and numbers of records.

mod alignment;
mod averages;
mod burstiness;
mod charts;
mod curves;
mod flow;
mod limits;
mod lines;
mod moving_average;
mod notes;
#[cfg(test)]
pub(crate) mod test_record;
mod values;

use crate::chart::Sheet;
use crate::record::Record;

use charts::AlignedRecord;

pub(crate) use curves::receives;
pub use values::{values, values_of_file};

/// Makes charts of named records: throughput in bins of 0.5 s and as moving averages, buffers, page
/// cache, windows, rates, RTT and losses over time.
///
/// Socket buffer, application buffer and throughput are UsadaFox's figures 4, 5 and 6; moving
/// averages over 1 ms and 1000 ms with duplicate acknowledgements and retransmits as dots are
/// ICDC's. Several records share the charts, one colour each. Records that overlap by their hosts'
/// clocks share the time axis; others start at zero. Charts without data are omitted.
pub fn of_records(records: &[(String, Record)]) -> Sheet {
    let alignment = alignment::align(records);
    let mut placed = Vec::new();
    for ((name, record), begins) in records.iter().zip(alignment.begins) {
        placed.push(AlignedRecord { name, record, begins });
    }
    let (title, notes) = match records {
        [(_, record)] => (notes::title(record), notes::of_record(record)),
        _ => {
            let title = format!("{} transfers compared", records.len());
            (title, [notes_of_several(records), alignment.notes].concat())
        }
    };
    Sheet { title, notes, charts: charts::of_records(&placed) }
}

/// Returns a line for each record, and a line for each host and program.
fn notes_of_several(records: &[(String, Record)]) -> Vec<String> {
    let mut notes: Vec<String> = records.iter().map(|(name, record)| notes::in_short(name, record)).collect();
    for (_, record) in records {
        let place = notes::place(record);
        if !notes.contains(&place) {
            notes.push(place);
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::test_record::names;
    use super::*;
    use crate::chart::{Chart, Mark, NEUTRAL, Series};
    use crate::record::TcpFields;
    use crate::record::schema::{Side, StreamSample};
    use longhaul_core::telemetry::Segments;
    use longhaul_core::units::{Bytes, Rate};

    fn full(seconds: f64) -> Record {
        test_record::record(seconds, |at| {
            let mut sample = test_record::moved(at * 1e8);
            sample.segments = Some(Segments { in_use: 3, count: 16, size: Bytes::mib(4) });
            sample.page_cache = (at != 1.5).then(test_record::pages);
            sample.host_pages = Some(test_record::host_pages(50));
            let sockets = &mut sample.sockets;
            (sockets.times.rtt, sockets.times.data_rtt, sockets.times.min_rtt) =
                (test_record::rtt(0.2), test_record::rtt(0.21), test_record::rtt(0.2));
            (sockets.windows.rwin, sockets.windows.cwnd) = (Some(Bytes::mib(1)), Some(Bytes::mib(1)));
            let rate = Some(Rate::bits_per_sec(1_000_000));
            (sockets.rates.pacing, sockets.rates.delivery) = (rate, rate);
            (sockets.counters.out_of_order, sockets.counters.retransmits) = (at as u64, at as u64);
            sockets.unread = Bytes::new(if at == 1.0 { 68_800_000 } else { 10 });
            sample
        })
    }

    fn titles(sheet: &Sheet) -> Vec<&str> {
        sheet.charts.iter().map(|chart| chart.title.as_str()).collect()
    }

    #[test]
    fn one_record_fills_every_chart_of_its_side() {
        let mut record = full(4.0);
        let sheet = of_records(&[("a".to_owned(), record.clone())]);
        let expected = [
            "Throughput",
            "Throughput as moving averages",
            "Socket buffer in use",
            "Application buffer in use",
            "Page cache: on the way to the disk",
            "Page cache: all of the file's pages",
            "Receive window",
            "Round-trip time",
            "Packets out of order",
            "Packets sent again",
        ];
        assert_eq!(titles(&sheet), expected);
        // Half seconds, up to the last sample.
        let points = &sheet.charts[0].series[0].points;
        let halves: Vec<_> = (0..=8).map(|half| f64::from(half) / 2.0).collect();
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), halves);
        assert!(points.iter().all(|point| (point.y - 8e8).abs() < 1.0), "{points:?}");
        assert!(sheet.charts[2].note.contains("Largest: 68.8 MB at 1.00 s."), "{}", sheet.charts[2].note);
        assert_eq!(names(&sheet.charts[3]), ["capacity", "in use", ""]);
        assert_eq!(sheet.charts[3].series[0].colour, NEUTRAL);
        let pages = &sheet.charts[4];
        assert_eq!(names(pages), ["host: dirty", "file: dirty", "file: writeback"]);
        let counts = pages.series.iter().map(|series| (series.mark, series.points.len()));
        assert_eq!(counts.collect::<Vec<_>>(), [(Mark::Line, 401), (Mark::Dots, 400), (Mark::Dots, 400)]);
        let lost: f64 = sheet.charts[8].series[0].points[..8].iter().map(|point| point.y).sum();
        assert_eq!(lost, 4.0);
        record.header.side = Side::Serve;
        let served = of_records(&[("a".to_owned(), record)]);
        let has = |title| titles(&served).contains(&title);
        assert!(has("Congestion window") && has("Rates of the sender"));
        assert!(!has("Socket buffer in use") && !has("Receive window"));
    }

    #[test]
    fn several_records_share_charts_and_keep_their_colours() {
        let mut without_pages = full(3.0);
        without_pages.samples.iter_mut().for_each(|(_, sample)| sample.page_cache = None);
        let records = [("a".to_owned(), without_pages), ("b".to_owned(), full(4.0))];
        let sheet = of_records(&records);
        let chart = |title: &str| sheet.charts.iter().find(|chart| chart.title == title).unwrap();
        assert_eq!(names(chart("Throughput")), ["a", "b"]);
        let buffers = names(chart("Application buffer in use"));
        assert_eq!(buffers, ["capacity", "a", "b"], "one capacity for both");
        let dirty = chart("Page cache: on the way to the disk: file: dirty");
        assert_eq!((names(dirty), dirty.series[0].colour), (vec!["b"], 1));
        assert_eq!(names(chart("Round-trip time: smoothed")), ["least", "a", "b"]);
        assert_eq!(sheet.notes.len(), 4, "{:?}", sheet.notes);
        assert!(sheet.notes[0].starts_with("a: http://server/file · "), "{}", sheet.notes[0]);
    }

    #[test]
    fn a_transfer_stands_where_its_server_saw_it() {
        let (transfer, mut server) = (full(4.0), full(20.0));
        server.header.side = Side::Serve;
        server.header.started -= 7.0;
        let sheet = of_records(&[("get".to_owned(), transfer), ("serve".to_owned(), server)]);
        let chart = |title: &str| sheet.charts.iter().find(|chart| chart.title == title).unwrap();
        let spans = |chart: &Chart| {
            let ends = |series: &Series| (series.points[0].x, series.points[series.points.len() - 1].x);
            chart.series.iter().map(ends).collect::<Vec<_>>()
        };
        assert_eq!(spans(chart("Throughput")), [(7.0, 11.0), (0.0, 20.0)]);
        assert_eq!(spans(chart("Round-trip time: smoothed")), [(0.0, 20.0), (7.0, 11.0), (0.0, 20.0)]);
        assert!(chart("Socket buffer in use").note.contains("at 8.00 s"), "the burst was after 1 s");
        assert!(sheet.notes.iter().any(|note| note.contains("at the same time")), "{:?}", sheet.notes);
    }

    #[test]
    fn streams_are_shown_where_there_are_few() {
        // The first `idle` of `count` streams move nothing.
        let with_streams = |count: usize, idle: usize| {
            let mut record = full(2.0);
            for (at, sample) in &mut record.samples {
                let bytes = (*at * 1e6) as u64;
                let stream = |stream| {
                    let tcp = TcpFields {
                        tcpi_bytes_received: if stream < idle { 0 } else { bytes },
                        ..TcpFields::default()
                    };
                    StreamSample { stream, unread: Bytes::ZERO, tcp: Some(tcp) }
                };
                sample.streams = (0..count).map(stream).collect();
            }
            of_records(&[("a".to_owned(), record)])
        };
        assert_eq!(names(&with_streams(3, 0).charts[2]), ["stream 0", "stream 1", "stream 2"]);
        assert!((with_streams(3, 0).charts[2].series[2].points[1].y - 8e6).abs() < 1e3);
        assert_eq!(names(&with_streams(3, 1).charts[2]), ["stream 1", "stream 2"]);
        for (count, idle) in [(1, 0), (9, 0), (3, 2), (3, 3)] {
            assert_eq!(with_streams(count, idle).charts[2].title, "Socket buffer in use");
        }
    }

    #[test]
    fn a_record_without_a_sample_has_no_chart_and_fails_nothing() {
        let empty = Record { samples: Vec::new(), ..full(1.0) };
        assert!(of_records(&[("a".to_owned(), empty)]).charts.is_empty());
        assert!(of_records(&[]).charts.is_empty());
        let one = of_records(&[("a".to_owned(), full(0.0))]);
        assert!(one.charts.iter().all(|chart| {
            chart.series.iter().all(|series| series.mark != Mark::Steps || !series.points.is_empty())
        }));
    }
}
