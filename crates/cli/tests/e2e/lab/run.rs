//! `longhaul lab run`: executions, their results, and repetitions.

use std::fs;

use serde_json::Value;

use crate::support::lab::{Scenario, longhaul_in, needs_lab, processes_with, ran};
use crate::support::{longhaul, program, terminal};

/// A real transfer by the program under test on both hosts, with the path's RTT swept.
const SWEPT: &str = r#"
    name = "by-rtt"
    seeds = [5, 6]
    prepare = "mkdir $LAB_DIR/files && head -c 2000000 /dev/zero > $LAB_DIR/files/zeros"
    cleanup = "rm -r $LAB_DIR/files"
    [path]
    rate = "100Mbit"
    [server]
    command = "exec longhaul serve $LAB_DIR/files --listen $LAB_SERVER:8080"
    port = 8080
    [sweep]
    "path.rtt" = ["2ms", "20ms"]
    streams = [1, 2]
    [[run]]
    name = "longhaul"
    setup = "test ! -e $LAB_OUT/got"
    command = "longhaul get http://$LAB_SERVER:8080/zeros -o $LAB_OUT/got --streams $streams --json --record $LAB_RECORD"
    cleanup = "rm $LAB_OUT/got"
    [[run]]
    name = "curl"
    sweep = ["path.rtt"]
    command = """curl -s -o /dev/null -w '{"goodput_Bps": %{speed_download}}' http://$LAB_SERVER:8080/zeros"""
    [[plot]]
    title = "Goodput by RTT"
    x = "path.rtt"
    y = ["goodput_bps"]
    reference = ["path_rate_bps"]
    [[plot]]
    title = "By streams"
    x = "streams"
    y = ["goodput_bps"]
    [[plot]]
    title = "By run"
    x = "run"
    y = ["wall_s"]
    [table]
    columns = ["goodput_bps", "path_rtt_s"]
"#;

#[test]
fn sweeps_over_real_transfers_and_draws_them() {
    let Some(()) = needs_lab() else { return };
    let scenario = Scenario::new(SWEPT);
    // Only commands that read the config file fail because of it.
    fs::create_dir_all(scenario.path(".config/longhaul")).unwrap();
    fs::write(scenario.path(".config/longhaul/config.toml"), "nonsense = 1\n").unwrap();
    let ended = scenario.run(&[]).ok();
    let runs = scenario.results();
    assert_eq!(runs.len(), (4 + 2) * 2);
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6]);
    for run in &runs {
        let values = &run["values"];
        assert!(values["goodput_bps"].as_f64().is_some_and(|bps| 0.0 < bps && bps < 1e8), "{run}");
        let recorded = values["rtt_s"].as_f64();
        if run["name"] == "longhaul" {
            let asked = values["path_rtt_s"].as_f64().unwrap();
            assert!(recorded.is_some_and(|rtt| rtt >= asked), "a value of the record: {run}");
        }
    }
    let csv = scenario.read("results.csv");
    let columns = "run,path.rtt,streams,repetition,seed,ok,marked,remarks,wall_s,";
    let is_table = csv.starts_with(columns) && csv.contains("\nlonghaul,2ms,1,1,5,1,");
    assert!(is_table && csv.lines().count() == 13, "{csv}");
    let summary = scenario.read("summary.md");
    assert!(summary.contains(" | 20ms     | 2       | 2/2"), "{summary}");
    assert!(summary.contains("goodput [Mbit/s]") && summary.contains("![By run](by-run.svg)"), "{summary}");
    for (file, mark) in [
        ("goodput-by-rtt.svg", "<svg"),
        ("by-streams.svg", "<svg"),
        ("by-run.png", "\u{fffd}PNG"),
        ("plots.html", "<!doctype html"),
        ("records.html", "<!doctype html"),
    ] {
        let content = fs::read(scenario.out(file)).unwrap();
        let content = String::from_utf8_lossy(&content);
        assert!(content.contains(mark), "{file}: {content:.100}");
    }
    assert!(!scenario.path("files").exists() && !scenario.out("got").exists(), "all is cleaned up");
    assert!(ended.stderr.contains("lab: 12/12 longhaul path.rtt=20ms streams=2 (2): "));
}

