//! Aligns records that overlap in time, such as those of a transfer and its server, on one time
//! axis.

use crate::record::Record;

use super::flow::Span;
use super::notes::{date, short};

/// The time offset of each record on the charts' axis.
#[derive(Debug, PartialEq)]
pub(super) struct Alignment {
    /// The start of each record in seconds after the start of the axis.
    pub(super) begins: Vec<f64>,
    /// How the records were aligned, for the notes of a sheet.
    pub(super) notes: Vec<String>,
}

/// Aligns overlapping records by their hosts' clocks; every other record starts at zero.
pub(super) fn align(records: &[(String, Record)]) -> Alignment {
    let started = |index: &usize| records[*index].1.header.started;
    let names = |members: &[usize]| {
        let names: Vec<&str> = members.iter().map(|index| records[*index].0.as_str()).collect();
        short(&names.join(", "))
    };
    let mut begins = vec![0.0; records.len()];
    let mut notes = Vec::new();
    let mut alone: Vec<usize> = (0..records.len()).collect();
    for members in overlapping(records) {
        let Some(start) = members.iter().map(started).min_by(f64::total_cmp) else { continue };
        members.iter().for_each(|index| begins[*index] = started(index) - start);
        alone.retain(|index| !members.contains(index));
        let when = date(start).map(|date| format!(" ({date})")).unwrap_or_default();
        notes.push(format!(
            "Ran at the same time, by their hosts' clocks: {}; time counts from the start of the first{when}",
            names(&members)
        ));
    }
    if !alone.is_empty() {
        notes.push(format!("Ran at another time: {}; time counts from the start of each", names(&alone)));
    }
    Alignment { begins, notes }
}

/// Returns groups of at least two records; each overlaps another of its group.
fn overlapping(records: &[(String, Record)]) -> Vec<Vec<usize>> {
    let of_record = |(index, (_, record)): (usize, &(String, Record))| Some((span(record)?, index));
    let mut spans: Vec<(Span, usize)> = records.iter().enumerate().filter_map(of_record).collect();
    spans.sort_by(|(a, _), (b, _)| a.0.total_cmp(&b.0));
    let mut groups: Vec<(f64, Vec<usize>)> = Vec::new();
    for ((from, to), index) in spans {
        match groups.last_mut() {
            Some((end, members)) if from < *end => {
                *end = end.max(to);
                members.push(index);
            }
            _ => groups.push((to, vec![index])),
        }
    }
    let mut groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, members)| members).collect();
    groups.retain(|members| members.len() > 1);
    groups.iter_mut().for_each(|members| members.sort_unstable());
    groups
}

/// Returns the time span of a record's samples, in seconds since 1970.
fn span(record: &Record) -> Option<Span> {
    let (from, to) = (record.samples.first()?.0, record.samples.last()?.0);
    Some((record.header.started + from, record.header.started + to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::test_record;
    use crate::record::schema::Sample;

    fn records(of: &[(f64, f64)]) -> Vec<(String, Record)> {
        let record = |(index, (started, seconds)): (usize, &(f64, f64))| {
            let mut record = test_record::record(*seconds, |_| Sample::default());
            record.header.started = *started;
            (format!("r{index}"), record)
        };
        of.iter().enumerate().map(record).collect()
    }

    fn begins(of: &[(f64, f64)]) -> Vec<f64> {
        align(&records(of)).begins
    }

    #[test]
    fn overlapping_records_share_one_axis() {
        assert_eq!(begins(&[(105.0, 10.0), (100.0, 20.0)]), [5.0, 0.0]);
        // One server, two consecutive transfers, and a record of another day.
        assert_eq!(begins(&[(100.0, 60.0), (105.0, 10.0), (130.0, 10.0), (1e6, 9.0)]), [0.0, 5.0, 30.0, 0.0]);
        assert_eq!(begins(&[(100.0, 5.0), (200.0, 5.0)]), [0.0, 0.0]);
        assert_eq!(begins(&[(100.0, 5.0), (105.0, 5.0)]), [0.0, 0.0], "one right after the other");
        assert_eq!(begins(&[(200.0, 5.0), (202.0, 9.0), (100.0, 5.0), (101.0, 1.0)]), [0.0, 2.0, 0.0, 1.0]);
        assert_eq!(begins(&[]), [0.0; 0]);
    }

    #[test]
    fn notes_name_aligned_records() {
        let notes = align(&records(&[(1_795_219_205.0, 9.0), (1_795_219_200.0, 9.0), (7.0, 9.0)])).notes;
        let together = "Ran at the same time, by their hosts' clocks: r0, r1; time counts from the start of the first \
                        (Sat, 21 Nov 2026 00:00:00 GMT)";
        assert_eq!(notes, [together, "Ran at another time: r2; time counts from the start of each"]);
    }
}
