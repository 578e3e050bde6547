//! The words of the program: help, errors with their remedies, reports, and the shape of `--json`.
//! A change of words shows in review: `INSTA_UPDATE=always cargo test -p longhaul --test e2e
//! snapshots::` writes the new ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::lab::ran;
use crate::support::{Ended, File, Server, content, get, response};

/// Runs the program in `directory`, which is its home, at a fixed width.
fn run(directory: &Path, args: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(args).current_dir(directory).env("HOME", directory).env("COLUMNS", "100");
    ran(command)
}

/// Returns the commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn help() {
    let home = tempfile::tempdir().unwrap();
    let mut waiting = vec![String::new()];
    while let Some(name) = waiting.pop() {
        let words: Vec<_> = name.split_whitespace().chain(["--help"]).collect();
        let help = run(home.path(), &words).ok().stdout;
        waiting.extend(commands(&help).iter().map(|command| format!("{name} {command}")));
        insta::assert_snapshot!(format!("help{}", name.replace(' ', "_")), help);
    }
}

#[test]
fn errors_of_answers() {
    let mut texts = String::new();
    for status in [
        "206 Partial Content",
        "204 No Content",
        "400 Bad Request",
        "401 Unauthorized",
        "401 Unauthorized\r\nWWW-Authenticate: NTLM",
        "403 Forbidden",
        "404 Not Found",
        "407 Proxy Authentication Required",
        "410 Gone",
        "416 Range Not Satisfiable",
        "429 Too Many Requests",
        "451 Unavailable For Legal Reasons",
        "500 Internal Server Error",
        "503 Service Unavailable\r\nRetry-After: 86400",
    ] {
        let server = Server::answering(response(status, ""));
        let ended = get().args(["--retries", "0", "-o", "f", &server.url("/f")]).run();
        let url = server.url("");
        let port = url.rsplit_once(':').unwrap().1;
        let error = ended.stderr.replace(&url, "http://HOST").replace(port, "PORT");
        writeln!(
            texts,
            "{}\n  exit {}: {}",
            status.replace("\r\n", "; "),
            ended.status.code().unwrap(),
            error.trim()
        )
        .unwrap();
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn errors_of_command_lines() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("exists"), "x").unwrap();
    let mut texts = String::new();
    for line in [
        "get",
        "get nothing",
        "get http://",
        "get http://127.0.0.1:1/f",
        "get --streams 0 http://127.0.0.1:1/f",
        "get --limit 5 http://127.0.0.1:1/f",
        "get -o missing/f http://127.0.0.1:1/f",
        "get -i missing",
        "get -r --output - http://127.0.0.1:1/d/",
        "put missing http://127.0.0.1:1/f",
        "put exists",
        "serve missing",
        "serve . --listen nowhere",
        "serve . --writable --listen 127.0.0.1:0",
        "explain missing",
        "report missing",
        "lab run missing.toml",
        "doctor --nothing",
    ] {
        let ended = run(home.path(), &line.split(' ').collect::<Vec<_>>());
        let error = ended.stderr.replace(&*home.path().to_string_lossy(), "HOME");
        writeln!(texts, "longhaul {line}\n  exit {}: {}", ended.status.code().unwrap(), error.trim())
            .unwrap();
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn report_and_explanation_of_a_record() {
    let home = tempfile::tempdir().unwrap();
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/record/get.jsonl");
    std::fs::copy(record, home.path().join("get.jsonl")).unwrap();
    let explained = run(home.path(), &["explain", "get.jsonl"]).ok().stdout;
    insta::assert_snapshot!("explain_record", explained);
    let json: Value =
        serde_json::from_str(&run(home.path(), &["explain", "--json", "get.jsonl"]).ok().stdout).unwrap();
    insta::assert_snapshot!("explain_record_json", serde_json::to_string_pretty(&json).unwrap());
}

/// Of each event that every transfer has, the fields. Those of others depend on when the machine
/// gets round to them.
#[test]
fn json_events() {
    let server = Server::of(File::new(content(100_000, 1)));
    let missing = Server::answering(response("404 Not Found", ""));
    let mut events = BTreeMap::new();
    for url in [server.url("/f"), missing.url("/f")] {
        let ended = get().args(["--json", "--streams", "1", "-o", "f", &url]).run();
        for event in ended.json() {
            let fields: Vec<_> = event.as_object().unwrap().keys().map(String::as_str).collect();
            events.insert(event["event"].as_str().unwrap().to_owned(), fields.join(", "));
        }
    }
    let shown = ["opened", "connected", "done", "error"].map(|event| format!("{event}: {}", events[event]));
    insta::assert_snapshot!(shown.join("\n"));
}
