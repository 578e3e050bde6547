//! `longhaul lab run`: executions, and their results.

use std::fs;
use std::process::Command;

use crate::lab::command::{exec, longhaul, processes_with, skip, skipped, text};
use crate::lab::scenario::Scenario;

#[test]
fn exit_code_depends_on_the_kind_of_failure() {
    if skipped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let good = write("good.toml", "[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n");
    let bad = write("bad.toml", "[path]\nloss = 2\n[[run]]\nname = 'one'\ncommand = 'true'\n");
    let absent = dir.path().join("absent.toml");
    for (scenario, out, code) in
        [(&bad, dir.path(), 64), (&absent, dir.path(), 66), (&good, &good.join("below-a-file"), 73)]
    {
        let mut command = longhaul(dir.path());
        let output = command.args(["lab", "run"]).arg(scenario).arg("--out").arg(out).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
    let unknown = exec(&["--congestion", "warp"], "true").output().unwrap();
    assert_eq!(unknown.status.code(), Some(71), "{}", text(&unknown.stderr));
}

#[test]
fn runs_a_scenario() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\nrate = '100Mbit'\nrtt = '2ms'\n\
         [server]\ncommand = 'sleep 0.3; exec iperf3 --server'\nport = 5201\n\
         [[run]]\nname = 'good'\ncommand = 'echo $LAB_SERVER; iperf3 -c $LAB_SERVER -n 1M > /dev/null'\nrepeat = 2\n\
         [[run]]\nname = 'bad'\ncommand = 'echo no such host >&2; exit 3'\n\
         [[run]]\nname = 'endless'\ncommand = 'trap \"exit 0\" TERM; sleep 60 & wait'\ntimeout = '100ms'\n",
    );
    let output = scenario.run(&[]);
    assert_eq!(output.status.code(), Some(1), "one run failed: {}", text(&output.stderr));
    let log = scenario.real_out("runs/bad-1-client.err");
    let why = format!("FAILED with exit status 3; its output is in {}: 'no such host'", log.display());
    assert!(text(&output.stderr).contains(&why), "{}", text(&output.stderr));
    let summary = text(&output.stdout);
    let counted = |name: &str, ok: &str| {
        let row = summary.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        row.filter(|cells| cells.len() > 2).any(|cells| cells[1] == name && cells[2].starts_with(ok))
    };
    assert!(counted("good", "2/2") && counted("endless", "0/1"), "{summary}");
    let runs = scenario.results();
    let order: Vec<_> = runs.iter().map(|run| (run["name"].as_str().unwrap(), &run["exit_code"])).collect();
    assert_eq!(order, [("good", &0.into()), ("bad", &3.into()), ("endless", &0.into()), ("good", &0.into())]);
    assert_eq!(runs.iter().map(|run| &run["timed_out"]).filter(|over| **over == true).count(), 1);
    assert_eq!(scenario.read("runs/good-2-client.out"), "198.18.0.2\n");
}

/// What is measured after the command, such as the time of a sync, is printed by the cleanup.
#[test]
fn values_come_from_command_and_cleanup() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\n\
         [[run]]\nname = 'one'\ncommand = '''echo '{\"first_s\": 1}'; env | grep -i proxy; exit 9'''\n\
         setup = '''echo '{\"never_s\": 4}' '''\ncleanup = '''echo '{\"first_s\": 2, \"last_s\": 3}'; exit 6'''\n\
         [[run]]\nname = 'silent'\ncommand = 'true'\nsetup = '''echo '{\"never_s\": 4}' '''\ncleanup = 'true'\n",
    );
    let output = scenario.command(&[]).env("http_proxy", "http://198.51.100.1").output().unwrap();
    let [run, silent] = &scenario.results()[..] else { panic!("{output:?}") };
    let values = ["first_s", "last_s", "never_s"].map(|name| run["values"][name].as_f64());
    assert_eq!(values, [Some(1.0), Some(3.0), None], "{run}");
    assert!(silent["values"]["never_s"].is_null() && silent["exit_code"] == 0, "{silent}");
    // Hosts reach no proxy.
    assert!(!scenario.read("runs/one-1-client.out").contains("198.51.100.1"));
    let printed = text(&output.stderr);
    assert!(printed.contains("FAILED with exit status 9; its output is in "), "{printed}");
    assert!(printed.contains("; FAILED: the cleanup command failed: exit status: 6"), "{printed}");
}

