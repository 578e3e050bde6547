use std::num::NonZeroU16;
use std::time::Duration;

use longhaul_core::units::Bytes;

use super::*;
use crate::scenario::{Execution, Selection};
use crate::spec::{Hosts, QueueLimit};

const GOOD: &str = r#"
    [path]
    rate = "1Gbit"
    rtt = "20ms"
    queue = "1000p"
    loss = 0.001
    hosts = "tuned"
    congestion = "bbr"
    [server]
    command = "serve"
    port = 80
    [[run]]
    name = "one"
    command = "true"
    repeat = 2
    timeout = "90s"
    [[run]]
    name = "two"
    command = "false"
"#;

const SWEPT: &str = r#"
    name = "swept"
    seeds = [7, 8]
    repeat = 2
    prepare = "make"
    cleanup = "rm"
    [path]
    rate = "1Gbit"
    queue = "1MB"
    [server]
    command = "serve"
    [sweep]
    zeta = ["25MB", "50MB"]
    "path.rtt" = ["100ms", "200ms"]
    alpha = [1, 0.5, true]
    [[run]]
    name = "all"
    command = "true"
    setup = "before"
    cleanup = "after"
    [[run]]
    name = "peer"
    command = "true"
    sweep = ["path.rtt"]
    server = "other"
    port = 8080
    [[plot]]
    title = "Throughput"
    x = "zeta"
    y = ["steady_bps"]
    reference = ["ceiling_bps"]
    [[plot]]
    title = "throughput!"
    x = "run"
    y = ["wall_s"]
    x_label = "who"
    y_label = "until it is done"
    [table]
    columns = ["steady_bps"]
"#;

fn parse(text: &str, set: &[&str]) -> Result<Scenario, String> {
    let set: Vec<SetParameter> = set.iter().map(|text| text.parse().unwrap()).collect();
    Scenario::parse(text, Path::new("dir/file.toml"), &set)
}

fn plan(scenario: &Scenario, only: &[&str], repeat: Option<u32>) -> Result<Vec<String>, String> {
    let only = only.iter().map(|name| (*name).to_owned()).collect();
    let selection = Selection { only, repeat: repeat.and_then(NonZeroU32::new) };
    let plan = scenario.plan(&selection).map_err(|error| error.to_string())?;
    Ok(plan.iter().map(ToString::to_string).collect())
}

#[test]
fn reads_a_scenario_and_alternates_its_runs() {
    let scenario = parse(GOOD, &[]).unwrap();
    assert_eq!(scenario.name, "file");
    assert_eq!(scenario.path.queue, Some(QueueLimit::Packets(1000)));
    assert_eq!((scenario.path.ends.hosts, scenario.path.ends.congestion.as_str()), (Hosts::Tuned, "bbr"));
    assert_eq!(scenario.path.ends.mtu, Bytes::new(1500));
    assert_eq!(scenario.runs[1].server.as_ref().and_then(|server| server.port), NonZeroU16::new(80));
    assert_eq!(scenario.runs[0].timeout, Some(Duration::from_secs(90)));
    assert_eq!(scenario.evaluation.columns, ["wall_s", "cpu_s"]);
    assert_eq!(plan(&scenario, &[], None).unwrap(), ["one (1)", "two (1)", "one (2)"]);
}

#[test]
fn reads_a_sweep_in_its_order() {
    let scenario = parse(SWEPT, &[]).unwrap();
    let names: Vec<_> = scenario.sweep.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["zeta", "path.rtt", "alpha"]);
    assert_eq!(scenario.sweep[2].values, ["1", "0.5", "true"]);
    let other = |port| Some(ScenarioServer { command: "other".to_owned(), port: NonZeroU16::new(port) });
    assert_eq!(scenario.runs[1].server, other(8080));
    assert_eq!(scenario.evaluation.plots[0].y, ["steady_bps", "ceiling_bps"]);
    assert_eq!(
        (scenario.evaluation.plots[0].x_label.as_str(), scenario.evaluation.plots[0].y_label.as_str()),
        ("Zeta", "Steady")
    );
    let stems: Vec<_> = scenario.evaluation.plots.iter().map(|plot| plot.file_stem.as_str()).collect();
    assert_eq!(stems, ["throughput", "throughput-2"]);

    let plan = scenario.plan(&Selection::default()).unwrap();
    assert_eq!(plan.len(), (12 + 2) * 4);
    let first = [
        "all zeta=25MB path.rtt=100ms alpha=1 (1)",
        "peer path.rtt=100ms (1)",
        "all zeta=25MB path.rtt=100ms alpha=0.5 (1)",
        "all zeta=25MB path.rtt=100ms alpha=true (1)",
        "all zeta=25MB path.rtt=200ms alpha=1 (1)",
    ];
    assert_eq!(plan.iter().take(5).map(ToString::to_string).collect::<Vec<_>>(), first);
    let seeds: Vec<_> = plan.iter().filter(|e| e.run.name == "peer").map(|e| e.path.seed).collect();
    assert_eq!(seeds, [7, 7, 8, 8, 7, 7, 8, 8], "a repetition a seed");
    assert_eq!(plan[4].path.rtt, "200ms".parse().unwrap());
    assert_eq!(plan[4].path.rate, scenario.path.rate);

    // A server command without a port uses the common one.
    let text = GOOD.replace("command = \"false\"", "command = \"false\"\nfar = \"other\"");
    assert_eq!(parse(&text, &[]).unwrap().runs[1].server, other(80));
}

