//! Longhaul's own scenarios, and their tools.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::Ended;
use crate::support::lab::{Scenario, exec, needs_lab_with, ran, root, scenario_tool};

/// Returns the example of the documentation.
fn documented() -> String {
    let page = fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    page.split("```").nth(1).unwrap().strip_prefix("toml\n").unwrap().to_owned()
}

/// Their transfers must also keep no state: a repetition would start from what the last one found.
#[test]
fn own_scenarios_are_valid_and_keep_no_state() {
    let files = fs::read_dir(root().join("scenarios")).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let mut scenarios: Vec<_> = files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            (Scenario::own(name), fs::read_to_string(&path).unwrap())
        })
        .collect();
    scenarios.push((Scenario::new(&documented()), documented()));
    let mut fetches = 0;
    for (scenario, toml) in scenarios {
        assert!(!scenario.run(&["--list"]).ok().stdout.is_empty());
        let commands = toml.lines().filter(|line| !line.starts_with('#'));
        for fetch in commands.flat_map(|line| line.split("longhaul get ").skip(1)) {
            assert!(fetch.split(' ').any(|word| word == "--no-memory"), "longhaul get {fetch}");
            fetches += 1;
        }
    }
    assert!(fetches > 30, "{fetches}");
}

#[test]
fn short_forms_match_their_scenarios() {
    for (name, args, first, executions) in [
        ("usadafox-table2", "--repeat 1", "longhaul size=8G recv_buffer=25MB", 6),
        ("usadafox-table2", "size=1G recv_buffer=25MB --repeat 1", "longhaul size=1G recv_buffer=25MB", 1),
        ("usadafox-buffers", "size=4G --only direct", "direct size=4G", 1),
        ("icdc-1g-pseudo-lfn", "size=1G pace=off,auto", "longhaul size=1G pace=off", 2),
        (
            "icdc-1g-background",
            "size=1G path.congestion=cubic",
            "longhaul size=1G path.rate=1G path.rtt=302ms path.background=0@0s,20%@8s,50%@16s \
             path.congestion=cubic pace=off",
            2,
        ),
        ("apt-alpha", "size=20MB alpha=2 path.rtt=20ms", "apt size=20MB path.rtt=20ms alpha=2", 2),
        ("apt-delta", "size=20MB delta=1s path.rtt=20ms", "apt size=20MB path.rtt=20ms delta=1s", 2),
        ("apt-n0", "size=20MB n0=4 path.rtt=20ms", "apt size=20MB path.rtt=20ms n0=4", 2),
        ("apt-background", "size=20MB path.background=20M", "apt size=20MB path.background=20M", 2),
        ("apt-fairness-droptail", "apart=3 size=1GB", "apt apart=3 size=1GB", 2),
        ("apt-fairness-red", "apart=3 size=1GB", "apt apart=3 size=1GB", 2),
        ("apt-gridftp-n", "size=20MB n=8 path.rtt=20ms", "fixed size=20MB path.rtt=20ms n=8", 6),
        ("apt-gridftp-evolution", "size=20MB alpha=2 n0=8", "by-alpha size=20MB alpha=2", 6),
        ("apt-gridftp-background", "size=20MB path.background=20M", "apt size=20MB path.background=20M", 3),
        ("apt-gridftp-fairness-droptail", "apart=3 size=1GB", "apt apart=3 size=1GB", 3),
        ("apt-gridftp-fairness-red", "apart=3 size=1GB", "apt apart=3 size=1GB", 3),
        ("icdc-10g", "--only to-disk size=30G", "to-disk size=30G pace=7.4Gbit", 1),
    ] {
        let words =
            args.split(' ').flat_map(|word| word.contains('=').then_some("--set").into_iter().chain([word]));
        let args: Vec<_> = words.chain(["--list"]).collect();
        let listed = Scenario::own(&format!("{name}.toml")).run(&args).ok().stdout;
        assert_eq!(listed.lines().next(), Some(&*format!("{first} (1)")));
        assert_eq!(listed.lines().count(), executions, "{listed}");
    }
}

#[test]
fn both_servers_answer() {
    let Some(()) = needs_lab_with(&["apache2", "nginx", "curl"]) else { return };
    for (kind, directive) in [("apache", "EnableSendfile On"), ("nginx", "sndbuf=400000")] {
        let out = tempfile::tempdir().unwrap();
        let data = scenario_tool(out.path(), &["data"]);
        fs::write(Path::new(&data).join("file"), "what was asked for").unwrap();
        let server = root().join("scenarios/tools/server");
        let server = format!("exec {} {kind} . 80 '{directive}'", server.display());
        let client = "curl --silent --fail --max-time 30 http://$LAB_SERVER/file";
        let mut command = exec(&["--server", &server, "--server-port", "80"], client);
        command.env("LAB_OUT", out.path());
        let ended = ran(command);
        scenario_tool(out.path(), &["source", "remove"]);
        assert_eq!(ended.ok().stdout, "what was asked for", "{kind}");
        assert!(!Path::new(&data).exists());
    }
}