#[test]
fn results_show_background_traffic() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\nrate = '50Mbit'\nrtt = '10ms'\nack_compression = '1ms'\n\
         [server]\ncommand = 'exec iperf3 --server'\nport = 5201\n\
         [sweep]\n'path.background' = ['0', '0@0s,40%@500ms']\n'path.cross_flows' = [0, '1@100ms..']\n\
         [[run]]\nname = 'one'\ncommand = 'iperf3 -c $LAB_SERVER -R -t 1.5 > /dev/null'\n",
    );
    let output = scenario.run(&["--set", "path.background=0,0 40%@500ms"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let runs = scenario.results();
    assert_eq!(runs.len(), 4);
    for run in &runs {
        let (background, flows) =
            (&run["parameters"]["path.background"], &run["parameters"]["path.cross_flows"]);
        let value = |name: &str| run["values"][name].as_f64();
        let packets = value("background_server_to_client_packets");
        // 20 Mbit/s are 1667 packets per second, for one second.
        assert_eq!(packets.is_some_and(|packets| packets > 1000.0), background != "0", "{packets:?}, {run}");
        let lost = value("background_server_to_client_loss");
        assert_eq!(lost.is_some_and(|share| (0.0..1.0).contains(&share)), background != "0", "{lost:?}");
        let goodput = value("cross_goodput_bps");
        assert_eq!(goodput.is_some_and(|goodput| goodput > 1e6), flows != "0", "{goodput:?}, {run}");
    }
}

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
    if skipped() {
        return;
    }
    let scenario = Scenario::new(SWEPT);
    // Only commands that read the config file fail because of it.
    fs::create_dir_all(scenario.path(".config/longhaul")).unwrap();
    fs::write(scenario.path(".config/longhaul/config.toml"), "nonsense = 1\n").unwrap();
    let output = scenario.run(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let runs = scenario.results();
    assert_eq!(runs.len(), (4 + 2) * 2);
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6]);
    for run in &runs {
        let values = &run["values"];
        assert!(values["goodput_bps"].as_f64().is_some_and(|bps| (1e5..1e8).contains(&bps)), "{run}");
        let recorded = values["rtt_s"].as_f64();
        if run["name"] == "longhaul" {
            let asked = values["path_rtt_s"].as_f64().unwrap();
            assert!(recorded.is_some_and(|rtt| rtt >= asked), "a value of the record: {run}");
        }
    }
    let csv = scenario.read("results.csv");
    let mut lines = csv.lines();
    assert!(
        lines.next().unwrap().starts_with("run,path.rtt,streams,repetition,seed,ok,marked,remarks,wall_s,")
    );
    assert!(lines.next().unwrap().starts_with("longhaul,2ms,1,1,5,1,"), "{csv}");
    assert_eq!(lines.count(), 11);
    let summary = scenario.read("summary.md");
    assert!(summary.contains(" | 20ms     | 2       | 2/2"), "{summary}");
    assert!(summary.contains("goodput [Mbit/s]") && summary.contains("![By run](by-run.svg)"), "{summary}");
    for (file, beginning) in [
        ("goodput-by-rtt.svg", "<svg"),
        ("by-streams.svg", "<svg"),
        ("by-run.png", "\u{fffd}PNG"),
        ("plots.html", "<!doctype html"),
        ("records.html", "<!doctype html"),
    ] {
        let content = String::from_utf8_lossy(&fs::read(scenario.out(file)).unwrap()).into_owned();
        let begins = content.to_lowercase().starts_with(&beginning.to_lowercase());
        assert!(begins || content.contains(beginning), "{file}: {content:.100}");
    }
    assert!(!scenario.path("files").exists() && !scenario.out("got").exists(), "all is cleaned up");
    assert!(text(&output.stderr).contains("lab: 12/12 longhaul path.rtt=20ms streams=2 (2): "));
}

#[test]
fn lists_what_would_run_and_touches_nothing() {
    let scenario = Scenario::new(SWEPT);
    for (args, expected) in [
        (
            &["--only", "curl"][..],
            "curl path.rtt=2ms (1)\ncurl path.rtt=20ms (1)\ncurl path.rtt=2ms (2)\ncurl path.rtt=20ms (2)",
        ),
        (
            &[
                "--only",
                "longhaul",
                "--set",
                "path.rtt=1ms",
                "--set",
                "streams=3,4",
                "--repeat",
                "1",
                "--set",
                "path.rate=1Gbit",
            ],
            "longhaul path.rtt=1ms streams=3 (1)\nlonghaul path.rtt=1ms streams=4 (1)\nlonghaul path.rtt=1ms streams=3 (2)\nlonghaul path.rtt=1ms streams=4 (2)",
        ),
    ] {
        let output = scenario.run(&[&["--list"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), expected);
    }
    assert!(!scenario.path("out").exists());
}

#[test]
fn errors_explain_invalid_options() {
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
        let output = scenario.run(&args);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(64) && error.contains(expected), "{:?}: {error}", output.status);
    }
    assert!(!scenario.path("out").exists());
}

