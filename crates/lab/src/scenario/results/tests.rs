use super::*;
use crate::scenario::Selection;

const SCENARIO: &str = r#"
    repeat = 2
    [path]
    rate = "1Gbit"
    [sweep]
    options = ['a, "b"', "c"]
    "path.rtt" = ["10ms", "20ms"]
    [[run]]
    name = "one"
    command = "true"
    [[run]]
    name = "two"
    command = "true"
    sweep = ["path.rtt"]
    [table]
    columns = ["wall_s", "goodput_bps", "nonsense"]
"#;

fn scenario(text: &str, set: &[&str]) -> Scenario {
    let set: Vec<SetParameter> = set.iter().map(|text| text.parse().unwrap()).collect();
    Scenario::parse(text, Path::new("small.toml"), &set).unwrap()
}

/// Creates results of five executions: one failed, one on a deviating path.
pub(in crate::scenario) fn results() -> Results {
    let scenario = scenario(SCENARIO, &[]);
    let mut results = Results::new(&scenario);
    let plan = scenario.plan(&Selection::default()).unwrap();
    for (name, wall, goodput) in [
        (r#"one options=a, "b" path.rtt=10ms (1)"#, Some(2.0), Some(5e6)),
        (r#"one options=a, "b" path.rtt=20ms (1)"#, None, None),
        ("one options=c path.rtt=10ms (1)", Some(4.0), Some(7e6)),
        ("two path.rtt=10ms (1)", Some(1.0), None),
        (r#"one options=a, "b" path.rtt=10ms (2)"#, Some(3.0), Some(6e6)),
    ] {
        let execution = plan.iter().find(|execution| execution.to_string() == name).unwrap();
        let mut result = RunResult::new(execution, 0.0);
        if let Some(wall) = wall {
            (result.end.exit_code, result.times.wall_s) = (Some(0), wall);
            (result.times.user_s, result.times.sys_s) = (0.5, 0.25);
        }
        result.add_values(goodput.map(|goodput| ("goodput_bps", goodput)));
        if name.contains("options=c") {
            result.path.infidelities.push("late".to_owned());
            result.attempts = 1 + FidelityPolicy::default().retries;
        }
        if name.starts_with("two") {
            result.remarks.push("the record is damaged".to_owned());
        }
        results.put(execution, result);
    }
    results
}

/// Creates results of all executions of a scenario with `size` as its parameter; `values` by run,
/// size and repetition.
pub(in crate::scenario) fn with_values(
    text: &str,
    values: impl Fn(&str, &str, u32) -> Vec<(&'static str, f64)>,
) -> Results {
    let scenario = scenario(text, &[]);
    let mut results = Results::new(&scenario);
    for execution in scenario.plan(&Selection::default()).unwrap() {
        let mut result = RunResult::new(&execution, 0.0);
        let values = values(&execution.run.name, execution.parameters[0].1, execution.repetition);
        result.add_values(values);
        result.end.exit_code = Some(0);
        results.put(&execution, result);
    }
    results
}

fn written(results: &Results) -> (tempfile::TempDir, ResultsDirectory) {
    let directory = tempfile::tempdir().unwrap();
    let output = ResultsDirectory::open(directory.path()).unwrap();
    results.write(&output).unwrap();
    (directory, output)
}

#[test]
fn missing_failed_and_retried_executions_remain() {
    let (directory, _) = written(&results());
    let scenario = scenario(SCENARIO, &[]);
    let mut results = Results::resume(&scenario, directory.path()).unwrap();
    assert_eq!(results.runs, self::results().runs);
    let plan = scenario.plan(&Selection::default()).unwrap();
    let remaining = results.remaining(&plan);
    assert_eq!((plan.len(), remaining.len()), (12, 8));
    let failed = remaining[0].clone();
    assert_eq!(failed.to_string(), r#"one options=a, "b" path.rtt=20ms (1)"#);
    // A deviating execution remains while retries are left.
    for (attempts, retries, is_strict, remaining) in
        [(1, 0, false, 8), (1, 2, false, 9), (2, 2, false, 9), (3, 2, false, 8), (3, 2, true, 9)]
    {
        results.runs.iter_mut().for_each(|run| run.attempts = attempts);
        results.fidelity = FidelityPolicy { retries, is_strict };
        let left = results.remaining(&plan).len();
        assert_eq!(left, remaining, "{attempts} attempts, {:?}", results.fidelity);
    }
    // A result replaces the earlier one of its execution.
    let mut again = RunResult::new(&failed, 1.0);
    again.end.exit_code = Some(0);
    results.put(&failed, again);
    results.fidelity.is_strict = false;
    assert_eq!((results.runs.len(), results.remaining(&plan).len()), (5, 7));
}

#[test]
fn only_equal_measurements_are_resumed() {
    let (directory, _) = written(&results());
    let resume = |text: &str, set: &[&str]| Results::resume(&scenario(text, set), directory.path());
    for (from, to, set) in [
        ("", "# What for\n", None),
        ("repeat = 2", "repeat = 3", None),
        ("", "name = 'other'\n", None),
        ("nonsense", "cpu_s", None),
        ("", "", Some("path.rtt=10ms,20ms")),
    ] {
        assert!(resume(&SCENARIO.replacen(from, to, 1), set.as_slice()).is_ok(), "{to} {set:?}");
    }
    for (from, to, set) in [
        ("1Gbit", "2Gbit", None),
        ("command = \"true\"", "command = \"false\"", None),
        ("repeat = 2", "seeds = [1, 2]", None),
        ("", "", Some("path.rtt=10ms")),
        ("", "", Some("path.queue=1MB")),
    ] {
        let error = resume(&SCENARIO.replace(from, to), set.as_slice()).unwrap_err();
        assert!(error.to_string().contains(" holds results of another scenario"), "{error}");
        assert!(error.to_string().contains("--fresh throws them away, --out chooses"), "{error}");
    }
}

#[test]
fn damaged_and_newer_results_are_refused() {
    let (directory, output) = written(&results());
    let good = fs::read_to_string(output.results()).unwrap();
    let version = |version: &str| good.replace("\"version\": 1", &format!("\"version\": {version}"));
    for (json, expected) in [
        (good[..good.len() / 2].to_owned(), "it is damaged: EOF while parsing"),
        (String::new(), "it is damaged"),
        ("[]".to_owned(), "no results of `longhaul lab run`"),
        (r#"{"scenario": "small", "runs": []}"#.to_owned(), "no results of `longhaul lab run`"),
        (version("2"), "its version is 2, and this program reads up to version 1"),
        (version("\"x\""), "it has no version"),
        (good.replace("\"wall_s\": 2.0", "\"wall_s\": \"x\""), "it is damaged: invalid type"),
    ] {
        fs::write(output.results(), &json).unwrap();
        let error = Results::resume(&scenario(SCENARIO, &[]), directory.path()).unwrap_err();
        assert!(error.to_string().starts_with("cannot go on from "), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(fs::read_to_string(output.results()).unwrap(), json, "it is left as it was");
    }
    // Files of runs are removed only beside results of the lab.
    let runs = directory.path().join("runs");
    draw(&runs, "one-1-client.out mine.txt");
    let fresh = Results::new(&scenario(SCENARIO, &[]));
    for (json, left) in
        [("[]", &["mine.txt", "one-1-client.out"][..]), (&good[..good.len() / 2], &["mine.txt"])]
    {
        fs::write(output.results(), json).unwrap();
        fresh.discard(&output).unwrap();
        assert!(!output.results().exists());
        assert_eq!(listed(&runs), left);
    }
    assert!(Results::resume(&scenario(SCENARIO, &[]), directory.path()).unwrap().runs.is_empty());
}

#[test]
fn a_directory_takes_one_experiment_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let held = ResultsDirectory::open(directory.path()).unwrap();
    let error = ResultsDirectory::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("another `longhaul lab run` writes to "), "{error}");
    drop(held);
    assert!(ResultsDirectory::open(directory.path()).is_ok());
}

#[test]
fn values_without_data_are_named() {
    assert_eq!(results().unknown_values(), ["nonsense"]);
    assert!(Results::new(&scenario(SCENARIO, &[])).unknown_values().is_empty(), "nothing to say yet");
}

const PLOTTED: &str = "[[plot]]\ntitle = 'First'\nx = 'run'\ny = ['wall_s']\n\
    [[plot]]\ntitle = 'Second'\nx = 'run'\ny = ['wall_s']\n";

fn draw(directory: &Path, names: &str) {
    names.split(' ').try_for_each(|name| fs::write(directory.join(name), "")).unwrap();
}

fn listed(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn drawings_of_removed_plots_are_deleted() {
    let (directory, output) = written(&Results::new(&scenario(&format!("{SCENARIO}{PLOTTED}"), &[])));
    draw(directory.path(), "first.svg first.png second.svg plots.html records.html mine.svg");
    let third = PLOTTED.replace("Second", "Third");
    // The drawings of the last run count: Third is one of them.
    for (plots, left) in
        [(third.as_str(), &["first.png", "first.svg", "mine.svg", "plots.html"][..]), ("", &["mine.svg"])]
    {
        let resumed =
            Results::resume(&scenario(&format!("{SCENARIO}{plots}"), &[]), directory.path()).unwrap();
        resumed.write_tables(&output).unwrap();
        let tables = ["results.csv", "results.json", "runs", "summary.md"];
        assert_eq!(listed(directory.path()), [left, &tables].concat());
        draw(directory.path(), "third.svg");
    }
}

#[test]
fn results_of_earlier_versions_are_read() {
    let mut json = serde_json::to_value(&results().runs[2]).unwrap();
    let object = json.as_object_mut().unwrap();
    let infidelities = object.remove("infidelities").unwrap();
    object.insert("warnings".to_owned(), infidelities);
    for name in ["remarks", "said", "on"] {
        object.remove(name).unwrap();
    }
    let mut run: RunResult = serde_json::from_value(json).unwrap();
    assert_eq!((&run, run.path.infidelities.as_slice()), (&results().runs[2], &["late".to_owned()][..]));
    // Earlier names of values.
    run.add_values([("server_retransmits", 3.0), ("background_server_to_client_loss", 0.5)]);
    run.add_values([("background_client_to_server_packets", 7.0)]);
    for (name, value) in [
        ("far_retransmits", Some(3.0)),
        ("background_far_to_near_loss", Some(0.5)),
        ("background_near_to_far_packets", Some(7.0)),
        ("far_rwin_bytes", None),
    ] {
        assert_eq!(run.value(name), value, "{name}");
    }
    // Values written by an earlier version.
    run.values.insert("far_rwin_bytes".to_owned(), 9.0);
    assert_eq!(run.value("far_rwin_bytes"), Some(9.0));
}

#[test]
fn fresh_removes_all_that_was_written() {
    let (directory, output) = written(&Results::new(&scenario(&format!("{SCENARIO}{PLOTTED}"), &[])));
    draw(directory.path(), "first.svg second.png plots.html records.html results.csv mine.svg");
    let logs = "summary.md summary.md.12~ runs/prepare.log runs/cleanup.log runs/one-1-server.log";
    draw(directory.path(), logs);
    // Files of an earlier version.
    draw(directory.path(), "runs/one-1-near.out runs/one-1-near.err runs/one-1-far.log");
    Results::new(&scenario(SCENARIO, &[])).discard(&output).unwrap();
    assert_eq!(listed(directory.path()), ["mine.svg", "runs"]);
    assert!(listed(&directory.path().join("runs")).is_empty());
}

#[test]
fn results_name_conditions_of_measurement() {
    let mut results = results();
    assert_eq!(results.conditions().len(), 1, "all by a version that did not record it");
    let on = Conditions::now();
    results.runs.iter_mut().for_each(|run| run.on = Some(on.clone()));
    assert_eq!(results.differences(), None);
    results.runs[0].on = None;
    let differences = results.differences().unwrap();
    let expected = format!("1 by a version that did not record it; 4 on {on}");
    assert!(differences.contains(&expected), "{differences}");
    assert!(table::page(&results, "").contains(&differences));
}

#[test]
fn the_first_good_record_of_each_configuration_is_found() {
    let mut results = results();
    let (directory, output) = written(&results);
    assert!(results.records(&output).is_empty());
    for name in ["one-a___b_-10ms-1", "one-a___b_-10ms-2", "one-a___b_-20ms-1", "two-10ms-1"] {
        fs::write(directory.path().join(format!("runs/{name}.jsonl")), "").unwrap();
    }
    let names = |results: &Results| {
        let found = results.records(&output).into_iter();
        let file = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        found.map(|(name, path)| (name, file(path))).collect::<Vec<_>>()
    };
    let own = |name: &str, file: &str| (name.to_owned(), file.to_owned());
    let two = own("two 10ms", "two-10ms-1.jsonl");
    assert_eq!(names(&results), [own("one a, \"b\" 10ms", "one-a___b_-10ms-1.jsonl"), two.clone()]);
    results.runs[0].end.exit_code = Some(1);
    assert_eq!(names(&results), [own("one a, \"b\" 10ms", "one-a___b_-10ms-2.jsonl"), two]);
}
