//! Charts of throughput as moving averages over 1 ms and 1000 ms, with losses as dots (ICDC's
//! figures).

use longhaul_core::telemetry::Sockets;
use longhaul_core::units::Bytes;

use crate::chart::{Chart, Mark, Point, Series, Unit};
use crate::draw::format_value;
use crate::record::Record;

use super::burstiness::Burstiness;
use super::charts::{AlignedRecord, over_time};
use super::curves::{self, receives};
use super::flow::Counter;
use super::moving_average::{NARROW, WIDE, moving_average, resolves};

/// With more records, only the averages over 1 s are compared.
const MAX_IN_DETAIL: usize = 4;
/// Height of the rows of dots above the highest line, as a share of that line.
const ROW: f64 = 0.06;

/// Returns a chart for each record, preceded by a comparison if there are several.
pub(super) fn of_records(records: &[AlignedRecord<'_>]) -> Vec<Chart> {
    match records {
        [record] => of_one("", record).into_iter().collect(),
        _ => {
            let detailed = if records.len() <= MAX_IN_DETAIL { records } else { &[] };
            let each = detailed.iter().filter_map(|record| of_one(&format!(": {}", record.name), record));
            compared(records).into_iter().chain(each).collect()
        }
    }
}

fn of_one(name: &str, placed: &AlignedRecord<'_>) -> Option<Chart> {
    let record = placed.record;
    let (verb, mark) = (if receives(record) { "received" } else { "sent" }, Mark::Line);
    let narrow = average(&curves::wire(record, NARROW), NARROW);
    let lines = [
        (format!("{verb}, over 1 ms"), narrow.clone().unwrap_or_default()),
        (format!("{verb}, over 1000 ms"), average(&curves::wire(record, WIDE), WIDE).unwrap_or_default()),
        ("acknowledged, over 1000 ms".to_owned(), acknowledged(record)),
    ];
    let lines = lines.into_iter().enumerate().filter(|(_, (_, points))| !points.is_empty());
    let mut series: Vec<Series> = lines
        .map(|(colour, (name, points))| Series { name, colour, mark, points: placed.place(points) })
        .collect();
    let top = highest(&series)?;
    for (row, (name, times)) in losses(record).into_iter().enumerate() {
        let colour = 3 + row;
        series.push(dots(name, colour, placed, times, top, row));
    }
    let title = format!("Throughput as moving averages{name}");
    Some(over_time(&title, note(record, narrow.err()), ("Throughput", Unit::BitsPerSecond), series))
}

/// Compares averages over 1 s; the dots of a record share its colour.
fn compared(records: &[AlignedRecord<'_>]) -> Option<Chart> {
    let mut series = Vec::new();
    for (colour, placed) in records.iter().enumerate() {
        let points = average(&curves::wire(placed.record, WIDE), WIDE).unwrap_or_default();
        if !points.is_empty() {
            let verb = if receives(placed.record) { "received" } else { "sent" };
            let (name, points) = (format!("{}: {verb}", placed.name), placed.place(points));
            series.push(Series { name, colour, mark: Mark::Line, points });
        }
    }
    let top = highest(&series)?;
    let mut row = 0;
    for (colour, placed) in records.iter().enumerate() {
        for (name, times) in losses(placed.record) {
            series.push(dots(format!("{}: {name}", placed.name), colour, placed, times, top, row));
            row += 1;
        }
    }
    let note = "Means over the last 1000 ms. Dots mark times; their height means nothing.".to_owned();
    let title = "Throughput as moving averages: over 1000 ms";
    Some(over_time(title, note, ("Throughput", Unit::BitsPerSecond), series))
}

/// Returns bits per second over the last `window` seconds; otherwise the gap between readings in
/// seconds, if it is too large for the window.
fn average(counter: &Counter, window: f64) -> Result<Vec<Point>, f64> {
    let lasts = counter.growing().map_or(0.0, |(from, to)| to - from);
    if lasts < window {
        return Ok(Vec::new());
    }
    resolves(counter, window)?;
    Ok(moving_average(counter, window).into_iter().map(|(at, rate)| Point::from((at, rate * 8.0))).collect())
}

/// Returns the acknowledged throughput of a sender, where it differs from the sent throughput.
fn acknowledged(record: &Record) -> Vec<Point> {
    let is_apart = record.samples.iter().any(|(_, sample)| sample.sockets.counters.sent > Bytes::ZERO);
    if receives(record) || !is_apart {
        return Vec::new();
    }
    average(&curves::acked(record, WIDE), WIDE).unwrap_or_default()
}

/// Returns the times of loss events that this endpoint observed, by kind; omits kinds without an
/// event.
fn losses(record: &Record) -> Vec<(String, Vec<f64>)> {
    let last = record.samples.last().map(|(_, sample)| sample.sockets).unwrap_or_default();
    let counted = |name: &str, count: u64| format!("{name} ({})", format_value(Unit::Number, count as f64));
    let mut kinds = if receives(record) {
        let answered = risen(record, |now, before| now.counters.out_of_order > before.counters.out_of_order);
        vec![(counted("duplicate ACKs sent", last.counters.out_of_order), answered)]
    } else {
        let again = risen(record, |now, before| now.counters.retransmits > before.counters.retransmits);
        let duplicate =
            risen(record, |now, before| now.sacked > 0 || now.counters.dsacks > before.counters.dsacks);
        vec![
            (counted("retransmits", last.counters.retransmits), again),
            ("duplicate ACKs got".to_owned(), duplicate),
        ]
    };
    kinds.retain(|(_, times)| !times.is_empty());
    kinds
}

fn risen(record: &Record, has: impl Fn(&Sockets, &Sockets) -> bool) -> Vec<f64> {
    let mut before = Sockets::default();
    let mut times = Vec::new();
    for (at, sample) in &record.samples {
        if has(&sample.sockets, &before) {
            times.push(*at);
        }
        before = sample.sockets;
    }
    times
}

fn dots(
    name: String,
    colour: usize,
    placed: &AlignedRecord<'_>,
    times: Vec<f64>,
    top: f64,
    row: usize,
) -> Series {
    let y = top * (1.0 + ROW * (row + 1) as f64);
    let points = placed.place(times.into_iter().map(|at| Point::from((at, y))).collect());
    Series { name, colour, mark: Mark::Events, points }
}

fn highest(series: &[Series]) -> Option<f64> {
    series.iter().flat_map(|series| &series.points).map(|point| point.y).max_by(f64::total_cmp)
}

/// Returns how to read the chart, its burstiness, and why a line is missing.
fn note(record: &Record, gap: Option<f64>) -> String {
    let mut note =
        "Means over the last 1 ms and 1000 ms. Dots mark times; their height means nothing.".to_owned();
    if let Some(gap) = gap {
        let gap = format_value(Unit::Seconds, gap);
        note += &format!(" No means over 1 ms: samples are {gap} apart (--record-interval 1ms).");
    }
    if let Some(bursts) = Burstiness::of(record)
        && let (Some(ratio), Some(p99)) = (bursts.ratio(), bursts.p99)
    {
        let (mean, mostly, seen) = (bursts.mean * 8.0, p99 / bursts.mean, bursts.seen * 100.0);
        let mean = format_value(Unit::BitsPerSecond, mean);
        note += &format!(
            " At steady speed the peak over 1 ms is {ratio:.2} times the mean, {mean}, and in 99 % of the time at \
             most {mostly:.2} times; samples were close enough to see it in {seen:.0} % of that time."
        );
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::test_record::{self, names};
    use crate::record::schema::Side;

    fn record(interval: f64, side: Side) -> Record {
        let mut record = test_record::every(interval, 5.0, |at| {
            let mut sample = test_record::moved(at * 1e8);
            let counters = &mut sample.sockets.counters;
            (counters.received, counters.sent) = match side {
                Side::Get => (sample.moved, Bytes::ZERO),
                _ => (Bytes::ZERO, sample.moved + Bytes::new((at * 1e6) as u64)),
            };
            sample
        });
        record.header.side = side;
        record
    }

    fn placed<'a>(records: &'a [(&'a str, &'a Record, f64)]) -> Vec<AlignedRecord<'a>> {
        records.iter().map(|(name, record, begins)| AlignedRecord { name, record, begins: *begins }).collect()
    }

    #[test]
    fn a_receiver_has_both_averages_and_its_duplicate_acks() {
        let mut get = record(0.001, Side::Get);
        for (at, sample) in &mut get.samples {
            sample.sockets.counters.out_of_order =
                if *at < 2.0 { 0 } else { 5 } + if *at < 3.5 { 0 } else { 6 };
        }
        let charts = of_records(&placed(&[("a", &get, 0.0)]));
        let [chart] = charts.as_slice() else { panic!("{charts:?}") };
        let expected = ["received, over 1 ms", "received, over 1000 ms", "duplicate ACKs sent (11)"];
        assert_eq!(names(chart), expected);
        let dots = &chart.series[2];
        assert_eq!((dots.mark, dots.points.len()), (Mark::Events, 2));
        assert_eq!([dots.points[0].x, dots.points[1].x], [2.0, 3.5]);
        assert!(dots.points[0].y > 8e8 && dots.points[0].y < 9e8, "above the lines: {:?}", dots.points);
        assert!(chart.note.contains("is 1.00 times the mean, 800 Mbit/s, and in 99 %"), "{}", chart.note);
        for points in chart.series[..2].iter().map(|series| &series.points) {
            assert!((points[points.len() - 1].y - 8e8).abs() < 1e4);
        }
    }

    #[test]
    fn a_sender_has_what_it_sent_and_what_arrived() {
        let mut put = record(0.001, Side::Put);
        for (at, sample) in &mut put.samples {
            sample.sockets.counters.retransmits = if *at < 1.0 { 0 } else { 100_000 };
            sample.sockets.sacked = if (1.0..1.1).contains(at) { 3 } else { 0 };
            sample.sockets.counters.dsacks = if *at < 4.0 { 0 } else { 1 };
        }
        let charts = of_records(&placed(&[("a", &put, 0.0)]));
        let expected = [
            "sent, over 1 ms",
            "sent, over 1000 ms",
            "acknowledged, over 1000 ms",
            "retransmits (100,000)",
            "duplicate ACKs got",
        ];
        assert_eq!(names(&charts[0]), expected);
        assert_eq!([3, 4].map(|dots| charts[0].series[dots].points.len()), [1, 101]);
        let (sent, acked) = (&charts[0].series[1].points, &charts[0].series[2].points);
        assert!(sent[sent.len() - 1].y > 1.009 * acked[acked.len() - 1].y);
        assert_ne!(charts[0].series[3].points[0].y, charts[0].series[4].points[0].y);
    }

    #[test]
    fn sparse_samples_are_noted_without_line() {
        let charts = of_records(&placed(&[("a", &record(0.01, Side::Get), 0.0)]));
        assert_eq!(names(&charts[0]), ["received, over 1000 ms"]);
        let note = &charts[0].note;
        assert!(note.contains("samples are 10.0 ms apart (--record-interval 1ms)"), "{note}");
        assert_eq!(of_records(&placed(&[("a", &record(2.0, Side::Get), 0.0)])), []);
        let short = test_record::every(0.001, 0.5, |at| test_record::moved(at * 1e8));
        assert_eq!(names(&of_records(&placed(&[("a", &short, 0.0)]))[0]), ["received, over 1 ms"]);
    }

    #[test]
    fn both_ends_stand_in_one_chart_where_the_clock_puts_them() {
        let (get, serve) = (record(0.001, Side::Get), record(0.001, Side::Serve));
        let charts = of_records(&placed(&[("get", &get, 0.25), ("serve", &serve, 0.0)]));
        assert_eq!(names(&charts[0]), ["get: received", "serve: sent"]);
        let ends = |chart: &Chart| {
            chart.series.iter().map(|of| of.points[of.points.len() - 1].x).collect::<Vec<_>>()
        };
        assert_eq!((charts.len(), ends(&charts[0]), ends(&charts[1])), (3, vec![5.25, 5.0], vec![5.25; 2]));
        assert_eq!(charts[1].title, "Throughput as moving averages: get");
        let many: Vec<_> = (0..5).map(|_| ("a", &get, 0.0)).collect();
        assert_eq!(of_records(&placed(&many)).len(), 1);
        assert_eq!(of_records(&[]), []);
    }
}
