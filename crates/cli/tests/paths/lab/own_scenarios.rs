//! Longhaul's own scenarios, and their tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::command::{SLOW, exec, skip, skipped, text};
use crate::lab::scenario::Scenario;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn own_scenario(name: &str) -> Scenario {
    Scenario::at(&root().join("scenarios").join(name))
}

/// Returns whether servers cannot run as in Longhaul's scenarios; a missing program is a failure under CI.
pub(crate) fn skipped_servers(programs: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: stock servers need root");
        return true;
    }
    for program in programs {
        let found =
            Command::new("sh").args(["-c", &format!("PATH=$PATH:/usr/sbin command -v {program}")]).output();
        if !found.unwrap().status.success() {
            skip(&format!("{program} is missing"));
            return true;
        }
    }
    skipped()
}

/// Runs a tool of the scenarios on the results in `out`.
fn tool(out: &Path, words: &[&str]) -> String {
    let mut command = Command::new(root().join("scenarios/tools").join(words[0]));
    let output = command.args(&words[1..]).env("LAB_OUT", out).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the paths of all scenarios.
fn files() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("scenarios")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    assert!(files.len() >= 2);
    files
}

/// Returns the example of the documentation.
fn shown() -> String {
    let page = fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    page.split("```").nth(1).unwrap().strip_prefix("toml\n").unwrap().to_owned()
}

