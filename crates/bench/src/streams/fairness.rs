//! Four sessions that begin one after the other behind a DropTail queue, and how evenly they share it: Longhaul's own, and APT's.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use longhaul_lab::scenario::{RunResult, Spread};
use serde::{Deserialize, Serialize};

use crate::markdown_table;
use crate::report::Goal;
use crate::single_run::PROXIES;

/// It runs the sessions, with the paper's intervals, and measures them.
const SCENARIO: &str = "scenarios/apt-fairness-droptail.toml";
/// The repository, where this program was built.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const FAIRNESS_PATH: &str =
    "100 Mbit/s, RTT 20 ms, queue 100 packets (DropTail), windows of 64 KiB, reno, 4 sessions";
/// What the scenario calls the tuners.
const TUNERS: [(&str, &str); 2] = [(OWN, "longhaul"), (APT_METHOD, "longhaul, APT")];
const OWN: &str = "longhaul";
const APT_METHOD: &str = "apt";
const LEAST_JAIN: f64 = 0.95;

/// What four sessions of one tuner gave: rates in bits per second, of the last of their times.
#[derive(Debug, Serialize)]
pub(crate) struct Sessions {
    /// The scenario's name of the tuner.
    tuner: String,
    /// From 1.
    repetition: u32,
    /// The seconds between their starts, which are as many as are measured.
    apart_s: String,
    jain: f64,
    sum_bps: f64,
    session_bps: [f64; 4],
    /// Packets that met a full queue, towards the receiver, over all of the time.
    dropped: f64,
    /// Why the path was not what was asked for; empty where it was.
    warnings: Vec<String>,
}

/// Runs both tuners' sessions once, with `longhaul`; the scenario's results stay in `dir`.
///
/// # Errors
/// Fails where the scenario does; its output says why.
pub(crate) fn run(longhaul: &Path, dir: &Path, repetition: u32, is_quick: bool) -> Result<Vec<Sessions>> {
    let out = dir.join("fairness").join(repetition.to_string());
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut command = Command::new(longhaul);
    command.args(["lab", "run"]).arg(Path::new(ROOT).join(SCENARIO)).arg("--out").arg(&out).arg("--fresh");
    if is_quick {
        command.args(["--set", "apart=3", "--set", "size=1GB"]);
    }
    PROXIES.iter().for_each(|name| {
        command.env_remove(name);
    });
    // The report says what its summary does.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {}", longhaul.display()))?;
    if !status.success() {
        bail!("{SCENARIO}: {status}; what was said is in {}", out.display());
    }
    let results = out.join("results.json");
    let json = fs::read(&results).with_context(|| format!("cannot read {}", results.display()))?;
    read(&json, repetition).with_context(|| format!("cannot read {}", results.display()))
}

fn read(results: &[u8], repetition: u32) -> Result<Vec<Sessions>> {
    #[derive(Deserialize)]
    struct Results {
        runs: Vec<RunResult>,
    }
    let results: Results = serde_json::from_slice(results)?;
    results.runs.iter().map(|run| Sessions::of(run, repetition)).collect()
}

impl Sessions {
    fn of(run: &RunResult, repetition: u32) -> Result<Self> {
        let value = |name: &str| {
            run.values.get(name).copied().with_context(|| format!("{} tells no {name}", run.name))
        };
        let session = |number| value(&format!("session_{number}_bps"));
        Ok(Self {
            tuner: run.name.clone(),
            repetition,
            apart_s: run.parameters.get("apart").cloned().context("no time between the starts")?,
            jain: value("jain")?,
            sum_bps: value("sum_bps")?,
            session_bps: [session(1)?, session(2)?, session(3)?, session(4)?],
            dropped: value("dropped_queue")?,
            warnings: [&run.infidelities[..], &run.remarks].concat(),
        })
    }
}

/// Returns what was asked of them and how it came out.
pub(crate) fn targets(sessions: &[Sessions]) -> Vec<Goal> {
    let Some(jain) = figure(sessions, OWN, |own| own.jain) else { return Vec::new() };
    let told = |jain| markdown_table::spread(Some(jain), 3);
    let apt = figure(sessions, APT_METHOD, |apt| apt.jain).map(|apt| format!("; APT {}", told(apt)));
    vec![Goal::new(
        format!("{FAIRNESS_PATH}: Jain's index at least {LEAST_JAIN} over the last {} s", apart(sessions)),
        format!("{}{}", told(jain), apt.unwrap_or_default()),
        jain.median >= LEAST_JAIN,
    )]
}