/// A failure around one execution is its result, and does not end the others.
#[test]
fn failures_around_a_command_are_recorded_without_stopping() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\n\
         [[run]]\nname = 'no-setup'\nsetup = 'echo no room >&2; exit 4'\ncommand = 'touch $LAB_DIR/ran'\n\
         cleanup = 'touch $LAB_DIR/cleaned'\n\
         [[run]]\nname = 'no-server'\nserver = 'echo in use; exit 5'\nport = 80\ncommand = 'touch $LAB_DIR/ran'\n\
         [[run]]\nname = 'no-cleanup'\ncommand = 'true'\ncleanup = 'exit 6'\n\
         [[run]]\nname = 'crash'\nserver = 'until test -e $LAB_DIR/go; do sleep 0.01; done; echo broken; exit 7'\n\
         command = 'touch $LAB_DIR/go; sleep 0.5'\n\
         [[run]]\nname = 'no-record'\ncommand = 'echo nonsense > $LAB_RECORD'\n\
         [[run]]\nname = 'good'\ncommand = 'true'\n\
         [table]\ncolumns = ['wall_s', 'speed_bps']\n",
    );
    let output = scenario.run(&[]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let log = scenario.real_out("runs/no-server-1-server.log");
    assert!(printed.contains(&format!("its output is in {}: 'in use'", log.display())), "{printed}");
    let runs = scenario.results();
    for (run, expected) in runs.iter().zip([
        Some("the setup command failed: exit status: 4; its output is in "),
        Some("nothing listens on port 80 of the server host: the server command ended"),
        Some("the cleanup command failed: exit status: 6"),
        Some("the server command ended early: exit status: 7; its output is in "),
        None,
        None,
    ]) {
        match expected {
            Some(expected) => assert!(run["error"].as_str().unwrap().contains(expected), "{run}"),
            None => assert!(run["error"].is_null() && run["exit_code"] == 0, "{run}"),
        }
    }
    assert!(runs[4]["remarks"][0].as_str().unwrap().contains("no-record-1.jsonl"), "{}", runs[4]);
    assert!(!scenario.path("ran").exists() && scenario.path("cleaned").exists());
    assert_eq!(scenario.read("runs/no-setup-1-machine.log"), "no room\n");
    assert!(
        printed.contains("WARNING: no execution gave 'speed_bps'; there are wall_s, user_s"),
        "{printed}"
    );
    let summary = text(&output.stdout);
    assert!(summary.contains("| no-record  | 1/1 (1 remarked) |"), "{summary}");

    let broken = Scenario::new(
        "prepare = 'echo full; exit 7'\ncleanup = 'touch $LAB_DIR/cleaned'\n[path]\n[[run]]\nname = 'one'\ncommand = 'true'\n",
    );
    let output = broken.run(&[]);
    assert_eq!(output.status.code(), Some(71));
    let why = text(&output.stderr);
    assert!(why.contains("the prepare command failed: exit status: 7; its output is in "), "{why}");
    assert!(why.contains("runs/prepare.log: 'full'"), "{why}");
    assert!(broken.path("cleaned").exists() && broken.results().is_empty());
}

/// A path that this kernel cannot create fails the executions that need it, and not the others.
#[test]
fn impossible_lab_fails_only_its_executions() {
    if skipped() {
        return;
    }
    let scenario = Scenario::new(
        "[path]\n[sweep]\n'path.congestion' = ['warp', 'cubic']\n[[run]]\nname = 'one'\ncommand = 'true'\n",
    );
    let output = scenario.run(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let runs = scenario.results();
    assert!(runs[0]["error"].as_str().unwrap().contains("'warp' on the client host"), "{}", runs[0]);
    assert!(runs[1]["error"].is_null() && runs[1]["exit_code"] == 0, "{}", runs[1]);
    assert!(runs[1]["on"]["program"].as_str().unwrap().starts_with("longhaul "), "{}", runs[1]);
}

#[test]
fn terminal_shows_progress_of_the_experiment() {
    if skipped() {
        return;
    }
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script is missing");
    }
    let scenario = Scenario::new("[path]\n[[run]]\nname = 'slow-98765'\ncommand = 'sleep 0.7'\nrepeat = 2\n");
    let program = env!("CARGO_BIN_EXE_longhaul");
    let (toml, out) = (scenario.path("small.toml"), scenario.path("out"));
    let line = format!("{program} lab run {} --out {}", toml.display(), out.display());
    let output = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("1/2 slow-98765 (1) · 0 s"), "{shown}");
    assert!(shown.contains("2/2 slow-98765 (2) · 0 s · about 0 s left"), "{shown}");
    assert!(shown.contains("lab: 2/2 slow-98765 (2): 0.7"), "{shown}");
    assert!(processes_with("slow-98765").is_empty());
}