#[test]
fn own_scenarios_are_valid() {
    let mut scenarios: Vec<Scenario> = files().iter().map(|path| Scenario::at(path)).collect();
    scenarios.push(Scenario::new(&shown()));
    for scenario in scenarios {
        let output = scenario.run(&["--list"]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{}", text(&output.stderr));
    }
}

#[test]
fn runs_of_own_scenarios_store_no_state() {
    let scenarios = files().into_iter().map(|path| fs::read_to_string(path).unwrap()).chain([shown()]);
    let mut fetches = 0;
    for toml in scenarios {
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
        ("usadafox-table2.toml", &["--repeat", "1"][..], "longhaul size=8G recv_buffer=25MB (1)", 6),
        (
            "usadafox-table2.toml",
            &["--set", "size=1G", "--set", "recv_buffer=25MB", "--repeat", "1"],
            "longhaul size=1G recv_buffer=25MB (1)",
            1,
        ),
        ("usadafox-buffers.toml", &["--set", "size=4G", "--only", "direct"], "direct size=4G (1)", 1),
        (
            "icdc-1g-pseudo-lfn.toml",
            &["--set", "size=1G", "--set", "pace=off,auto"],
            "longhaul size=1G pace=off (1)",
            2,
        ),
        (
            "icdc-1g-background.toml",
            &["--set", "size=1G", "--set", "path.congestion=cubic"],
            "longhaul size=1G path.rate=1G path.rtt=302ms path.background=0@0s,20%@8s,50%@16s \
             path.congestion=cubic pace=off (1)",
            2,
        ),
        (
            "apt-alpha.toml",
            &["--set", "size=20MB", "--set", "alpha=2", "--set", "path.rtt=20ms"],
            "apt size=20MB path.rtt=20ms alpha=2 (1)",
            2,
        ),
        (
            "apt-delta.toml",
            &["--set", "size=20MB", "--set", "delta=1s", "--set", "path.rtt=20ms"],
            "apt size=20MB path.rtt=20ms delta=1s (1)",
            2,
        ),
        (
            "apt-n0.toml",
            &["--set", "size=20MB", "--set", "n0=4", "--set", "path.rtt=20ms"],
            "apt size=20MB path.rtt=20ms n0=4 (1)",
            2,
        ),
        (
            "apt-background.toml",
            &["--set", "size=20MB", "--set", "path.background=20M"],
            "apt size=20MB path.background=20M (1)",
            2,
        ),
        (
            "apt-fairness-droptail.toml",
            &["--set", "apart=3", "--set", "size=1GB"],
            "apt apart=3 size=1GB (1)",
            2,
        ),
        ("apt-fairness-red.toml", &["--set", "apart=3", "--set", "size=1GB"], "apt apart=3 size=1GB (1)", 2),
        (
            "apt-gridftp-n.toml",
            &["--set", "size=20MB", "--set", "n=8", "--set", "path.rtt=20ms"],
            "fixed size=20MB path.rtt=20ms n=8 (1)",
            6,
        ),
        (
            "apt-gridftp-evolution.toml",
            &["--set", "size=20MB", "--set", "alpha=2", "--set", "n0=8"],
            "by-alpha size=20MB alpha=2 (1)",
            6,
        ),
        (
            "apt-gridftp-background.toml",
            &["--set", "size=20MB", "--set", "path.background=20M"],
            "apt size=20MB path.background=20M (1)",
            3,
        ),
        (
            "apt-gridftp-fairness-droptail.toml",
            &["--set", "apart=3", "--set", "size=1GB"],
            "apt apart=3 size=1GB (1)",
            3,
        ),
        (
            "apt-gridftp-fairness-red.toml",
            &["--set", "apart=3", "--set", "size=1GB"],
            "apt apart=3 size=1GB (1)",
            3,
        ),
        (
            "icdc-10g.toml",
            &["--only", "to-disk", "--set", "size=30G"],
            "to-disk size=30G pace=7.4Gbit (1)",
            1,
        ),
    ] {
        let output = own_scenario(name).run(&[&["--list"], args].concat());
        let listed = text(&output.stdout);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        assert_eq!((listed.lines().next(), listed.lines().count()), (Some(first), executions), "{listed}");
    }
}

/// The whole reproduction with a small file: source, Apache, transfer, record, table and figures.
#[test]
fn table_2_runs_in_small() {
    if skipped_servers(&["apache2", "openssl"]) {
        return;
    }
    let scenario = own_scenario("usadafox-table2.toml");
    let output = scenario.run(&[
        "--set",
        "size=64M",
        "--set",
        "recv_buffer=4MB",
        "--set",
        "path.rate=1Gbit",
        "--repeat",
        "1",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let runs = scenario.results();
    assert_eq!(runs.len(), 1);
    let value =
        |name: &str| runs[0]["values"][name].as_f64().unwrap_or_else(|| panic!("{name}: {}", runs[0]));
    assert!((1e6..2e7).contains(&value("rwin_bytes")), "{}", runs[0]);
    let of_ceiling = value("steady_bps") / value("ceiling_bps");
    assert!((0.5..1.2).contains(&of_ceiling), "{of_ceiling}: {}", runs[0]);
    for file in
        ["goodput-by-socket-buffer.svg", "receive-window-by-socket-buffer.png", "records.html", "summary.md"]
    {
        assert!(scenario.out(file).metadata().unwrap().len() > 0, "{file}");
    }
    assert!(!scenario.out("file").exists(), "the copy is removed");
    assert!(!data_of(&scenario).exists(), "and the source");
}

#[test]
fn the_buffers_are_drawn_in_small() {
    if skipped_servers(&["apache2", "tc"]) {
        return;
    }
    let scenario = own_scenario("usadafox-buffers.toml");
    let output = scenario.run(&["--set", "size=64M", "--only", "direct"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let runs = scenario.results();
    let peak = runs[0]["values"]["app_peak_bytes"].as_f64();
    assert!(runs.len() == 1 && peak.is_some_and(|bytes| bytes > 0.0), "{runs:?}");
    assert!(scenario.read("records.html").contains("Application buffer in use"));
    assert!(!data_of(&scenario).exists(), "nothing stays mounted");
}

/// Returns the data directory: the command that prints it also creates it, so removes an empty one.
pub(crate) fn data_of(scenario: &Scenario) -> PathBuf {
    let out = scenario.real_out(".");
    let data = PathBuf::from(tool(&out, &["data"]));
    // Fails if the directory has content, which is then older.
    let _ = fs::remove_dir(&data);
    data
}

#[test]
fn both_servers_answer() {
    if skipped_servers(&["apache2", "nginx", "curl"]) {
        return;
    }
    for (kind, directive) in [("apache", "EnableSendfile On"), ("nginx", "sndbuf=400000")] {
        let out = tempfile::tempdir().unwrap();
        let data = tool(out.path(), &["data"]);
        fs::write(Path::new(&data).join("file"), "what was asked for").unwrap();
        let server = root().join("scenarios/tools/server");
        let server = format!("exec {} {kind} . 80 '{directive}'", server.display());
        let options = [&SLOW[..], &["--server", &server, "--server-port", "80"]].concat();
        let mut command = exec(&options, "curl --silent --fail --max-time 5 http://$LAB_SERVER/file");
        let output = command.env("LAB_OUT", out.path()).output().unwrap();
        tool(out.path(), &["source", "remove"]);
        assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "what was asked for", "{kind}");
        assert!(!Path::new(&data).exists());
    }
}