#[test]
fn files_have_valid_names_and_never_share_one() {
    let name = Scenario::parse(GOOD, Path::new("dir/my test (2).toml"), &[]).map(|scenario| scenario.name);
    assert_eq!(name, Ok("my_test__2_".to_owned()));
    let values = "zeta = [\"a/b\", \"a b\", \"a\", \"\"]";
    let text = SWEPT.replace("zeta = [\"25MB\", \"50MB\"]", values).replace("\"peer\"", "\"all-a\"");
    let scenario = parse(&text, &[]).unwrap();
    let plan = scenario.plan(&Selection::default()).unwrap();
    let stems: HashSet<_> = plan.iter().map(Execution::stem).collect();
    assert_eq!(stems.len(), plan.len());
    assert!(stems.iter().all(|stem| !stem.contains(['/', ' '])), "{stems:?}");
}

#[test]
fn set_replaces_values() {
    let scenario = parse(SWEPT, &["zeta=1MB", "path.rtt=1ms,2ms", "path.rate=10Mbit"]).unwrap();
    assert_eq!(scenario.sweep[0].values, ["1MB"]);
    assert_eq!(scenario.sweep[1].values, ["1ms", "2ms"]);
    assert_eq!(scenario.path.rate, "10Mbit".parse().ok());
    for (set, expected) in [
        ("path.latency=1", "--set path.latency: there is no such parameter"),
        ("path.rate=1Gbit,2Gbit", "--set path.rate: [sweep] has no 'path.rate', so that it takes one value"),
        ("path.rate=fast", "--set path.rate: 'fast' is not a rate"),
    ] {
        let error = parse(SWEPT, &[set]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// Checks the errors of `text` in which a part has been replaced; `place` begins all of them.
fn assert_refused(text: &str, place: &str, cases: &[(&str, &str, &str)]) {
    for (from, to, expected) in cases {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        let error = parse(&changed, &[]).unwrap_err();
        assert!(error.contains(&format!("{place}{expected}")), "{from} {to}: {error}");
    }
}

#[test]
fn errors_name_problem_and_line() {
    let cases = [
        ("rtt =", "latency =", "unknown field `latency`"),
        ("\"20ms\"", "\"20\"", "line 4"),
        ("\"1Gbit\"", "[]", "line 3"),
        ("\"1Gbit\"", "[]", "expected a string, a number, or true or false"),
        ("\"tuned\"", "\"fast\"", "'fast' is not one of stock, tuned"),
        ("repeat = 2", "repeat = 0", "repeat"),
        ("repeat = 2", "repeat = 20000", "that makes 20001 executions, and 10000 are the most"),
        ("port = 80", "port = 0", "port"),
        ("\"90s\"", "\"soon\"", "'soon' is not a time"),
        ("\"two\"", "\"one\"", "two [[run]]s have the name 'one'"),
        ("\"two\"", "\"../two\"", "'../two' is not made of"),
        ("[path]", "[paths]", "paths"),
        ("[path]", "runs = 3\n[path]", "unknown field `runs`"),
        ("[path]", "seeds = []\n[path]", "seeds is empty"),
        ("[path]", "seeds = [-1]\n[path]", "seeds"),
        ("timeout =", "time =", "unknown field `time`"),
        ("[server]", "[table]\ncolumn = []\n[server]", "unknown field `column`"),
    ];
    assert_refused(GOOD, "", &cases);
    assert_eq!(parse("[path]", &[]).unwrap_err(), "there is no [[run]]");
}

#[test]
fn errors_name_problem_of_sweep_and_plots() {
    const SWEPT_RTT: &str = "sweep = [\"path.rtt\"]";
    const REFERENCE: &str = "reference = [\"ceiling_bps\"]";
    let cases = [
        ("[\"25MB\", \"50MB\"]", "[]", "[sweep] zeta: the list is empty"),
        ("[\"25MB\", \"50MB\"]", "\"25MB\"", "line 13"),
        ("[\"25MB\", \"50MB\"]", "[[1]]", "expected a string, a number, or true or false"),
        ("zeta = [", "Zeta = [", "[sweep] Zeta: a name starts with a small letter"),
        ("alpha", "\"\"", "a name starts with a small letter"),
        ("alpha", "a-b", "a name starts with a small letter"),
        ("alpha", "run", "[sweep] run: results have a column of this name"),
        ("0.5", "\"a\\u0000b\"", "holds a control character"),
        ("alpha", "zeta", "duplicate key"),
        ("alpha", "path_rtt", "[sweep] two parameters are $path_rtt to a command"),
        ("alpha", "\"path.latency\"", "[sweep] path.latency: the path has no 'latency'"),
        ("alpha = [1, 0.5, true]", "\"path.seed\" = [1]", "[sweep] path.seed and seeds both choose"),
        ("\"200ms\"", "\"200\"", "[sweep] path.rtt: '200' is not a time"),
        ("\"200ms\"", "\"2000s\"", "[path] with path.rtt = '2000s' rtt: 2000000 ms is above one minute"),
        (SWEPT_RTT, "sweep = [\"rtt\"]", "[[run]] 'peer': sweep names 'rtt', which [sweep]"),
        (SWEPT_RTT, "sweep = [\"alpha\", \"alpha\"]", "[[run]] 'peer': sweep names 'alpha' twice"),
        ("server = \"other\"", "", "[[run]] 'peer': a port needs a server command of its own"),
        ("setup = \"before\"", "sweep = [\"zeta\"]", "[sweep] alpha: it concerns no [[run]]"),
        (REFERENCE, "published = [{ name = \"paper\", points = [[2e8]] }]", "expected a tuple of size 2"),
        ("x_label", "xlabel", "unknown field `xlabel`"),
        ("name = \"swept\"", "name = \"a b\"", "the name 'a b' is not made of"),
    ];
    assert_refused(SWEPT, "", &cases);
    let of_plots = [
        ("x = \"zeta\"", "x = \"size\"", "x = 'size' is not swept; there are: zeta, path.rtt"),
        ("y = [\"steady_bps\"]", "y = []", "y is empty"),
        (REFERENCE, "only = { size = [1] }", "only has 'size', which is neither 'run' nor in [sweep]"),
        (
            REFERENCE,
            "published = [{ name = \"paper\", points = [[\"26MB\", 2e8]] }]",
            "published 'paper' has a point at '26MB', which is not on the axis: 25MB, 50MB",
        ),
        (
            REFERENCE,
            "published = [{ name = \"paper\", points = [[\"25MB\", nan]] }]",
            "published 'paper' has NaN at '25MB'",
        ),
        ("ceiling_bps", "wall_s", "'steady_bps' and 'wall_s' are of different units"),
    ];
    assert_refused(SWEPT, "[[plot]] 'Throughput': ", &of_plots);
    let many: String = (0..30).map(|n| format!("p{n} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n")).collect();
    let text = format!("[path]\n[sweep]\n{many}\n[[run]]\nname = 'one'\ncommand = 'true'\n");
    let error = parse(&text, &[]).unwrap_err();
    assert!(error.contains("and 10000 are the most"), "excessive sweeps end at once: {error}");
}

#[test]
fn run_overrides_values_of_the_path() {
    let own = |path: &str| format!("{GOOD}path = {path}\n");
    let scenario = parse(&own(r#"{ rate = "20Mbit", loss = 0.01, seed = 9 }"#), &[]).unwrap();
    let plan = scenario.plan(&Selection::default()).unwrap();
    for (execution, loss, seed, rate) in [(&plan[0], 0.001, 1, "1Gbit"), (&plan[1], 0.01, 9, "20Mbit")] {
        let path = scenario.path.clone().with(&format!("loss={loss}; seed={seed}; rate={rate}"));
        assert_eq!(execution.path, path);
    }
    for (path, expected) in [
        (r#"{ latency = "1ms" }"#, "unknown field `latency`"),
        (r#"{ rtt = "5" }"#, "'5' is not a time"),
        ("{ loss = 2 }", "loss: '2' is no share of packets: write 2%"),
        ("7", "a table with values of the path"),
    ] {
        let error = parse(&own(path), &[]).unwrap_err();
        assert!(error.contains(expected), "{path}: {error}");
    }
    let swept = format!("{SWEPT}[[run]]\nname = \"b\"\ncommand = \"true\"\npath = {{ rtt = \"5ms\" }}\n");
    let error = parse(&swept, &[]).unwrap_err();
    assert!(error.contains("[[run]] 'b': its path sets 'rtt', which it sweeps too"), "{error}");
}
