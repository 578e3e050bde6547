//! Convergence of a tuner: from when goodput stays near that of the best fixed number.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::scenario::progress::{self, ReportedProgress};
use longhaul_lab::scenario::{RunResult, Spread, markdown_table};
use serde_json::Value;

/// Seconds over which goodput is averaged: TCP's sawtooth and filled gaps are no lack of streams.
const WINDOW: usize = 5;
/// Seconds at the end that are ignored: streams run out of ranges there.
const TAIL: usize = 5;
/// Ratio to the best goodput that counts as near.
const NEAR: f64 = 0.95;

/// Returns the second from which goodput stays near `best`; `None` if it never does.
///
/// `seconds` holds the rate of each whole second since the start. Goodput stays near from the first
/// second after which every [`WINDOW`] of consecutive seconds, except the last [`TAIL`], has a mean
/// of at least [`NEAR`] times `best`.
///
/// The simulated figures (`apt_figures::goodput`) use a longer window, report its end, and include
/// the last seconds: there only the tuner makes a second slow. Here TCP is real, and tuners a few
/// seconds apart must be distinguished: the window is short and its start counts, and a client with
/// few ranges left at the end keeps its number of streams.
fn since(seconds: &[Rate], best: Rate) -> Option<usize> {
    let bits = |rate: &Rate| rate.as_bits_per_sec() as f64;
    let least = NEAR * bits(&best) * WINDOW as f64;
    let seconds = &seconds[..seconds.len().saturating_sub(TAIL)];
    let mut windows = seconds.windows(WINDOW);
    let all = windows.len();
    let is_far = |window: &[Rate]| window.iter().map(bits).sum::<f64>() < least;
    let from = windows.rposition(is_far).map_or(0, |far| far + 1);
    (from < all).then_some(from)
}

