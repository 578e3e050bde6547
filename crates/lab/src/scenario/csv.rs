//! `results.csv`: one row per execution (RFC 4180, but with LF as the line end).

use std::collections::BTreeSet;

use super::outcome::TIMES;
use super::results::Results;
use super::sweep::RESERVED_COLUMNS;

/// Formats the table of all executions.
///
/// Columns: the run, the swept parameters, repetition, seed, success, number of infidelities of the
/// path, number of remarks, times, and every value that any execution has.
pub(super) fn text(results: &Results) -> String {
    let parameters: Vec<_> = results.scenario.sweep.iter().map(|p| p.name.as_str()).collect();
    let taken =
        |name: &&str| TIMES.contains(name) || RESERVED_COLUMNS.contains(name) || parameters.contains(name);
    let values: BTreeSet<&str> =
        results.runs.iter().flat_map(|result| result.values.keys()).map(String::as_str).collect();
    let values: Vec<&str> = TIMES.into_iter().chain(values.into_iter().filter(|name| !taken(name))).collect();

    let head = ["run"].into_iter().chain(parameters.iter().copied());
    let head = head.chain(["repetition", "seed", "ok", "marked", "remarks"]).chain(values.iter().copied());
    let mut text = row(head.map(str::to_owned));
    for result in &results.runs {
        let own = |name: &&str| result.parameters.get(*name).cloned().unwrap_or_default();
        let number = |name: &&str| result.value(name).map_or_else(String::new, |value| value.to_string());
        let cells = [result.name.clone()].into_iter().chain(parameters.iter().map(own));
        let cells = cells.chain([
            result.repeat.repetition.to_string(),
            result.repeat.seed.to_string(),
            u8::from(result.succeeded()).to_string(),
            result.path.infidelities.len().to_string(),
            result.remarks.len().to_string(),
        ]);
        text.push_str(&row(cells.chain(values.iter().map(number))));
    }
    text
}

fn row(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| quoted(&cell)).collect();
    cells.join(",") + "\n"
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::results::tests::results;

    #[test]
    fn csv_has_a_row_per_execution_and_a_column_per_value() {
        let expected = [
            "run,options,path.rtt,repetition,seed,ok,marked,remarks,wall_s,user_s,sys_s,cpu_s,goodput_bps",
            "one,\"a, \"\"b\"\"\",10ms,1,1,1,0,0,2,0.5,0.25,0.75,5000000",
            "one,\"a, \"\"b\"\"\",20ms,1,1,0,0,0,,,,,",
            "one,c,10ms,1,1,1,1,0,4,0.5,0.25,0.75,7000000",
            "two,,10ms,1,1,1,0,1,1,0.5,0.25,0.75,",
            "one,\"a, \"\"b\"\"\",10ms,2,1,1,0,0,3,0.5,0.25,0.75,6000000",
        ];
        assert_eq!(text(&results()).lines().collect::<Vec<_>>(), expected);
    }
}