/// Each failure around an execution is its result, and does not end the others.
#[test]
fn executions_and_failures_around_them_are_recorded() {
    let Some(()) = needs_lab() else { return };
    let scenario = Scenario::new(
        r#"
        [path]
        [[run]]
        name = 'good'
        server = 'sleep 0.3; exec iperf3 --server'
        port = 5201
        command = 'echo $LAB_SERVER; iperf3 -c $LAB_SERVER -n 1M > /dev/null'
        repeat = 2
        [[run]]
        name = 'bad'
        command = 'echo no such host >&2; exit 3'
        [[run]]
        name = 'endless'
        command = 'trap "exit 0" TERM; sleep 60 & wait'
        timeout = '100ms'
        [[run]]
        name = 'no-setup'
        setup = 'echo no room >&2; exit 4'
        command = 'touch $LAB_DIR/ran'
        cleanup = 'touch $LAB_DIR/cleaned'
        [[run]]
        name = 'no-server'
        server = 'echo in use; exit 5'
        port = 80
        command = 'touch $LAB_DIR/ran'
        [[run]]
        name = 'no-cleanup'
        command = 'true'
        cleanup = 'exit 6'
        [[run]]
        name = 'crash'
        server = 'until test -e $LAB_DIR/go; do sleep 0.01; done; echo broken; touch $LAB_DIR/gone; exit 7'
        command = 'touch $LAB_DIR/go; until test -e $LAB_DIR/gone; do sleep 0.01; done; sleep 0.5'
        [[run]]
        name = 'no-record'
        command = 'echo nonsense > $LAB_RECORD'
        # What is measured after the command, such as the time of a sync, is printed by the cleanup.
        [[run]]
        name = 'values'
        setup = """echo '{"never_s": 4}' """
        command = """echo '{"first_s": 1}'; env | grep -i proxy; exit 9"""
        cleanup = """echo '{"first_s": 2, "last_s": 3}'; exit 6"""
        [[run]]
        name = 'silent'
        setup = """echo '{"never_s": 4}' """
        command = 'true'
        cleanup = 'true'
        [table]
        columns = ['wall_s', 'speed_bps']
        "#,
    );
    let mut command = scenario.command(&[]);
    command.env("http_proxy", "http://198.51.100.1");
    let ended = ran(command);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let runs = scenario.results();
    let expected = [
        ("good", 0.into(), ""),
        ("bad", 3.into(), ""),
        ("endless", 0.into(), ""),
        ("no-setup", Value::Null, "the setup command failed: exit status: 4; its output is in "),
        ("no-server", Value::Null, "nothing listens on port 80 of the server host: the server command ended"),
        ("no-cleanup", 0.into(), "the cleanup command failed: exit status: 6"),
        ("crash", 0.into(), "the server command ended early: exit status: 7; its output is in "),
        ("no-record", 0.into(), ""),
        ("values", 9.into(), "the cleanup command failed: exit status: 6"),
        ("silent", 0.into(), ""),
        ("good", 0.into(), ""),
    ];
    assert_eq!(runs.len(), expected.len());
    for (run, (name, code, error)) in runs.iter().zip(expected) {
        assert_eq!((&run["name"], &run["exit_code"]), (&name.into(), &code), "{run}");
        let said = run["error"].as_str().unwrap_or_default();
        assert!(said.contains(error) && said.is_empty() == error.is_empty(), "{run}");
        assert_eq!(run["timed_out"], name == "endless", "{run}");
    }
    assert!(runs[7]["remarks"][0].as_str().unwrap().contains("no-record-1.jsonl"), "{}", runs[7]);
    let values = ["first_s", "last_s", "never_s"].map(|name| runs[8]["values"][name].as_f64());
    assert_eq!(values, [Some(1.0), Some(3.0), None], "{}", runs[8]);
    assert!(runs[9]["values"]["never_s"].is_null(), "{}", runs[9]);
    assert!(!scenario.path("ran").exists() && scenario.path("cleaned").exists());
    assert_eq!(scenario.read("runs/good-2-client.out"), "198.18.0.2\n");
    assert_eq!(scenario.read("runs/no-setup-1-machine.log"), "no room\n");
    assert!(!scenario.read("runs/values-1-client.out").contains("198.51.100.1"), "hosts reach no proxy");
    let file = |name: &str| scenario.real_out("runs").join(name).display().to_string();
    for words in [
        &format!("FAILED with exit status 3; its output is in {}: 'no such host'", file("bad-1-client.err")),
        &format!("its output is in {}: 'in use'", file("no-server-1-server.log")),
        "FAILED with exit status 9; its output is in ",
        "; FAILED: the cleanup command failed: exit status: 6",
        "WARNING: no execution gave 'speed_bps'; there are wall_s, user_s",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let rows = ended.stdout.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let counts: Vec<_> = rows.filter(|cells| cells.len() > 2).map(|cells| (cells[1], cells[2])).collect();
    for (name, count, more) in
        [("good", "2/2", ""), ("endless", "0/1", ""), ("no-record", "1/1", "1 remarked")]
    {
        let is_it = |counted: &str| counted.starts_with(count) && counted.contains(more);
        // A busy machine may not hold the path: "1 marked" may be there, too.
        let is_counted = counts.iter().any(|(run, counted)| *run == name && is_it(counted));
        assert!(is_counted, "{name}: {}", ended.stdout);
    }

    let broken = Scenario::new(
        "prepare = 'echo full; exit 7'\ncleanup = 'touch $LAB_DIR/cleaned'\n[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n",
    );
    let words = ["the prepare command failed: exit status: 7; its output is in ", "runs/prepare.log: 'full'"];
    broken.run(&[]).fails(71, &words);
    assert!(broken.path("cleaned").exists() && broken.results().is_empty());

    // A path that this kernel cannot create.
    let scenario = Scenario::new(
        "[path]\n[sweep]\n'path.congestion' = ['warp', 'cubic']\n[[run]]\nname = 'one'\ncommand = 'true'\n",
    );
    assert_eq!(scenario.run(&[]).status.code(), Some(1));
    let runs = scenario.results();
    assert!(runs[0]["error"].as_str().unwrap().contains("'warp' on the client host"), "{}", runs[0]);
    assert!(runs[1]["error"].is_null() && runs[1]["exit_code"] == 0, "{}", runs[1]);
    assert!(runs[1]["on"]["program"].as_str().unwrap().starts_with("longhaul "), "{}", runs[1]);
}

#[test]
fn invalid_scenarios_and_options_are_refused_and_a_list_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let good = file("good.toml", "[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n");
    let bad = file("bad.toml", "[path]\nloss = 2\n[[run]]\nname = 'one'\ncommand = 'true'\n");
    let absent = dir.path().join("absent.toml");
    let needs = "needs = { sh = 'dash', no-jq = 'jq' }\n[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n";
    let needs = file("needs.toml", &format!("{needs}needs = {{ no-ping = 'iputils-ping' }}\n"));
    let (no_place, missing) = (
        good.join("below-a-file"),
        "no-jq, no-ping, missing on this machine: apt-get install iputils-ping jq",
    );
    for (scenario, out, code, words) in [
        (&bad, dir.path(), 64, "bad.toml"),
        (&absent, dir.path(), 66, "absent.toml"),
        (&good, &*no_place, 73, "below-a-file"),
        // Before anything is made.
        (&needs, &*no_place, 71, missing),
    ] {
        let mut command = longhaul_in(dir.path());
        command.args(["lab", "run"]).arg(scenario).arg("--out").arg(out);
        ran(command).fails(code, &[words]);
    }
    let scenario = Scenario::new(SWEPT);
    for (args, expected) in [
        (["--set", "size=1"], "--set size: there is no such parameter; [sweep] has: path.rtt, streams"),
        (["--set", "size"], "'size' has no '='"),
        (["--set", "path.rtt="], "[sweep] path.rtt: '' is not a time"),
        (["--set", "streams=1,1"], "[sweep] streams: '1' stands there twice"),
        (["--only", "wget"], "--only wget: there is no such run; there are: longhaul, curl"),
        (["--repeat", "0"], "--repeat"),
        (["--repeat", "4000000000"], "and 10000 are the most"),
    ] {
        let ended = scenario.run(&args);
        assert!(ended.status.code() == Some(64) && ended.stderr.contains(expected), "{args:?}: {ended:?}");
    }
    for (args, expected) in [
        (
            "--only curl",
            "curl path.rtt=2ms (1)\ncurl path.rtt=20ms (1)\ncurl path.rtt=2ms (2)\ncurl path.rtt=20ms (2)",
        ),
        (
            "--only longhaul --set path.rtt=1ms --set streams=3,4 --repeat 1 --set path.rate=1Gbit",
            "longhaul path.rtt=1ms streams=3 (1)\nlonghaul path.rtt=1ms streams=4 (1)\n\
             longhaul path.rtt=1ms streams=3 (2)\nlonghaul path.rtt=1ms streams=4 (2)",
        ),
    ] {
        let args: Vec<_> = args.split(' ').chain(["--list"]).collect();
        assert_eq!(scenario.run(&args).ok().stdout, expected);
    }
    assert!(!scenario.path("out").exists());
}

