//! Fairness of four sessions with staggered starts behind a DropTail queue: Longhaul's tuner, and APT.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use longhaul_lab::scenario::{RunResult, Scenario, SetParameter, Spread};
use serde::Serialize;

use crate::markdown_table;
use crate::report::Goal;

/// The scenario that runs and measures the sessions, with the paper's intervals.
const SCENARIO: &str = "scenarios/apt-fairness-droptail.toml";
/// The repository in which this program was built.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const FAIRNESS_PATH: &str =
    "100 Mbit/s, RTT 20 ms, queue 100 packets (DropTail), windows of 64 KiB, reno, 4 sessions";
/// The tuners, and their names in the scenario.
const TUNERS: [(&str, &str); 2] = [(OWN, "longhaul"), (APT_METHOD, "longhaul, APT")];
const OWN: &str = "longhaul";
const APT_METHOD: &str = "apt";
const LEAST_JAIN: f64 = 0.95;

/// Results of four sessions of one tuner: rates in bits per second, over the last interval.
#[derive(Debug, Serialize)]
pub(crate) struct FairnessSessions {
    /// The tuner's name in the scenario.
    tuner: String,
    /// Number of the repetition, from 1.
    repetition: u32,
    /// Seconds between the sessions' starts, and length of the measured interval.
    apart_s: String,
    jain: f64,
    sum_bps: f64,
    session_bps: [f64; 4],
    /// Packets that a full queue dropped, over the whole time.
    dropped: f64,
    /// Deviations of the path from its specification; empty without any.
    warnings: Vec<String>,
}

/// Returns the scenario of both tuners' sessions; `is_quick` shortens it.
///
/// # Errors
/// Fails if this repository lacks it.
pub(crate) fn scenario(is_quick: bool) -> Result<Scenario> {
    let set =
        |name: &str, value: &str| SetParameter { name: name.to_owned(), values: vec![value.to_owned()] };
    let quick = if is_quick { vec![set("apart", "3"), set("size", "1GB")] } else { Vec::new() };
    Ok(Scenario::load(&Path::new(ROOT).join(SCENARIO), &quick)?)
}

impl FairnessSessions {
    /// Reads the lab's result of four sessions.
    ///
    /// # Errors
    /// Names a value that is missing.
    pub(crate) fn of(run: &RunResult) -> Result<Self> {
        let value = |name: &str| {
            run.values.get(name).copied().with_context(|| format!("{} has no value {name}", run.name))
        };
        let session = |number| value(&format!("session_{number}_bps"));
        Ok(Self {
            tuner: run.name.clone(),
            repetition: run.repetition,
            apart_s: run.parameters.get("apart").cloned().context("no time between the starts")?,
            jain: value("jain")?,
            sum_bps: value("sum_bps")?,
            session_bps: [session(1)?, session(2)?, session(3)?, session(4)?],
            dropped: value("dropped_queue")?,
            warnings: run.infidelities.clone(),
        })
    }
}

/// Returns the goals, and whether the sessions met them.
pub(crate) fn targets(sessions: &[FairnessSessions]) -> Vec<Goal> {
    let Some(jain) = figure(sessions, OWN, |own| own.jain) else { return Vec::new() };
    let cells = |jain| markdown_table::spread(Some(jain), 3);
    let apt = figure(sessions, APT_METHOD, |apt| apt.jain).map(|apt| format!("; APT {}", cells(apt)));
    vec![Goal::new(
        format!("{FAIRNESS_PATH}: Jain's index at least {LEAST_JAIN} over the last {} s", apart(sessions)),
        format!("{}{}", cells(jain), apt.unwrap_or_default()),
        jain.median >= LEAST_JAIN,
    )]
}

/// Returns the section of the report; empty without runs.
pub(crate) fn section(sessions: &[FairnessSessions]) -> String {
    let row = |&(tuner, name): &(&str, &str)| {
        let mbit = |of: &dyn Fn(&FairnessSessions) -> f64| {
            markdown_table::spread(figure(sessions, tuner, |own| of(own) / 1e6), 1)
        };
        let own: Vec<_> = sessions.iter().filter(|own| own.tuner == tuner).collect();
        let marked = own.iter().filter(|own| !own.warnings.is_empty()).count();
        let mut row =
            vec![name.to_owned(), markdown_table::spread(figure(sessions, tuner, |own| own.jain), 2)];
        row.push(mbit(&|own| own.sum_bps));
        row.extend((0..4).map(|index| mbit(&|own| own.session_bps[index])));
        row.push(markdown_table::spread(figure(sessions, tuner, |own| own.dropped), 0));
        row.push(format!("{} ({marked})", own.len()));
        row
    };
    let ran = |(tuner, _): &&(&str, &str)| sessions.iter().any(|own| own.tuner == *tuner);
    let rows: Vec<_> = TUNERS.iter().filter(ran).map(row).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        let apart = apart(sessions);
        let _ = writeln!(
            text,
            "## {FAIRNESS_PATH}\n\n{}\nBy `longhaul lab run {SCENARIO}`: each session begins {apart} s after the one before; goodput in Mbit/s over \
             the last {apart} s, which begin when the last session has had as long to settle. Medians (least to largest).\n",
            markdown_table::markdown(&FAIRNESS_COLUMNS, &rows)
        );
    }
    text
}