/// Returns the section of the report; empty where nothing was run.
pub(crate) fn section(sessions: &[Sessions]) -> String {
    let row = |&(tuner, name): &(&str, &str)| {
        let mbit = |of: &dyn Fn(&Sessions) -> f64| {
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

fn figure(sessions: &[Sessions], tuner: &str, of: impl Fn(&Sessions) -> f64) -> Option<Spread> {
    Spread::of(sessions.iter().filter(|own| own.tuner == tuner).map(of))
}

/// The same in all of them.
fn apart(sessions: &[Sessions]) -> &str {
    sessions.first().map_or("", |first| &first.apart_s)
}

#[cfg(test)]
mod tests {
    use longhaul_lab::PathSpec;
    use longhaul_lab::scenario::Scenario;
    use serde_json::{Value, json};

    use super::*;
    use crate::clients::SMALL_BUFFER;

    /// A run as results.json tells of it.
    fn run(name: &str, jain: f64) -> Value {
        json!({
            "name": name, "parameters": { "apart": "100", "size": "6200MB" }, "repetition": 1, "seed": 1, "started": 0.0,
            "exit_code": 0, "signal": null, "timed_out": false, "error": null, "wall_s": 500.0, "user_s": 0.0, "sys_s": 0.0,
            "link": null, "infidelities": [], "remarks": ["late"],
            "values": {
                "jain": jain, "sum_bps": 90e6, "dropped_queue": 7.0, "session_1_bps": 30e6, "session_2_bps": 20e6,
                "session_3_bps": 20e6, "session_4_bps": 20e6,
            },
        })
    }

    fn sessions(runs: &[Value]) -> Vec<Sessions> {
        read(json!({ "runs": runs, "scenario": "fairness" }).to_string().as_bytes(), 3).unwrap()
    }

    #[test]
    fn the_scenarios_results_become_a_target_and_a_table() {
        let sessions = sessions(&[
            run("apt", 0.65),
            run("longhaul", 0.94),
            run("longhaul", 0.96),
            run("longhaul", 0.97),
        ]);
        assert!(sessions.iter().all(|own| own.repetition == 3 && own.warnings == ["late"]));
        let rows: Vec<_> = targets(&sessions).iter().map(Goal::row).collect();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert!(row[0].ends_with("at least 0.95 over the last 100 s"), "{row:?}");
        assert_eq!(row[1..], ["0.960 (0.940 to 0.970); APT 0.650", "yes"]);
        let text = section(&sessions);
        assert!(
            text.contains("| longhaul, APT | 0.65 | 90.0 | 30.0 | 20.0 | 20.0 | 20.0 | 7 | 1 (1) |"),
            "{text}"
        );
        assert!(text.contains("each session begins 100 s after"), "{text}");
    }

    #[test]
    fn an_uneven_share_misses_the_target() {
        let rows: Vec<_> = targets(&sessions(&[run("longhaul", 0.949)])).iter().map(Goal::row).collect();
        assert_eq!(rows[0][1..], ["0.949", "**no**"]);
        // Nothing of Longhaul's own.
        assert!(targets(&sessions(&[run("apt", 0.5)])).is_empty());
        assert!(section(&[]).is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut without = run("longhaul", 1.0);
        without["values"].as_object_mut().unwrap().remove("jain");
        let error = read(json!({ "runs": [without] }).to_string().as_bytes(), 1).unwrap_err();
        assert_eq!(error.to_string(), "longhaul tells no jain");
        assert!(read(b"{}", 1).is_err() && read(b"", 1).is_err());
    }

    #[test]
    fn the_scenario_is_what_is_told_of_it() {
        let scenario = Scenario::load(&Path::new(ROOT).join(SCENARIO), &[]).unwrap();
        let PathSpec { rate, rtt, queue, aqm, congestion, .. } = &scenario.path;
        let (rate, queue) = (rate.unwrap(), queue.unwrap());
        assert_eq!(
            FAIRNESS_PATH,
            format!(
                "{rate}, RTT {rtt}, queue {queue} ({aqm:?}), windows of 64 KiB, {congestion}, 4 sessions"
            )
        );
        assert_eq!(scenario.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), [APT_METHOD, OWN]);
        for run in &scenario.runs {
            assert!(run.command.contains(" 4 \"$apart\" longhaul get "), "{}", run.command);
            assert!(run.command.contains(&SMALL_BUFFER.join(" ")), "{}", run.command);
        }
        let apart: Vec<_> = scenario.sweep.iter().filter(|own| own.name == "apart").collect();
        assert!(matches!(apart[..], [own] if own.values.len() == 1), "each tuner once: {apart:?}");
    }
}