#[test]
fn terminal_shows_progress_of_the_experiment() {
    let Some(()) = needs_lab() else { return };
    let toml = "[path]\n[[run]]\nname = 'slow-98765'\ncommand = 'sleep 0.7'\nrepeat = 2\n";
    let run = longhaul("lab").file("small.toml", toml);
    let line = program("lab run small.toml --out out --retries 0");
    let Some(ended) = terminal(&run, &line, &[], None) else { return };
    let shown = ended.ok().stdout;
    for words in
        ["1/2 slow-98765 (1) · 0 s", "2/2 slow-98765 (2) · 0 s · about ", "lab: 2/2 slow-98765 (2): "]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(processes_with("slow-98765").is_empty());
}

const FLAKY: &str = "[path]\n\
    [[run]]\nname = 'steady'\ncommand = 'true'\nrepeat = 2\n\
    [[run]]\nname = 'flaky'\ncommand = 'test -e $LAB_DIR/now'\n";

#[test]
fn failed_and_missing_executions_are_resumed() {
    let Some(()) = needs_lab() else { return };
    let scenario = Scenario::new(FLAKY);
    assert_eq!(scenario.run(&["--repeat", "1"]).status.code(), Some(1));
    assert_eq!(scenario.executed(), ["steady 1", "flaky 1"]);
    fs::write(scenario.path("now"), "").unwrap();
    let listed = scenario.run(&["--list"]);
    assert_eq!(listed.stdout, "flaky (1)\nsteady (2)");
    // More repetitions and a comment do not change the measurements.
    scenario.rewrite(&format!("# Again\n{FLAKY}"));
    scenario.run(&[]).ok();
    assert_eq!(scenario.executed(), ["steady 1", "flaky 1", "steady 2"]);

    let before = scenario.read("results.json");
    fs::remove_file(scenario.out("summary.md")).unwrap();
    let ended = scenario.run(&[]).ok();
    assert!(ended.stderr.contains("lab: all 3 executions are done already"), "{ended:?}");
    assert_eq!(scenario.read("results.json"), before);
    let summary = scenario.read("summary.md");
    // A busy machine may not hold the path: " (1 marked)" may follow.
    assert!(summary.contains("| steady ") && summary.contains(" | 2/2"), "{summary}");
}

