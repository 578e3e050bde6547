//! The words of the program: help, errors with their remedies, reports, and fields of `--json`.
//! Unit tests have those of `probe` (`core::probe::tables`), `doctor`
//! (`cli::commands::doctor::text`) and the fields of all events (`cli::json`).
//!
//! A change of words shows in review: `INSTA_UPDATE=always cargo test -p longhaul --test e2e
//! snapshots::` writes the new ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::lab::ran;
use crate::support::{Ended, File, HttpRequest, Scripted, Server, content, get, put, response};

/// Runs the program in `directory`, which is its home, at a fixed width, without the environment of
/// this machine.
fn run(directory: &Path, args: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(args).current_dir(directory).env_clear().env("HOME", directory).env("COLUMNS", "100");
    ran(command)
}

/// Adds a case and its error to `texts`, without the address of its server.
fn add_error(texts: &mut String, case: &str, ended: &Ended, server: &str) {
    let (scheme, address) = server.split_once("://").unwrap();
    let port = address.rsplit_once(':').unwrap().1;
    let error =
        ended.stderr.replace(server, &format!("{scheme}://HOST")).replace(&format!(":{port}"), ":PORT");
    writeln!(texts, "{case}\n  exit {}: {}", ended.status.code().unwrap(), error.trim()).unwrap();
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
        add_error(&mut texts, &status.replace("\r\n", "; "), &ended, &server.url(""));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn errors_of_uploads() {
    let mut texts = String::new();
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "405 Method Not Allowed",
        "409 Conflict",
        "411 Length Required",
        "413 Content Too Large",
        "423 Locked",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "501 Not Implemented",
        "503 Service Unavailable\r\nRetry-After: 86400",
        "507 Insufficient Storage",
    ] {
        let server = Server::replying(move |request: &HttpRequest| match request.head.starts_with("PUT ") {
            true => response(&format!("{status}\r\nConnection: close"), ""),
            false => response("405 Method Not Allowed", ""),
        });
        let run = put().file("f", "content").args(["--retries", "0", "f", &server.url("/f")]);
        add_error(&mut texts, &status.replace("\r\n", "; "), &run.run(), &server.url(""));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn errors_of_ftp_replies() {
    let mut texts = String::new();
    for (verb, reply) in [
        ("", "421 too many connections"),
        ("PASS", "530 login incorrect"),
        ("TYPE", "500 what"),
        ("RETR", "550 permission denied"),
        ("RETR", "450 busy"),
    ] {
        let features = "211-Extensions\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n211 End";
        let server = Scripted::answering(content(100, 1), [("FEAT", features), (verb, reply)]);
        let ended = get().args(["--retries", "0", "--streams", "1", "-o", "f", &server.url()]).run();
        add_error(&mut texts, format!("{verb} {reply}").trim(), &ended, &format!("ftp://{}", server.address));
    }
    insta::assert_snapshot!(texts);
}

/// What a file, a name or a disk of this host makes impossible, and what is wrong with the bytes.
#[test]
fn errors_of_files() {
    let server = Server::of(File::new(content(100_000, 1)));
    let url = server.url("/f");
    let mut texts = String::new();
    for (line, limit) in [
        ("", ""),
        ("-o directory", ""),
        ("-o f/g", ""),
        ("-o missing/g", ""),
        ("-o /dev/full", ""),
        ("-o linked", ""),
        ("-o -", "exec >/dev/full;"),
        ("-o -", "exec >&-;"),
        ("-o g --max-size 1kB", ""),
        ("-o g --checksum md5:00000000000000000000000000000000", ""),
        ("-o g --checksum-file f", ""),
        ("-o g --load-cookies f", ""),
        ("-o g --cacert f", ""),
        ("-o g --token missing", ""),
        ("-o g --record f/r", ""),
    ] {
        let run = get().file("f", "old").file("directory/f/g", "").args(line.split_whitespace()).args([&url]);
        std::os::unix::fs::symlink("f", run.path("linked.longhaul-part")).unwrap();
        let ended = run.through(&["bash", "-c", &format!("{limit} exec \"$@\""), "bash"]).run();
        add_error(&mut texts, format!("{limit} get {line}").trim(), &ended, &server.url(""));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn errors_of_config_files() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(".config/longhaul/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut texts = String::new();
    for text in [
        "retires = 1",
        "[fetch]",
        "streams = [1, 2]",
        "quiet = 'x'",
        "limit = 5",
        "= 1",
        "[get]\n\nuser = 1979-05-27",
    ] {
        fs::write(&file, text).unwrap();
        let ended = run(home.path(), &["get", "http://127.0.0.1:1/f"]);
        let error = ended.stderr.replace(&*home.path().to_string_lossy(), "HOME");
        writeln!(texts, "{text}\n  exit {}: {error}", ended.status.code().unwrap()).unwrap();
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn errors_of_command_lines() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("exists"), "x").unwrap();
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
        "explain exists",
        "report missing",
        "report exists",
        "report exists -o r.pdf",
        "lab run missing.toml",
        "lab run exists",
        "probe nothing://h",
        "put . http://127.0.0.1:1/f",
        "put exists http://127.0.0.1:1/f",
        "agent status",
        "work missing",
        "plan status missing",
        "plan status exists",
        "slurm status missing",
        "doctor --disk missing",
        "completions fish2",
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
    fs::copy(record, home.path().join("get.jsonl")).unwrap();
    let explained = run(home.path(), &["explain", "get.jsonl"]).ok().stdout;
    insta::assert_snapshot!("explain_record", explained);
    let json: Value =
        serde_json::from_str(&run(home.path(), &["explain", "--json", "get.jsonl"]).ok().stdout).unwrap();
    insta::assert_snapshot!("explain_record_json", serde_json::to_string_pretty(&json).unwrap());
    let reported = run(home.path(), &["report", "--json", "-o", "get.svg", "get.jsonl"]).ok().stdout;
    let numbers: Value = serde_json::from_str(&reported).unwrap();
    insta::assert_snapshot!("report_record_json", serde_json::to_string_pretty(&numbers).unwrap());
    // Titles, notes, axes and legends, without their places.
    let picture = fs::read_to_string(home.path().join("get.svg")).unwrap();
    let texts = picture.lines().filter(|line| line.starts_with("<text ") || line.starts_with("<title>"));
    let texts: Vec<_> = texts.map(|line| line.split(['<', '>']).nth(2).unwrap()).collect();
    insta::assert_snapshot!("report_record", texts.join("\n"));
}

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
