//! Notes above the charts of a record: what was moved, where, when, and the result.

use std::time::{Duration, SystemTime};

use longhaul_core::event::{Done, Event, JobEvent};
use longhaul_core::units::seconds;

use crate::chart::Unit;
use crate::diagnosis;
use crate::draw::format_value;
use crate::record::Record;
use crate::record::schema::Side;

use super::burstiness::Burstiness;
use super::curves::receives;
use super::flow::Counter;
use super::values::{goodput, least_rtt, telemetry_share};

/// Maximum characters of a text from a record.
const LONGEST: usize = 200;
/// Maximum characters of a sentence of advice; usual ones have 200.
const LONGEST_ADVICE: usize = 600;
/// Maximum sentences of advice: evidence, remedy and further limits.
const MAX_ADVICE: usize = 4;
/// Maximum warnings per record.
const MAX_WARNINGS: usize = 3;

/// Returns the recorded URL or directory.
pub(super) fn title(record: &Record) -> String {
    match record.header.side {
        Side::Get => short(&record.header.what),
        Side::Put => format!("Sent: {}", short(&record.header.what)),
        Side::Serve => format!("Served: {}", short(&record.header.what)),
    }
}

/// Returns the notes of a single record.
pub(super) fn of_record(record: &Record) -> Vec<String> {
    let mut notes = vec![origin(record), result(record)];
    notes.extend(advice(record));
    notes.push(recording(record));
    let warnings: Vec<String> = record.events.iter().filter_map(warning).collect();
    notes.extend(warnings.iter().take(MAX_WARNINGS).cloned());
    if warnings.len() > MAX_WARNINGS {
        notes.push(format!("... and {} more warnings", warnings.len() - MAX_WARNINGS));
    }
    notes.retain(|note| !note.is_empty());
    notes
}

/// Returns one line about one of several records.
pub(super) fn in_short(name: &str, record: &Record) -> String {
    let result = Some(result(record)).filter(|result| !result.is_empty());
    let parts = [Some(title(record)), date(record.header.started), result, damage(record)];
    format!("{name}: {}", joined(parts))
}

/// Returns host and program.
pub(super) fn place(record: &Record) -> String {
    let header = &record.header;
    let host = &header.host;
    let cores = if host.cores == 1 { "core" } else { "cores" };
    let (program, name, kernel) = (short(&header.program), short(&host.name), short(&host.kernel));
    if host.cores == 0 {
        return program;
    }
    format!("{program} on {name} (Linux {kernel}, {} {cores})", host.cores)
}

fn warning(line: &JobEvent<'_>) -> Option<String> {
    let text = match &*line.event {
        Event::Warning(warning) => short(&warning.to_string()),
        Event::Retrying { stream, reason, .. } => format!("stream {stream} tried again: {}", short(reason)),
        Event::Refused { stream, reason, .. } => format!("stream {stream} was refused: {}", short(reason)),
        _ => return None,
    };
    Some(format!("{}: {text}", format_value(Unit::Seconds, seconds::of(line.at))))
}

/// Returns date and host.
fn origin(record: &Record) -> String {
    joined([date(record.header.started), Some(place(record))])
}

/// Returns the result of the transfer.
fn result(record: &Record) -> String {
    let moved = Counter::moved(record);
    let (failed, limit) = match record.outcome() {
        Some(Event::Error { message, .. }) => (Some(format!("FAILED: {}", short(message))), None),
        Some(Event::Done(done)) => (None, Some(limits(done))),
        _ => (None, None),
    };
    let time = moved.growing().map_or(0.0, |(from, to)| to - from);
    let amount = (moved.total() > 0.0).then(|| {
        format!("{} in {}", format_value(Unit::Bytes, moved.total()), format_value(Unit::Seconds, time))
    });
    let rate = |bps: f64| format_value(Unit::BitsPerSecond, bps);
    let whole = goodput(record, &moved).map(|bps| format!("goodput {}", rate(bps.as_bits_per_sec() as f64)));
    let steady = moved.steady().map(|span| format!("{} at steady speed", rate(moved.rate(span) * 8.0)));
    let rtt = least_rtt(record).map(|rtt| format!("RTT {}", format_value(Unit::Seconds, rtt)));
    let bursts = Burstiness::of(record).and_then(|bursts| bursts.ratio());
    let bursts = bursts.map(|ratio| format!("1 ms peak {ratio:.2} times the mean"));
    let lost = record.samples.last().map(|(_, sample)| {
        let (count, what) = match receives(record) {
            true => (sample.sockets.counters.out_of_order, "packets out of order"),
            false => (sample.sockets.counters.retransmits, "packets sent again"),
        };
        format!("{} {what}", format_value(Unit::Number, count as f64))
    });
    joined([failed, amount, whole, steady, bursts, rtt, limit, lost])
}

/// Returns the limit of a transfer, with the share of each limit if known.
fn limits(done: &Done) -> String {
    let named = done.finding.shares.ranked().into_iter().filter(|(_, share)| *share >= 0.01);
    let shares: Vec<_> = named.map(|(limit, share)| format!("{limit} {:.0} %", share * 100.0)).collect();
    let shares = if shares.is_empty() { String::new() } else { format!(" ({})", shares.join(", ")) };
    format!("limited by {}{shares}", done.finding.limit)
}