#[test]
fn copies_are_compared_and_what_a_command_used_is_printed() {
    let out = tempfile::tempdir().unwrap();
    let tool = |repetition: &str, words: &[&str]| {
        let mut command = Command::new(root().join("scenarios/tools").join(words[0]));
        command.args(&words[1..]).env("LAB_OUT", out.path()).env("LAB_REPETITION", repetition);
        ran(command)
    };
    let copy = out.path().join("copies/copy");
    let check = |content: &[u8], repetition| {
        tool("1", &["copies", "fresh", "64K"]).ok();
        let data = scenario_tool(out.path(), &["data"]);
        let whole = fs::read(Path::new(&data).join("64K")).unwrap();
        fs::write(&copy, [content, whole.get(content.len()..).unwrap_or(b"")].concat()).unwrap();
        tool(repetition, &["copies", "check", "64K"])
    };
    let checked: Value = serde_json::from_str(&check(b"", "1").ok().stdout).unwrap();
    assert!(checked["flush_s"].as_f64().is_some_and(|seconds| seconds > 0.0) && !copy.exists());
    assert!(!check(b"other", "1").status.success());
    // Only the first copy is read.
    check(b"other", "2").ok();
    let long = check(&[0; 70_000], "2");
    assert!(!long.status.success() && long.stderr.contains("not all have the 65536 bytes"), "{long:?}");
    tool("1", &["copies", "fresh", "64K", "3"]).ok();
    let data = scenario_tool(out.path(), &["data"]);
    for name in 1..=3 {
        fs::copy(format!("{data}/many/{name}"), out.path().join(format!("copies/{name}"))).unwrap();
    }
    tool("1", &["copies", "check", "64K", "3"]).ok();

    let measured =
        tool("1", &["measured", "1M", "sh", "-c", "echo '{\"a\": 1}'; echo why >&2; sleep 0.1"]).ok();
    assert_eq!(measured.stderr, "why");
    let printed: Value = serde_json::from_str(measured.stdout.lines().last().unwrap()).unwrap();
    let value = |name: &str| printed[name].as_f64().unwrap();
    assert!(value("client_wall_s") >= 0.1 && value("max_rss_bytes") > 1e5 && value("minor_faults") > 0.0);
    let bits = value("goodput_bps") * value("client_wall_s");
    assert!((bits / 8.388608e6 - 1.0).abs() < 1e-3 && value("cpu_gib_s") < 1e5, "{printed}");
    assert_eq!(tool("1", &["measured", "1M", "sh", "-c", "exit 3"]).status.code(), Some(3));
    // The second run has the state of the first, and memory.
    let command = r#"echo "$@" >>"$LAB_OUT/words"; mkdir -p "$LAB_OUT/copies"; echo >"$LAB_OUT/copies/a$$""#;
    for turn in ["first", "again"] {
        tool("1", &["again", turn, "1M", "sh", "-c", command, "-", "get", "--no-memory", "--json"]).ok();
    }
    let words = fs::read_to_string(out.path().join("words")).unwrap();
    assert_eq!(words, "get --no-memory --json\nget --json\nget --json\n");
    assert_eq!(
        fs::read_dir(out.path().join("copies")).unwrap().count(),
        1,
        "the first run's copy is removed"
    );
    scenario_tool(out.path(), &["source", "remove"]);
}

#[test]
fn fio_without_its_figure_fails() {
    let toml = fs::read_to_string(root().join("scenarios/no-delay.toml")).unwrap();
    let cleanup = toml.split("'''").find(|text| text.contains("bw_bytes")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let values = |report: &str| {
        fs::create_dir_all(out.path().join("copies")).unwrap();
        fs::write(out.path().join("fio-client.out"), report).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", cleanup]).env("LAB_OUT", out.path());
        let ended = ran({
            shell.env("LAB_RECORD", out.path().join("fio.jsonl"));
            shell
        });
        ended.status.success().then_some(ended.stdout)
    };
    assert_eq!(values(r#"{"jobs": [{"write": {"bw_bytes": 2000}}]}"#).unwrap(), "{\"goodput_bps\":16000}");
    let nothing = r#"{"jobs": [{"write": {"bw_bytes": 0}}]}"#;
    for bad in ["", "{}", r#"{"jobs": []}"#, nothing, "fio: no space left on the device"] {
        assert_eq!(values(bad), None, "{bad}");
    }
}

/// Runs the sessions of a command, half a second apart.
fn sessions(count: &str, command: &str) -> Ended {
    let mut tool = Command::new(root().join("scenarios/tools/sessions"));
    tool.args([count, "0.5", "sh", "-c", command]);
    ran(tool)
}

#[test]
fn sessions_are_compared_over_the_last_of_their_times() {
    // A session has 7 bytes until the last half second of all sessions, which begins 1.5, 1 and 0.5
    // s after its own start; then it receives its number times 8000 bit/s. The command reports a
    // minute at once, so that the speed of the shell loop does not matter.
    let command = r#"at=0; while [ $at -le 600 ]; do
        [ $at -ge $((20 - 5 * {})) ] && received=$((at * 100 * {})) || received=7
        echo "{\"at\":$((at / 10)).$((at % 10)),\"event\":\"progress\",\"received\":$received,\"rtt\":0.1}"
        echo '{"event":"warning"}'; at=$((at + 1)); done; exec sleep 60"#;
    let printed: Value = serde_json::from_str(&sessions("3", command).ok().stdout).unwrap();
    for (name, expected) in [
        ("session_1_bps", 8e3),
        ("session_2_bps", 16e3),
        ("session_3_bps", 24e3),
        ("sum_bps", 48e3),
        // (1 + 2 + 3)^2 / (3 (1 + 4 + 9))
        ("jain", 0.8571),
    ] {
        assert_eq!(printed[name].as_f64(), Some(expected), "{name}: {printed}");
    }
}

#[test]
fn sessions_without_progress_or_with_an_early_end_fail() {
    for (command, expected) in [
        ("echo 'no space left'; exit 3", "no space left"),
        ("exec sleep 60", "session 1 told nothing of its progress"),
    ] {
        let ended = sessions("2", command);
        assert!(!ended.status.success() && ended.stderr.contains(expected), "{ended:?}");
    }
}
