//! Charts of a probe: UDP by message size; TCP by number of connections, socket buffer size and
//! congestion control.

use longhaul_core::probe::report::ProbeReport;
use longhaul_core::units::Rate;
use longhaul_scope::chart::{Axis, Chart, Mark, NEUTRAL, Point, Scale, Series, Sheet, Unit};

/// Creates the sheet of a report; omits charts without points.
pub(super) fn sheet(report: &ProbeReport) -> Sheet {
    let bits = |rate: Rate| rate.as_bits_per_sec() as f64;
    let udp = report.udp.iter().map(|row| (row.message.get() as f64, bits(row.payload_bps)));
    let plain = report.tcp.iter().filter(|row| row.is_plain());
    let by_streams = plain.map(|row| (f64::from(row.streams), bits(row.payload_bps)));
    let by_buffer =
        report.tcp.iter().filter_map(|row| Some((row.buffer?.get() as f64, bits(row.payload_bps))));
    let controls = report.tcp.iter().filter_map(|row| Some((row.congestion.clone()?, bits(row.payload_bps))));
    let (names, by_control): (Vec<_>, Vec<_>) = controls.unzip();
    let by_control = (0_u32..).map(f64::from).zip(by_control);
    let charts = [
        ("UDP by size of message", "message", Unit::Bytes, Scale::Linear, udp.collect::<Vec<_>>()),
        ("TCP by number of connections", "connections", Unit::Number, Scale::Linear, by_streams.collect()),
        ("TCP by socket buffer", "buffer", Unit::Bytes, Scale::Logarithmic, by_buffer.collect()),
        (
            "TCP by congestion control",
            "congestion control",
            Unit::Number,
            Scale::Names(names),
            by_control.collect(),
        ),
    ];
    let limit = report.path.rate.map(|found| bits(found.rate_bps));
    let charts = charts.into_iter().filter_map(|(title, label, unit, scale, points)| {
        chart(title, Axis { label: label.to_owned(), unit, scale }, points, limit)
    });
    Sheet {
        title: format!("longhaul probe {}", report.probe.target),
        notes: report.verdict.arithmetic.clone(),
        charts: charts.collect(),
    }
}

fn chart(title: &str, x: Axis, mut points: Vec<(f64, f64)>, limit: Option<f64>) -> Option<Chart> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (first, last) = (points.first()?.0, points.last()?.0);
    let measured = Series {
        name: "payload".to_owned(),
        colour: 0,
        mark: Mark::Measured,
        points: points.into_iter().map(Point::from).collect(),
    };
    let path = limit.map(|rate| Series {
        name: "path".to_owned(),
        colour: NEUTRAL,
        mark: Mark::Dashed,
        points: [(first, rate), (last, rate)].map(Point::from).to_vec(),
    });
    Some(Chart {
        title: title.to_owned(),
        note: String::new(),
        x,
        y: Axis { label: "throughput".to_owned(), unit: Unit::BitsPerSecond, scale: Scale::Linear },
        series: path.into_iter().chain([measured]).collect(),
    })
}