const FAIRNESS_COLUMNS: [&str; 9] = [
    "tuner",
    "Jain's index",
    "all four",
    "session 1",
    "session 2",
    "session 3",
    "session 4",
    "dropped",
    "runs (marked)",
];

/// Returns a figure of the sessions on a faithful path, or of the marked ones if there are no others.
fn figure(
    sessions: &[FairnessSessions],
    tuner: &str,
    of: impl Fn(&FairnessSessions) -> f64,
) -> Option<Spread> {
    let of_tuner = sessions.iter().filter(|own| own.tuner == tuner);
    let (held, marked): (Vec<_>, Vec<_>) = of_tuner.partition(|own| own.warnings.is_empty());
    Spread::of((if held.is_empty() { marked } else { held }).into_iter().map(of))
}

/// Equal in all sessions.
fn apart(sessions: &[FairnessSessions]) -> &str {
    sessions.first().map_or("", |first| &first.apart_s)
}

#[cfg(test)]
mod tests {
    use longhaul_lab::PathSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::bench_run::tests::stored;
    use crate::clients::SMALL_BUFFER;

    /// A run as stored in results.json.
    fn run(name: &str, jain: f64) -> Value {
        let values = json!({
            "jain": jain, "sum_bps": 90e6, "dropped_queue": 7.0, "session_1_bps": 30e6, "session_2_bps": 20e6,
            "session_3_bps": 20e6, "session_4_bps": 20e6,
        });
        stored(name, &json!({ "apart": "100", "size": "6200MB" }), 3, &values)
    }

    fn sessions(runs: &[Value]) -> Vec<FairnessSessions> {
        runs.iter().map(|run| read(run).unwrap()).collect()
    }

    fn read(run: &Value) -> Result<FairnessSessions> {
        FairnessSessions::of(&serde_json::from_value(run.clone()).unwrap())
    }

    #[test]
    fn the_scenarios_results_become_a_target_and_a_table() {
        let runs = [("apt", 0.65), ("longhaul", 0.94), ("longhaul", 0.96), ("longhaul", 0.97)];
        let sessions = sessions(&runs.map(|(name, jain)| run(name, jain)));
        assert!(sessions.iter().all(|own| own.repetition == 3 && own.warnings == ["late"]));
        let rows: Vec<_> = targets(&sessions).iter().map(Goal::row).collect();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert!(row[0].ends_with("at least 0.95 over the last 100 s"), "{row:?}");
        assert_eq!(row[1..], ["0.960 (0.940 to 0.970); APT 0.650", "yes"]);
        let text = section(&sessions);
        let row = "| longhaul, APT | 0.65 | 90.0 | 30.0 | 20.0 | 20.0 | 20.0 | 7 | 1 (1) |";
        assert!(text.contains(row) && text.contains("each session begins 100 s after"), "{text}");
    }

    #[test]
    fn marked_sessions_count_only_where_there_are_no_others() {
        let mut held = run("longhaul", 0.96);
        held["infidelities"] = json!([]);
        let sessions = sessions(&[run("longhaul", 0.5), held]);
        assert_eq!(targets(&sessions)[0].row()[1..], ["0.960", "yes"]);
        assert!(section(&sessions).contains(" | 2 (1) |"), "{}", section(&sessions));
    }

    #[test]
    fn an_uneven_share_misses_the_target() {
        assert_eq!(Goal::measured(&targets(&sessions(&[run("longhaul", 0.949)]))), ["0.949 **no**"]);
        // No sessions of Longhaul's tuner.
        assert!(targets(&sessions(&[run("apt", 0.5)])).is_empty());
        assert!(section(&[]).is_empty());
        // Missing values are named.
        let mut without = run("longhaul", 1.0);
        without["values"].as_object_mut().unwrap().remove("jain");
        assert_eq!(read(&without).unwrap_err().to_string(), "longhaul has no value jain");
    }

    #[test]
    fn scenario_matches_its_description() {
        let scenario = scenario(false).unwrap();
        let PathSpec { rate, rtt, queue, aqm, congestion, .. } = &scenario.path;
        let (rate, queue) = (rate.unwrap(), queue.unwrap());
        let path = format!(
            "{rate}, RTT {rtt}, queue {queue} ({aqm:?}), windows of 64 KiB, {congestion}, 4 sessions"
        );
        assert_eq!(FAIRNESS_PATH, path);
        assert_eq!(scenario.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), [APT_METHOD, OWN]);
        for run in &scenario.runs {
            let parts = [" 4 \"$apart\" longhaul get ", SMALL_BUFFER];
            assert!(parts.iter().all(|part| run.command.contains(part)), "{}", run.command);
        }
        let apart: Vec<_> = scenario.sweep.iter().filter(|own| own.name == "apart").collect();
        assert!(matches!(apart[..], [own] if own.values.len() == 1), "each tuner once: {apart:?}");
    }
}
