use std::path::Path;

use longhaul_lab::scenario::{RunResult, SetParameter};
use serde_json::json;

use super::*;

const SCENARIO: &str = r#"
    [path]
    [sweep]
    buffer = ["25MB", "50MB", "100MB"]
    writer = ["direct", "mmap"]
    pool = [1, 2]
    [[run]]
    name = "longhaul"
    command = "true"
    sweep = ["buffer", "writer"]
    [[run]]
    name = "other"
    command = "true"
    sweep = ["pool"]
    [[run]]
    name = "curl"
    command = "true"
    sweep = []
    [[plot]]
    title = "Throughput"
    x = "buffer"
    y = ["steady_bps"]
    reference = ["path_rate_bps"]
    [[plot]]
    title = "Who"
    x = "run"
    y = ["steady_bps"]
    [[plot]]
    title = "By writer"
    x = "writer"
    y = ["steady_bps"]
"#;

fn scenario(text: &str) -> Scenario {
    parsed(text, &[])
}

fn parsed(text: &str, set: &[SetParameter]) -> Scenario {
    Scenario::from_text(text, Path::new("small.toml"), set).unwrap()
}

/// Creates the result of an execution with a goodput in Gbit/s.
fn result(name: &str, parameters: &[(&str, &str)], repetition: u32, gbits: f64) -> RunResult {
    let parameters: std::collections::BTreeMap<_, _> = parameters.iter().copied().collect();
    serde_json::from_value(json!({
        "name": name, "parameters": parameters, "repetition": repetition, "seed": 1, "started": 0.0,
        "exit_code": 0, "signal": null, "timed_out": false, "error": null, "wall_s": 1.0, "user_s": 0.0,
        "sys_s": 0.0, "values": { "steady_bps": gbits * 1e9, "path_rate_bps": 1e10 }, "link": null, "infidelities": [],
    }))
    .unwrap()
}

fn results(scenario: &Scenario) -> Results {
    let mut results = Results::new(scenario);
    let at = |buffer, writer| [("buffer", buffer), ("writer", writer)];
    results.runs = vec![
        result("longhaul", &at("100MB", "direct"), 1, 9.0),
        result("longhaul", &at("25MB", "direct"), 1, 2.0),
        result("longhaul", &at("25MB", "direct"), 2, 3.0),
        result("longhaul", &at("25MB", "mmap"), 1, 1.0),
        result("curl", &[], 1, 4.0),
        result("other", &[("pool", "1")], 1, 5.0),
        result("other", &[("pool", "2")], 1, 6.0),
    ];
    results
}

/// Draws a plot of `text`.
fn drawn(text: &str, plot: usize) -> Chart {
    let scenario = scenario(text);
    chart(&scenario, &scenario.evaluation.plots[plot], &results(&scenario).groups())
}

fn points(series: &Series) -> Vec<(f64, f64)> {
    series.points.iter().map(|point| (point.x, point.y / 1e9)).collect()
}

#[test]
fn a_line_for_each_run_and_choice_with_its_spread() {
    let chart = drawn(SCENARIO, 0);
    assert_eq!((chart.x.unit, chart.y.unit), (Unit::Bytes, Unit::BitsPerSecond));
    assert_eq!(chart.x.scale, Scale::Near);
    let drawn: Vec<_> = chart.series.iter().map(|s| (s.name.as_str(), s.mark, points(s))).collect();
    assert_eq!(
        drawn,
        [
            ("curl: steady", Mark::Dashed, vec![(25e6, 4.0), (100e6, 4.0)]),
            ("path rate", Mark::Dashed, vec![(25e6, 10.0), (100e6, 10.0)]),
            ("longhaul writer direct: steady", Mark::Separate, vec![(25e6, 2.5), (100e6, 9.0)]),
            ("longhaul writer mmap: steady", Mark::Separate, vec![(25e6, 1.0)]),
        ]
    );
    assert_eq!(chart.series[1].colour, NEUTRAL, "the limit that all share");
    assert_eq!(chart.series[2].points[0].spread, Some((2e9, 3e9)));
    assert_eq!(chart.series[2].points[1].spread, None);
}

#[test]
fn two_values_of_one_line_have_colours_of_their_own() {
    let (one, both) = (
        "y = [\"steady_bps\"]\n    reference = [\"path_rate_bps\"]",
        "y = [\"steady_bps\", \"path_rate_bps\"]",
    );
    let text = SCENARIO.replace(one, both);
    let chart = drawn(&text, 0);
    let colours: Vec<_> =
        chart.series.iter().filter(|s| s.mark == Mark::Separate).map(|s| s.colour).collect();
    assert!(
        colours.len() > 2 && (1..colours.len()).all(|n| !colours[..n].contains(&colours[n])),
        "{colours:?}"
    );
}

#[test]
fn words_and_runs_stand_side_by_side() {
    let by_run = drawn(SCENARIO, 1);
    assert_eq!(by_run.x.scale, Scale::Names(["longhaul", "other", "curl"].map(str::to_owned).to_vec()));
    let curl = by_run.series.iter().find(|series| points(series) == [(2.0, 4.0)]);
    assert_eq!(curl.map(|series| series.name.as_str()), Some(""));
    let by_writer = drawn(SCENARIO, 2);
    assert_eq!(by_writer.x.scale, Scale::Names(vec!["direct".to_owned(), "mmap".to_owned()]));
    let small = by_writer.series.iter().find(|series| series.name == "longhaul buffer 25MB").unwrap();
    assert_eq!(points(small), [(0.0, 2.5), (1.0, 1.0)]);
}