/// Returns the table of when each client of `scenarios/streams-paper.toml` had converged, and
/// whether longhaul did before APT.
///
/// # Errors
/// Fails if `results` holds no results, or none of a fixed number of streams.
pub(crate) fn table(results: &Path) -> Result<String> {
    let path = results.join("results.json");
    let json = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut json: Value = serde_json::from_slice(&json)?;
    let mut runs: Vec<RunResult> = serde_json::from_value(json["runs"].take())?;
    runs.retain(RunResult::succeeded);
    let mut names: Vec<_> = runs.iter().map(|run| run.name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    // Marked runs count only where there are no others.
    let spread = |name: &str, of: &dyn Fn(&RunResult) -> Option<f64>| {
        let (marked, held): (Vec<_>, Vec<_>) =
            runs.iter().filter(|run| run.name == name).partition(|run| run.is_marked());
        Spread::of((if held.is_empty() { marked } else { held }).into_iter().filter_map(of))
    };
    let goodput = |name: &String| Some(spread(name, &|run| run.value("goodput_bps"))?.median);
    let fixed = names.iter().filter(|name| name.starts_with("fixed-"));
    let best =
        fixed.filter_map(goodput).max_by(f64::total_cmp).context("no fixed number of streams has run")?;
    let converged = |name: &str| {
        spread(name, &|run| {
            let seconds = by_second(results, run)?;
            Some(
                since(&seconds, Rate::bits_per_sec(best as u64))
                    .map_or(f64::INFINITY, |second| second as f64),
            )
        })
    };
    let row = |name: &String| Some(vec![name.clone(), written(converged(name)?)]);
    let mut text =
        markdown_table(&["client", "converged, s"], &names.iter().filter_map(row).collect::<Vec<_>>());
    if let Some((ours, apt)) = converged("longhaul").zip(converged("apt")) {
        let met = if ours.median < apt.median { "yes" } else { "**no**" };
        text += &format!("\nConverged in fewer seconds than APT: {met}\n");
    }
    Ok(text)
}

/// Returns the rate of each second of a run; `None` without its output.
fn by_second(results: &Path, run: &RunResult) -> Option<Vec<Rate>> {
    let values = run.parameters.values().map(|value| format!("-{value}"));
    let name = format!("{}{}-{}-client.out", run.name, values.collect::<String>(), run.repeat.repetition);
    let samples = ReportedProgress::read(&results.join("runs").join(name)).ok()?.samples;
    let size = samples.iter().map(|sample| sample.received).max().unwrap_or(Bytes::ZERO);
    Some(progress::by_second(&samples, size))
}

/// Formats seconds as "median (minimum to maximum)", or as one value if all are equal.
fn written(Spread { median, min, max }: Spread) -> String {
    let [median, min, max] =
        [median, min, max].map(|s| if s.is_finite() { format!("{s:.0}") } else { "never".to_owned() });
    if min == max { median } else { format!("{median} ({min} to {max})") }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use serde_json::json;

    use super::*;

    /// Stores a run of 100 s with 40 Mbit/s for `slow` seconds, then 80 Mbit/s, in results.json's
    /// form.
    fn stored(directory: &Path, name: &str, repetition: u32, slow: u64, mbit: u64) -> Value {
        let received = |at: u64| (at * 10 - at.min(slow) * 5) * 1_000_000;
        let mut lines = String::new();
        for at in 0..=100 {
            let _ = writeln!(lines, "{{\"event\":\"progress\",\"at\":{at}.0,\"received\":{}}}", received(at));
        }
        fs::write(directory.join(format!("runs/{name}-1-{repetition}-client.out")), lines).unwrap();
        json!({
            "name": name, "parameters": {"size": "1"}, "repetition": repetition, "seed": 1, "started": 0.0,
            "exit_code": 0, "signal": null, "timed_out": false, "error": null, "wall_s": 100.0, "user_s": 0.0,
            "sys_s": 0.0, "link": null, "values": {"goodput_bps": mbit * 1_000_000},
            "infidelities": if repetition == 9 { vec!["late"] } else { vec![] },
        })
    }

    #[test]
    fn clients_are_held_to_the_best_fixed_number_and_longhaul_to_apt() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("runs")).unwrap();
        let run = |name, repetition, slow, mbit| stored(dir.path(), name, repetition, slow, mbit);
        let table = |runs: &[Value]| {
            fs::write(dir.path().join("results.json"), json!({ "runs": runs }).to_string()).unwrap();
            super::table(dir.path()).map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let mut runs = vec![
            run("longhaul", 1, 5, 77),
            run("longhaul", 2, 7, 76),
            run("longhaul", 3, 95, 42),
            run("longhaul", 9, 0, 80),
            run("apt", 1, 30, 68),
        ];
        assert!(table(&runs).is_err(), "no fixed number has run");
        runs.extend([run("fixed-20", 1, 0, 80), run("fixed-32", 1, 40, 60)]);
        let text = table(&runs).unwrap();
        assert!(
            text.contains("| longhaul | 7 (5 to never) | Converged in fewer seconds than APT: yes"),
            "{text}"
        );
        assert!(text.contains("| apt | 30 | | fixed-20 | 0 |"), "{text}");
        runs[4] = run("apt", 1, 7, 76);
        assert!(table(&runs).unwrap().ends_with("than APT: **no**"), "7 s are not fewer than 7");
    }

    #[test]
    fn convergence_begins_where_goodput_stays_near_the_best() {
        // Steps of (duration in seconds, Mbit/s).
        for (steps, expected) in [
            (&[(30, 96)][..], Some(0)),
            (&[(10, 0), (30, 100)], Some(10)),
            // Near the best temporarily, then for good: only the latter counts.
            (&[(3, 10), (20, 100), (6, 60), (30, 100)], Some(29)),
            // One slow second is compensated by its neighbours, two are not.
            (&[(20, 100), (1, 80), (30, 100)], Some(0)),
            (&[(20, 100), (2, 80), (30, 100)], Some(21)),
            // The last seconds are ignored.
            (&[(8, 20), (30, 100), (TAIL, 0)], Some(8)),
            // No lasting rate.
            (&[(60, 94)], None),
            (&[(40, 100), (10, 50)], None),
            // The transfer is too short for a window.
            (&[(WINDOW + TAIL - 1, 100)], None),
            (&[], None),
        ] {
            let steady =
                |&(seconds, mbit): &(usize, u64)| vec![Rate::bits_per_sec(mbit * 1_000_000); seconds];
            let course: Vec<_> = steps.iter().flat_map(steady).collect();
            assert_eq!(since(&course, Rate::bits_per_sec(100_000_000)), expected, "{steps:?}");
        }
    }
}
