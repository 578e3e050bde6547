//! The summary: a Markdown table with one row per configuration.

use std::fmt::Write;

use super::quantity::{UnitOf, unit_of};
use super::results::Results;
use super::summary::{Group, Spread};

/// A row of the table: a configuration, or its executions on a deviating path.
struct Row<'a> {
    group: &'a Group<'a>,
    is_marked: bool,
}

impl<'a> Row<'a> {
    fn of_groups(groups: &'a [Group<'a>]) -> Vec<Self> {
        let rows = |group: &'a Group<'a>| {
            let marked = (group.marked() > 0).then_some(Self { group, is_marked: true });
            std::iter::once(Self { group, is_marked: false }).chain(marked)
        };
        groups.iter().flat_map(rows).collect()
    }

    fn name(&self) -> String {
        if self.is_marked { format!("{}, marked", self.group.name) } else { self.group.name.to_owned() }
    }

    fn ok(&self) -> String {
        if self.is_marked { self.group.marked().to_string() } else { ok(self.group) }
    }

    fn spread(&self, value: &str) -> Option<Spread> {
        if self.is_marked { self.group.marked_spread(value) } else { self.group.spread(value) }
    }
}

/// Formats the table: run, parameters, successes of executions, and median [minimum..maximum] of
/// each column.
///
/// Executions on a deviating path have a separate row below their configuration.
pub(super) fn markdown(results: &Results) -> String {
    let groups = results.groups();
    let parameters: Vec<_> = results.scenario.sweep.iter().map(|p| p.name.as_str()).collect();
    let rows = Row::of_groups(&groups);
    let mut columns = vec![column("run", rows.iter().map(Row::name))];
    for name in parameters {
        let value = |row: &Row<'_>| cell(row.group.parameter(name).unwrap_or(""));
        columns.push(column(name, rows.iter().map(value)));
    }
    columns.push(column("ok", rows.iter().map(Row::ok)));
    columns.extend(results.scenario.evaluation.columns.iter().map(|name| values(name, &rows)));
    padded(&columns)
}

/// Formats a Markdown table; every row has as many cells as `head`.
pub fn markdown_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |index: usize| rows.iter().map(move |row| row[index].clone());
    let columns: Vec<_> = (0..head.len()).map(|index| column(head[index], cells(index))).collect();
    padded(&columns)
}

/// Formats columns, each with its head, as a Markdown table; cells are padded, so that the source
/// is readable too.
fn padded(columns: &[Vec<String>]) -> String {
    let mut text = String::new();
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0).max(3))
        .collect();
    for row in 0..columns[0].len() {
        for (column, width) in columns.iter().zip(&widths) {
            let _ = write!(text, "| {:width$} ", column[row]);
        }
        text.push_str("|\n");
        if row == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

/// Formats the page around the table: title, date and machine, plots.
pub(super) fn page(results: &Results, table: &str) -> String {
    let scenario = &results.scenario;
    let mut text = format!("# {}\n\n{}\n\n{table}", scenario.name, results.conditions().join("\n\n"));
    text.push_str(
        "\nok: executions that succeeded, of all; marked: on a path that was not the one asked for, and in no other row; \
         remarked: something else was odd, results.json says what. ",
    );
    text.push_str("Values: median [least..largest].\n");
    for plot in &scenario.evaluation.plots {
        let title = plot.title.replace(['[', ']', '\n'], " ");
        let _ = write!(text, "\n![{title}]({}.svg)\n", plot.file_stem);
    }
    text
}

fn column(head: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(head.to_owned()).chain(cells).collect()
}

/// Escapes characters that would end a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn ok(group: &Group<'_>) -> String {
    let counts = format!("{}/{}", group.succeeded(), group.results.len());
    match (group.marked(), group.remarked()) {
        (0, 0) => counts,
        (marked, 0) => format!("{counts} ({marked} marked)"),
        (0, remarked) => format!("{counts} ({remarked} remarked)"),
        (marked, remarked) => format!("{counts} ({marked} marked, {remarked} remarked)"),
    }
}

fn values(name: &str, rows: &[Row<'_>]) -> Vec<String> {
    let spreads: Vec<Option<Spread>> = rows.iter().map(|row| row.spread(name)).collect();
    let largest = spreads.iter().flatten().map(|spread| spread.max.abs()).fold(0.0, f64::max);
    let unit = unit_of(name);
    let (written, size) = unit.for_reading(largest);
    let label = cell(&unit.label_of(name));
    let head = if written.is_empty() { label } else { format!("{label} [{written}]") };
    let digits = digits(largest / size);
    let cells = spreads.iter().map(|spread| match spread {
        None => "-".to_owned(),
        Some(Spread { median, min, max }) => {
            let number = |value: f64| match unit {
                UnitOf::Number => pure(value),
                _ => format!("{:.digits$}", value / size),
            };
            let (median, min, max) = (number(*median), number(*min), number(*max));
            if min == max { median } else { format!("{median} [{min}..{max}]") }
        }
    });
    column(&head, cells)
}

/// Formats a number without unit, a count or a small share, with no more digits than needed.
pub(super) fn pure(value: f64) -> String {
    const MIN_DECIMAL: f64 = 1e-6;
    let size = value.abs();
    if size > 0.0 && size < MIN_DECIMAL {
        return format!("{value:.3e}");
    }
    let small = if size > 0.0 && size < 1.0 { -size.log10().floor() as usize } else { 0 };
    let text = format!("{value:.*}", digits(size) + small);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Returns the number of decimals: about four significant digits of the column's maximum.
fn digits(largest: f64) -> usize {
    match largest {
        largest if largest >= 1000.0 => 0,
        largest if largest >= 100.0 => 1,
        largest if largest >= 10.0 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::results::tests::results;

    #[test]
    fn pure_numbers_keep_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (12_345_678.0, "12345678"),
            (2.5, "2.5"),
            (0.1, "0.1"),
            (0.0046, "0.0046"),
            (0.004_612_345, "0.004612"),
            (0.00001, "0.00001"),
            (-0.25, "-0.25"),
            (0.99999, "1"),
            (1.5e-9, "1.500e-9"),
        ] {
            assert_eq!(pure(value), text);
        }
    }

    #[test]
    fn medians_and_spreads_in_units_that_read_well() {
        let text = markdown(&results());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        let expected = [
            "run | options | path.rtt | ok | wall [s] | goodput [Mbit/s] | nonsense",
            "one | a, \"b\" | 10ms | 2/2 | 2.500 [2.000..3.000] | 5.500 [5.000..6.000] | -",
            "one | a, \"b\" | 20ms | 0/1 | - | - | -",
            "one | c | 10ms | 1/1 (1 marked) | - | - | -",
            "one, marked | c | 10ms | 1 | 4.000 | 7.000 | -",
            "two |  | 10ms | 1/1 (1 remarked) | 1.000 | - | -",
        ];
        for (line, expected) in [lines[0]].iter().chain(&lines[2..]).zip(expected) {
            let cells: Vec<_> = line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
            assert_eq!(cells.join(" | "), expected);
        }
        let width = lines[0].len();
        assert!(lines.iter().all(|line| line.len() == width), "{text}");
    }
}