#[test]
fn plots_of_some_values_or_runs_leave_the_others_out() {
    let text = SCENARIO.replace("reference =", "only = { writer = [\"mmap\"], pool = [2] }\n    reference =");
    let chart = drawn(&text, 0);
    let names = chart.series.iter().map(|series| series.name.as_str());
    let measured: Vec<_> = names.filter(|name| name.ends_with("steady")).collect();
    assert_eq!(measured, ["curl: steady", "longhaul writer mmap: steady"], "whom it does not concern stays");
    let text = SCENARIO.replace("reference =", "only = { run = [\"longhaul\"] }\n    reference =");
    let chart = drawn(&text, 0);
    let measured: Vec<_> =
        chart.series.iter().filter(|s| s.mark == Mark::Separate).map(|s| s.name.as_str()).collect();
    assert_eq!(measured, ["writer direct: steady", "writer mmap: steady"]);
    assert!(!chart.series.iter().any(|series| series.name.contains("curl")), "{:?}", chart.series);
}

#[test]
fn marked_results_are_drawn_where_there_are_no_others() {
    let scenario = scenario(SCENARIO);
    let mut results = results(&scenario);
    let chart_of = |results: &Results| chart(&scenario, &scenario.evaluation.plots[0], &results.groups());
    assert_eq!(chart_of(&results).note, "median of 1 to 2 runs; bars from least to largest");
    // Points of several runs each are joined.
    results.runs.push(result("longhaul", &[("buffer", "100MB"), ("writer", "direct")], 2, 9.0));
    assert!(chart_of(&results).series.iter().any(|series| series.mark == Mark::Measured));
    results.runs.pop();
    let second = results.runs.remove(2);
    assert_eq!(chart_of(&results).note, "one run each");
    results.runs.insert(2, second);
    let late = |result: &mut RunResult| result.path.infidelities.push("late".to_owned());
    // The only result of 100MB, and one of two of 25MB.
    late(&mut results.runs[0]);
    late(&mut results.runs[1]);
    let chart = chart_of(&results);
    let direct = chart.series.iter().find(|series| series.name == "longhaul writer direct: steady").unwrap();
    assert_eq!(points(direct), [(25e6, 3.0), (100e6, 9.0)]);
    assert!(chart.note.ends_with("; 1 of 4 are marked: the path was not held"), "{}", chart.note);
    // Whichever of the values it is that has been measured.
    let text = SCENARIO.replacen("y = [\"steady_bps\"]", "y = [\"goodput_bps\", \"steady_bps\"]", 1);
    let text = text.replacen("reference = [\"path_rate_bps\"]", "", 1);
    let scenario = self::scenario(&text);
    let chart = super::chart(&scenario, &scenario.evaluation.plots[0], &results.groups());
    assert!(chart.note.ends_with("; 1 of 4 are marked: the path was not held"), "{}", chart.note);
}

#[test]
fn published_results_are_rings_at_the_swept_values() {
    let plot = r#"only = { run = ["longhaul"], writer = ["mmap"] }
    words = { steady_bps = "here" }
    published = [{ name = "paper", points = [["100MB", 8e9], ["25MB", 2e9]] }]"#;
    let text = SCENARIO.replace("reference = [\"path_rate_bps\"]", plot);
    let drawn = |set: &[SetParameter]| {
        let scenario = parsed(&text, set);
        let chart = chart(&scenario, &scenario.evaluation.plots[0], &results(&scenario).groups());
        let paper = chart.series.iter().find(|series| series.name == "paper").unwrap().clone();
        assert_eq!(paper.mark, Mark::Rings);
        let others: Vec<_> = chart.series.iter().filter(|series| series.mark != Mark::Rings).collect();
        assert!(
            matches!(others.as_slice(), [only] if only.name == "here" && only.colour != paper.colour),
            "{others:?}"
        );
        points(&paper)
    };
    assert_eq!(drawn(&[]), [(25e6, 2.0), (100e6, 8.0)], "by rising position");
    assert_eq!(drawn(&["buffer=25MB".parse().unwrap()]), [(25e6, 2.0)]);
}

#[test]
fn reference_covers_its_known_points_and_an_empty_plot_is_drawn() {
    let scenario = scenario(SCENARIO);
    let mut results = results(&scenario);
    // The last result of the axis lacks the reference's value.
    results.runs[0].values.remove("path_rate_bps");
    results.runs.retain(|run| run.name == "longhaul");
    let chart = chart(&scenario, &scenario.evaluation.plots[0], &results.groups());
    let limit = chart.series.iter().find(|series| series.name == "path rate").unwrap();
    assert_eq!((points(limit), limit.colour), (vec![(25e6, 10.0)], NEUTRAL));
    let empty = super::chart(&scenario, &scenario.evaluation.plots[0], &Results::new(&scenario).groups());
    assert!(empty.series.is_empty());
}

#[test]
fn axis_follows_the_values_and_the_rules_of_paths() {
    let text = SCENARIO.replace("pool = [1, 2]", "pool = [1, 2]\n\"path.rate\" = [\"100M\", \"200M\"]");
    let text = text.replace("x = \"writer\"", "x = \"path.rate\"");
    let text = text.replace("sweep = [\"pool\"]", "sweep = [\"pool\", \"path.rate\"]");
    let scenario = scenario(&text);
    let x = HorizontalAxis::of(&scenario, &scenario.evaluation.plots[2]);
    assert_eq!((x.axis.unit, x.ends()), (Unit::BitsPerSecond, [1e8, 2e8]));
    assert_eq!(scale(&[65536.0, 16_777_216.0]), Scale::Logarithmic);
    assert_eq!(scale(&[25.0, 150.0]), Scale::Near);
    assert_eq!(scale(&[0.0, 1e9]), Scale::Near, "no logarithm of 0");
}
