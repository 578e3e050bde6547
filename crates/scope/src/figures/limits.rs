//! Limits of a transfer over time, as bands behind its throughput.

use longhaul_core::advice::{LimitedBy, LimitedSpan};
use longhaul_core::units::seconds;

use crate::chart::{Mark, PALE, Point, Series};
use crate::diagnosis;
use crate::record::Record;

/// Returns a band for each recorded limit, named with its share of the time.
pub(super) fn bands(record: &Record) -> Vec<Series> {
    let timeline = diagnosis::recorded_timeline(record);
    let whole: f64 = timeline.iter().map(length).sum();
    let of = |limit: LimitedBy| -> Vec<&LimitedSpan> {
        timeline.iter().filter(|span| span.limit == limit).collect()
    };
    let band = |(index, limit): (usize, LimitedBy)| {
        let spans = of(limit);
        let time: f64 = spans.iter().map(|span| length(span)).sum();
        let ends = |span: &&LimitedSpan| [seconds::of(span.from), seconds::of(span.to)];
        let points: Vec<Point> = spans.iter().flat_map(ends).map(|x| Point::from((x, 0.0))).collect();
        let percent = time / whole * 100.0;
        let name = if percent < 1.0 { format!("{limit} <1 %") } else { format!("{limit} {percent:.0} %") };
        (!points.is_empty()).then_some(Series { name, colour: PALE + index, mark: Mark::Band, points })
    };
    LimitedBy::ALL.into_iter().enumerate().filter_map(band).collect()
}

fn length(span: &LimitedSpan) -> f64 {
    (span.to - span.from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::event::Event;

    use super::super::test_record::{self, names};
    use super::*;

    #[test]
    fn timeline_stands_behind_the_throughput_of_the_only_record() {
        let mut record = test_record::record(4.0, |at| test_record::moved(at * 1e8));
        let limited = |by, ago| Event::Limited { by, ago: Duration::from_millis(ago) };
        record.events = vec![
            test_record::event(1, limited(LimitedBy::SlowStart, 1000)),
            test_record::event(2, limited(LimitedBy::Loss, 1000)),
            test_record::event(4, limited(LimitedBy::SlowStart, 1000)),
        ];
        let one = super::super::of_records(&[("a".to_owned(), record.clone())]);
        assert_eq!(names(&one.charts[0]), ["slow-start 50 %", "loss 50 %", ""]);
        let xs = |index: usize| -> Vec<f64> {
            one.charts[0].series[index].points.iter().map(|point| point.x).collect()
        };
        assert_eq!((xs(0), xs(1)), (vec![0.0, 1.0, 3.0, 4.0], vec![1.0, 3.0]));
        let page = crate::draw::html(&one);
        assert!(page.contains(r#""mark":"band""#) && page.contains("slow-start 50 %"));
        assert!(crate::draw::svg(&one).contains("#e9e3f5"), "the colour of slow start");
        let two = [("a".to_owned(), record.clone()), ("b".to_owned(), record)];
        assert_eq!(names(&super::super::of_records(&two).charts[0]), ["a", "b"]);
    }
}