#[test]
fn never_mixes_or_overwrites_other_results() {
    let Some(()) = needs_lab() else { return };
    let scenario = Scenario::new(FLAKY);
    scenario.run(&["--only", "steady"]);
    let good = scenario.read("results.json");
    scenario.rewrite(&FLAKY.replace("'true'", "'exit 0'"));
    scenario.run(&[]).fails(64, &["holds results of another scenario"]);

    let damaged = &good[..good.len() / 2];
    fs::write(scenario.out("results.json"), damaged).unwrap();
    for args in [&["--list"][..], &[]] {
        scenario.run(args).fails(65, &["damaged", "--fresh"]);
    }
    assert_eq!(scenario.read("results.json"), damaged);
    fs::write(scenario.out("results.json"), &good).unwrap();
    assert!(scenario.out("runs/steady-2-client.out").exists());
    scenario.run(&["--fresh", "--only", "steady", "--repeat", "1"]).ok();
    assert_eq!(scenario.executed(), ["steady 1"]);
    assert!(!scenario.out("runs/steady-2-client.out").exists(), "thrown away");
}

/// A path that no machine holds is repeated, excluded from medians, and a failure with --strict. A
/// repetition that fails keeps the earlier result.
#[test]
fn deviating_path_is_repeated_and_excluded_from_medians() {
    let Some(()) = needs_lab() else { return };
    // Fails in later attempts where `fails` exists.
    let scenario = Scenario::new(
        "[path]\ndelay = '1us'\n[[run]]\nname = 'one'\ncommand = 'curl -s http://$LAB_SERVER:9/; echo run >> $LAB_DIR/ran; \
         echo $(wc -l < $LAB_DIR/ran); test ! -e $LAB_DIR/fails || test $(wc -l < $LAB_DIR/ran) = 1'\n",
    );
    scenario.run(&["--retries", "1"]).ok();
    assert_eq!(fs::read_to_string(scenario.path("ran")).unwrap(), "run\n".repeat(2));
    assert_eq!(scenario.results()[0]["attempts"], 2);
    let summary = scenario.read("summary.md");
    let row = |name: &str| summary.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("| one ").contains("1/1 (1 marked) | -"), "{summary}");
    assert!(row("| one, marked").contains("| 1 "), "{summary}");
    // Complete, except with --strict.
    assert!(scenario.run(&[]).stderr.contains("all 1 executions are done already"));
    assert_eq!(scenario.run(&["--strict"]).status.code(), Some(1));

    fs::write(scenario.path("fails"), "").unwrap();
    fs::remove_file(scenario.path("ran")).unwrap();
    scenario.run(&["--fresh", "--retries", "2"]).ok();
    assert_eq!(fs::read_to_string(scenario.path("ran")).unwrap(), "run\n".repeat(3));
    let runs = scenario.results();
    assert!(runs.len() == 1 && runs[0]["exit_code"] == 0 && runs[0]["attempts"] == 3, "{runs:?}");
    assert!(runs[0]["remarks"][0].as_str().unwrap().contains("a repetition for the path's sake failed"));
    assert_eq!(scenario.read("runs/one-1-client.out"), "1\n");
    let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    assert_eq!(fs::read_dir(scenario.out("runs")).unwrap().filter_map(Result::ok).filter(hidden).count(), 0);
}