/// Returns evidence and remedy of the limit: the transfer's own, or of an interrupted transfer
/// those of its samples.
fn advice(record: &Record) -> Vec<String> {
    let advice = match record.outcome() {
        Some(Event::Done(done)) => done.finding.advice.clone(),
        _ if diagnosis::recorded_timeline(record).is_empty() => Vec::new(),
        _ => diagnosis::of_record(record).map(|found| found.finding.advice).unwrap_or_default(),
    };
    advice.iter().take(MAX_ADVICE).map(|sentence| cut(sentence, LONGEST_ADVICE)).collect()
}

/// Returns how the record was sampled, and what is missing.
fn recording(record: &Record) -> String {
    let samples = format_value(Unit::Number, record.samples.len() as f64);
    let samples =
        Some(format!("{samples} samples, one every {}", format_value(Unit::Seconds, record.header.interval)));
    let cost =
        telemetry_share(record).map(|share| format!("telemetry took {:.2} % of a core", share * 100.0));
    let dropped = record.end.as_ref().map(|end| end.telemetry.dropped).filter(|dropped| *dropped > 0);
    let dropped =
        dropped.map(|dropped| format!("{dropped} lines were dropped: the record's disk was too slow"));
    joined([samples, cost, dropped, damage(record)])
}

fn damage(record: &Record) -> Option<String> {
    record.damage.as_ref().map(|damage| format!("the record is damaged: {damage}"))
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// Returns a text from a record, truncated to a bounded length.
pub(super) fn short(text: &str) -> String {
    cut(text, LONGEST)
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Formats seconds since 1970 as a date; `None` if they are out of range.
pub(super) fn date(started: f64) -> Option<String> {
    /// End of the year 9999.
    const LAST: f64 = 253_402_300_799.0;
    let since_1970 = Duration::try_from_secs_f64(started.min(LAST)).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since_1970).map(httpdate::fmt_http_date)
}

#[cfg(test)]
mod tests {
    use longhaul_core::advice::{Finding, LimitedBy};
    use longhaul_core::event::Warning;
    use longhaul_core::units::Rate;

    use super::*;
    use crate::figures::test_record;
    use crate::record::schema::{End, Telemetry};

    #[test]
    fn notes_hold_object_time_host_rate_and_cost() {
        let mut record = test_record::record(2.0, |at| test_record::moved(at * 1e9));
        let telemetry = Telemetry { samples: 201, dropped: 3, cpu: 0.01 };
        record.end = Some(End { at: 2.0, telemetry, outcome: None });
        record.damage = Some("goes on after its end, in line 9".to_owned());
        let warning = |at| Event::Warning(Warning::Recorded { message: format!("warning {at}") });
        record.events = (0..5).map(|at| test_record::event(at, warning(at))).collect();
        let goodput = Rate::bits_per_sec(8_000_000_000);
        let finding = Finding { limit: LimitedBy::Disk, ..Finding::default() };
        let done = Done { goodput, finding, ..Done::default() };
        record.events.push(test_record::event(2, Event::Done(Box::new(done))));
        let expected = [
            "Sat, 21 Nov 2026 00:00:00 GMT · longhaul 0.1.0 on near (Linux 6.1.0, 2 cores)",
            "2.00 GB in 2.00 s · goodput 8.00 Gbit/s · 8.00 Gbit/s at steady speed · limited by disk · 0 packets out of order",
            "201 samples, one every 10.0 ms · telemetry took 0.50 % of a core · 3 lines were dropped: the \
             record's disk was too slow · the record is damaged: goes on after its end, in line 9",
            "0 s: warning 0",
            "1.00 s: warning 1",
            "2.00 s: warning 2",
            "... and 2 more warnings",
        ];
        assert_eq!(of_record(&record), expected);
    }

    #[test]
    fn evidence_and_cure_follow_the_result_which_may_be_a_failure() {
        let mut record = test_record::record(2.0, |at| test_record::moved(at * 1e9));
        let advice = vec!["limited by the disk: <slow>".to_owned(), "x".repeat(100_000)];
        let finding = Finding { limit: LimitedBy::Disk, advice, ..Finding::default() };
        let done = Done { finding, ..Done::default() };
        record.events = vec![test_record::event(2, Event::Done(Box::new(done)))];
        let notes = of_record(&record);
        assert_eq!(notes[2], "limited by the disk: <slow>");
        assert!(notes[3].len() < 700 && notes[4].contains("samples"), "{notes:?}");
        let page = crate::draw::html(&crate::figures::of_records(&[("a".to_owned(), record.clone())]));
        assert!(page.contains("<p>limited by the disk: &lt;slow&gt;</p>"));
        let limited = Event::Limited { by: LimitedBy::Disk, ago: Duration::from_secs(1) };
        record.events = vec![test_record::event(1, limited)];
        assert!(of_record(&record)[2].contains("samples"), "they show another limit than the transfer found");
        (record.header.started, record.header.what) = (f64::MAX, "é".repeat(100_000));
        assert!(title(&record).len() < 500 && of_record(&record)[0].ends_with(&place(&record)));
        let error = Event::Error { message: "the server is gone".to_owned(), exit_code: 69 };
        record.events = vec![test_record::event(1, error)];
        assert!(of_record(&record)[1].starts_with("FAILED: the server is gone"));
    }
}
