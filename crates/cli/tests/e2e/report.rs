//! `longhaul report` as a process.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::running::Running;

/// Two seconds of a transfer at 8 Mbit/s, complete or truncated.
fn record(whole: bool) -> String {
    let mut lines = vec![
        r#"{"record":"longhaul","version":1,"side":"get","what":"http://server/big <file>","program":"longhaul 0.1.0","started":1795219200.0,"interval":0.01,"host":{"name":"near","kernel":"6.1.0","cores":2}}"#
            .to_owned(),
    ];
    for at in 0..200 {
        lines.push(format!(
            r#"{{"at":{},"event":"sample","moved":{},"sockets":{{"open":1,"unread":{},"retransmits":0,"out_of_order":0,"acked":0}},"streams":[]}}"#,
            f64::from(at) / 100.0,
            at * 10_000,
            at * 7 % 100
        ));
    }
    if whole {
        let outcome = r#"{"event":"done","goodput_bps":8000000,"limited_by":"disk"}"#;
        let telemetry = r#"{"samples":200,"dropped":0,"cpu":0.001}"#;
        lines.push(format!(r#"{{"at":2.0,"event":"end","outcome":{outcome},"telemetry":{telemetry}}}"#));
    } else {
        lines.push(r#"{"at":2.0,"event":"sam"#.to_owned());
    }
    let text = lines.join("\n");
    if whole { text + "\n" } else { text }
}

fn report(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("report").args(args).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.jsonl"), record(true)).unwrap();
    directory
}

/// Checks that the command fails with `code` and `words`, prints no file name, and leaves the record unchanged.
fn fails(directory: &Path, args: &[&str], code: i32, words: &[&str]) {
    let Output { status, stdout, stderr } = report(directory, args);
    let message = text(&stderr);
    assert_eq!(status.code(), Some(code), "{args:?}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{args:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(text(&stdout), "");
    assert_eq!(fs::read_to_string(directory.join("a.jsonl")).unwrap(), record(true));
}

#[test]
fn a_page_beside_the_record_is_the_default() {
    let directory = directory();
    let Output { status, stdout, stderr } = report(directory.path(), &["a.jsonl"]);
    assert_eq!((status.code(), text(&stdout).as_str()), (Some(0), "a.html"), "{}", text(&stderr));
    assert_eq!(text(&stderr), "");
    let page = fs::read_to_string(directory.path().join("a.html")).unwrap();
    for word in ["http://server/big &lt;file&gt;", "limited by disk", "Throughput", "Socket buffer in use"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn json_prints_numbers_without_drawing() {
    let directory = directory();
    let Output { status, stdout, stderr } = report(directory.path(), &["a.jsonl", "a.jsonl", "--json"]);
    assert_eq!((status.code(), text(&stderr).as_str()), (Some(0), ""));
    let lines: Vec<serde_json::Value> =
        text(&stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!([&lines[0]["record"], &lines[1]["record"]], ["a", "a (2)"]);
    assert_eq!((&lines[0]["goodput_bps"], &lines[0]["duplicate_acks"]), (&8e6.into(), &0.0.into()));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let args = ["a.jsonl", "--json", "-o", "a.svg"];
    assert_eq!(text(&report(directory.path(), &args).stdout).lines().count(), 1);
    assert!(directory.path().join("a.svg").exists());
}

#[test]
fn several_records_and_outputs_at_once_under_unique_names() {
    let directory = directory();
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::copy(directory.path().join("a.jsonl"), other.join("a.jsonl")).unwrap();
    fs::write(directory.path().join("out.svg"), "what stood there before").unwrap();
    let args =
        ["a.jsonl", "other/a.jsonl", "a.jsonl", "-o", "out.svg", "-o", "out.png", "--name", "first <one>"];
    let Output { status, stdout, stderr } = report(directory.path(), &args);
    assert_eq!((status.code(), text(&stdout).as_str()), (Some(0), "out.svg\nout.png"), "{}", text(&stderr));
    let svg = fs::read_to_string(directory.path().join("out.svg")).unwrap();
    assert!(svg.starts_with("<svg"));
    for name in [">first &lt;one&gt;<", ">a<", ">a (2)<"] {
        assert!(svg.contains(name), "{name}");
    }
    assert!(fs::read(directory.path().join("out.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(!directory.path().join("a.html").exists(), "the default is only for no -o");
}

#[test]
fn chosen_charts_alone_are_drawn() {
    let directory = directory();
    let chosen = ["a.jsonl", "--chart", "throughput", "--chart", "Socket buffer", "-o", "a.svg"];
    assert_eq!(report(directory.path(), &chosen).status.code(), Some(0));
    let svg = fs::read_to_string(directory.path().join("a.svg")).unwrap();
    assert!(svg.contains(">Throughput<") && svg.contains(">Socket buffer in use<"));
    assert!(!svg.contains(">Application buffer in use<"));
    fails(
        directory.path(),
        &["a.jsonl", "--chart", "\u{e9}"],
        64,
        &["no chart has that title", "Throughput; "],
    );
}

#[test]
fn a_record_that_was_cut_off_is_drawn_with_a_warning() {
    let directory = directory();
    fs::write(directory.path().join("cut.jsonl"), record(false)).unwrap();
    let Output { status, stdout, stderr } = report(directory.path(), &["cut.jsonl", "a.jsonl"]);
    assert_eq!((status.code(), text(&stdout).as_str()), (Some(0), "cut.html"));
    let warning = text(&stderr);
    assert!(warning.contains("WARNING: cut.jsonl is damaged: cut off in line 202"), "{warning}");
    assert_eq!(warning.lines().count(), 1, "{warning}");
    let page = fs::read_to_string(directory.path().join("cut.html")).unwrap();
    assert!(page.contains("the record is damaged: cut off in line 202"));
}

#[test]
fn file_other_than_record_is_refused() {
    let directory = directory();
    let newer = record(true).replacen(r#""version":1"#, r#""version":999"#, 1);
    let files: [(&str, &[u8]); 4] = [
        ("empty.jsonl", b""),
        ("binary.jsonl", b"\x00\xff\x7fELF\n\x00"),
        ("other.jsonl", b"{\"some\":\"json\"}\n"),
        ("newer.jsonl", newer.as_bytes()),
    ];
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let path = directory.path();
    fails(path, &["missing.jsonl"], 66, &["missing.jsonl", "No such file"]);
    fs::create_dir(path.join("directory")).unwrap();
    fails(path, &["directory"], 66, &["is a directory"]);
    fails(path, &["empty.jsonl"], 65, &["empty.jsonl is empty"]);
    fails(path, &["binary.jsonl"], 65, &["binary.jsonl is no record"]);
    fails(path, &["other.jsonl"], 65, &["other.jsonl is no record"]);
    fails(path, &["newer.jsonl"], 65, &["version 999", "update longhaul"]);
    fails(path, &["a.jsonl", "empty.jsonl"], 65, &["empty.jsonl is empty"]);
}

#[test]
fn invalid_output_is_refused() {
    let directory = directory();
    let path = directory.path();
    fs::create_dir(path.join("directory.svg")).unwrap();
    fs::copy(path.join("a.jsonl"), path.join("record.html")).unwrap();
    fails(path, &["a.jsonl", "-o", "a.pdf"], 64, &["a.pdf", ".html, .svg or .png"]);
    fails(path, &["a.jsonl", "-o", "a"], 64, &[".html, .svg or .png"]);
    fails(path, &["a.jsonl", "-o", "missing/a.svg"], 73, &["cannot write missing/a.svg"]);
    fails(path, &["a.jsonl", "-o", "directory.svg"], 73, &["cannot write directory.svg"]);
    fails(path, &["a.jsonl", "--name", "x", "--name", "y"], 64, &["more names than records"]);
    fails(path, &["record.html"], 64, &["record.html is a record", "-o"]);
    assert_eq!(fs::read_to_string(path.join("record.html")).unwrap(), record(true));
    fails(path, &["a.jsonl", "-o", "./../"], 64, &[".html"]);
    assert_eq!(report(path, &[]).status.code(), Some(64));
}

/// A full disk leaves no partial file.
#[test]
fn failed_write_keeps_the_earlier_file() {
    let directory = directory();
    let output = directory.path().join("a.svg");
    fs::write(&output, "what stood there before").unwrap();
    let limited = "ulimit -f 4; trap '' XFSZ; exec \"$0\" report a.jsonl -o a.svg";
    let mut shell = Command::new("bash");
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_longhaul")]).current_dir(directory.path());
    let Output { status, stderr, .. } = shell.output().unwrap();
    assert_eq!(status.code(), Some(73), "{}", text(&stderr));
    assert_eq!(fs::read_to_string(&output).unwrap(), "what stood there before");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "and nothing beside it");
}

/// The size of a record bounds the memory and the time to read it.
#[test]
fn a_hostile_record_takes_no_more_memory_than_it_is_long() {
    let directory = directory();
    let mut lines: Vec<String> = record(true).lines().take(100).map(str::to_owned).collect();
    let stream = r#"{"stream":0,"unread":0,"tcp":{}},"#.repeat(500_000);
    let last = lines.pop().unwrap().replace(r#""streams":["#, &format!(r#""streams":[{}"#, &stream));
    lines.push(last.replace(",]", "]"));
    fs::write(directory.path().join("wide.jsonl"), lines.join("\n") + "\n").unwrap();
    // The text has 16 MB.
    let limited = "ulimit -v 300000; exec \"$0\" report wide.jsonl";
    let mut shell = Command::new("bash");
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_longhaul")]).current_dir(directory.path());
    let Output { status, stderr, .. } = shell.output().unwrap();
    assert_eq!(status.code(), Some(0), "{}", text(&stderr));
    assert!(text(&stderr).contains("without an end"), "{}", text(&stderr));
}

#[test]
fn a_time_far_off_is_damage_and_no_endless_chart() {
    let directory = directory();
    let far = record(true).replacen(r#"{"at":1.99,"#, r#"{"at":1e12,"#, 1);
    fs::write(directory.path().join("far.jsonl"), far).unwrap();
    let Output { status, stderr, .. } = report(directory.path(), &["far.jsonl"]);
    assert_eq!(status.code(), Some(0), "{}", text(&stderr));
    assert!(text(&stderr).contains("line 201 is more than ten years after the start"), "{}", text(&stderr));
    // The maximum time is accepted.
    let late = record(true).replacen(r#"{"at":1.99,"#, r#"{"at":3e8,"#, 1);
    fs::write(directory.path().join("late.jsonl"), late).unwrap();
    let limited = "ulimit -v 300000; exec \"$0\" report late.jsonl -o late.svg -o late.html";
    let mut shell = Command::new("bash");
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_longhaul")]).current_dir(directory.path());
    let Output { status, stderr, .. } = shell.output().unwrap();
    assert_eq!((status.code(), text(&stderr).as_str()), (Some(0), ""));
}

#[test]
fn records_of_one_time_share_its_axis() {
    let directory = directory();
    let server = record(true).replace(r#""side":"get""#, r#""side":"serve""#);
    fs::write(directory.path().join("far.jsonl"), server.replace("1795219200.0", "1795219199.0")).unwrap();
    let other = record(true).replace("1795219200.0", "1795300000.0");
    fs::write(directory.path().join("other.jsonl"), other).unwrap();
    let Output { status, .. } = report(directory.path(), &["a.jsonl", "far.jsonl", "other.jsonl"]);
    assert_eq!(status.code(), Some(0));
    let page = fs::read_to_string(directory.path().join("a.html")).unwrap();
    for note in ["clocks: a, far; time counts from", "another time: other; time counts"] {
        assert!(page.contains(note), "{note}");
    }
}

/// Fetches 64 MiB at 160 Mbit/s, recorded each millisecond at both ends.
fn recorded_at_both_ends(directory: &Path) {
    let served = directory.join("served");
    fs::create_dir(&served).unwrap();
    File::create(served.join("f")).unwrap().set_len(64 << 20).unwrap();
    let program = || Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let fine = |record: &str| ["--record-interval", "1ms", "--record", record].map(str::to_owned);
    let mut serve = program();
    serve.args(["serve", "served", "--listen", "127.0.0.1:0", "--pace", "160Mbit"]).args(fine("serve.jsonl"));
    let (mut server, address) = Running::server(serve.current_dir(directory));
    let url = format!("http://{address}/f");
    let mut get = program();
    get.args(["get", "--no-memory", "--quiet", &url, "-o", "f"])
        .args(fine("get.jsonl"))
        .current_dir(directory);
    assert!(get.status().unwrap().success());
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn both_ends_of_a_transfer_are_averaged_over_a_millisecond_and_a_second() {
    let directory = tempfile::tempdir().unwrap();
    recorded_at_both_ends(directory.path());
    let records = ["get.jsonl", "serve.jsonl", "--json", "-o", "both.html"];
    let Output { status, stdout, stderr } = report(directory.path(), &records);
    assert_eq!((status.code(), text(&stderr).as_str()), (Some(0), ""));
    for line in text(&stdout).lines() {
        let values: serde_json::Value = serde_json::from_str(line).unwrap();
        let value = |name: &str| values[name].as_f64().unwrap_or_else(|| panic!("no {name}: {values}"));
        // Of the file's bytes; the bounds allow for headers and a busy core.
        assert!((120e6..170e6).contains(&value("mean_bps")), "{values}");
        let apart = (value("mean_bps") - value("steady_goodput_bps")).abs();
        assert!(apart < 0.05 * value("mean_bps"), "{values}");
        assert!(value("burstiness_1ms") >= 1.0 && value("seen_1ms_share") > 0.3, "{values}");
        assert!(value("peak_1ms_bps") >= value("mean_bps"), "{values}");
        assert_eq!(values["record"] == "get", values["duplicate_acks"] == 0.0, "{values}");
        assert_eq!(values["record"] == "serve", values["retransmits"].is_f64(), "{values}");
    }
    let page = fs::read_to_string(directory.path().join("both.html")).unwrap();
    for name in [
        "\"get: received\"",
        "\"serve: sent\"",
        "received, over 1 ms",
        "sent, over 1 ms",
        "acknowledged, over 1000 ms",
    ] {
        assert!(page.contains(name), "{name}");
    }
    assert!(page.contains("clocks: get, serve; time counts from"));
}
