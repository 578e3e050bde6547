//! `longhaul report` as a process.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::lab::ran;
use crate::support::running::Running;
use crate::support::{Ended, names};

const HEAD: &str = r#"{"record":"longhaul","version":1,"side":"get","what":"http://server/big <file>","program":"longhaul 0.1.0","started":1795219200.0,"interval":0.01,"host":{"name":"near","kernel":"6.1.0","cores":2}}"#;
const END: &str = r#"{"at":2.0,"event":"end","outcome":{"event":"done","goodput_bps":8000000,"limited_by":"disk"},"telemetry":{"samples":200,"dropped":0,"cpu":0.001}}"#;

/// Two seconds of a transfer at 8 Mbit/s, complete or truncated.
fn record(whole: bool) -> String {
    let sample = |at: u32| {
        let (seconds, moved, unread) = (f64::from(at) / 100.0, at * 10_000, at * 7 % 100);
        format!(
            r#"{{"at":{seconds},"event":"sample","moved":{moved},"sockets":{{"open":1,"unread":{unread},"retransmits":0,"out_of_order":0,"acked":0}},"streams":[]}}"#
        )
    };
    let samples: Vec<_> = (0..200).map(sample).collect();
    let end = if whole { format!("{END}\n") } else { r#"{"at":2.0,"event":"sam"#.to_owned() };
    format!("{HEAD}\n{}\n{end}", samples.join("\n"))
}

fn report(directory: &Path, args: &[&str]) -> Ended {
    limited(directory, "true", args)
}

fn limited(directory: &Path, limit: &str, args: &[&str]) -> Ended {
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{limit}; exec \"$0\" report \"$@\""), env!("CARGO_BIN_EXE_longhaul")]);
    shell.args(args).current_dir(directory);
    ran(shell)
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.jsonl"), record(true)).unwrap();
    directory
}

fn read(directory: &tempfile::TempDir, name: &str) -> String {
    fs::read_to_string(directory.path().join(name)).unwrap()
}

/// Checks that the command fails with `code` and `words`, prints no file name, and leaves the
/// record unchanged.
fn fails(directory: &Path, args: &str, code: i32, words: &[&str]) {
    let args: Vec<_> = args.split(' ').filter(|arg| !arg.is_empty()).collect();
    let ended = report(directory, &args).fails(code, words);
    assert_eq!((ended.stderr.lines().count(), &*ended.stdout), (1, ""), "{args:?}: {ended:?}");
    assert_eq!(fs::read_to_string(directory.join("a.jsonl")).unwrap(), record(true));
}

#[test]
fn a_page_beside_the_record_is_the_default() {
    let directory = directory();
    let ended = report(directory.path(), &["a.jsonl"]).ok();
    assert_eq!((&*ended.stdout, &*ended.stderr), ("a.html", ""));
    let page = read(&directory, "a.html");
    for word in ["http://server/big &lt;file&gt;", "limited by disk", "Throughput", "Socket buffer in use"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn json_prints_numbers_without_drawing() {
    let directory = directory();
    let ended = report(directory.path(), &["a.jsonl", "a.jsonl", "--json"]).ok();
    assert_eq!(ended.stderr, "");
    let lines = ended.json();
    assert_eq!([&lines[0]["record"], &lines[1]["record"]], ["a", "a (2)"]);
    assert_eq!((&lines[0]["goodput_bps"], &lines[0]["duplicate_acks"]), (&8e6.into(), &0.0.into()));
    assert_eq!(names(directory.path()), ["a.jsonl"]);
    let ended = report(directory.path(), &["a.jsonl", "--json", "-o", "a.svg"]).ok();
    assert_eq!(ended.stdout.lines().count(), 1);
    assert_eq!(names(directory.path()), ["a.jsonl", "a.svg"]);
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
    assert_eq!(report(directory.path(), &args).ok().stdout, "out.svg\nout.png");
    let svg = read(&directory, "out.svg");
    assert!(svg.starts_with("<svg"));
    for name in [">first &lt;one&gt;<", ">a<", ">a (2)<"] {
        assert!(svg.contains(name), "{name}");
    }
    assert!(fs::read(directory.path().join("out.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(!directory.path().join("a.html").exists(), "the default is only for no -o");
}

#[test]
fn chosen_charts_are_drawn_with_published_values() {
    let directory = directory();
    let chosen = ["a.jsonl", "--chart", "throughput", "--chart", "Socket buffer", "-o", "a.svg"];
    let published = ["--published", "throughput;the paper;6e6", "--published", "socket;its peak;1,50"];
    report(directory.path(), &[&chosen[..], &published].concat()).ok();
    let svg = read(&directory, "a.svg");
    assert!(svg.contains(">Throughput<") && svg.contains(">Socket buffer in use<"));
    assert!(svg.contains(">the paper<") && svg.contains(">its peak<"));
    assert!(!svg.contains(">Application buffer in use<"));
    fails(directory.path(), "a.jsonl --chart \u{e9}", 64, &["no chart has that title", "Throughput; "]);
    fails(directory.path(), "a.jsonl --published \u{e9};a;1", 64, &["no chart has that title"]);
}

#[test]
fn a_record_that_was_cut_off_is_drawn_with_a_warning() {
    let directory = directory();
    fs::write(directory.path().join("cut.jsonl"), record(false)).unwrap();
    let Ended { stdout, stderr: warning, .. } = report(directory.path(), &["cut.jsonl", "a.jsonl"]).ok();
    assert_eq!(stdout, "cut.html");
    assert!(warning.contains("WARNING: cut.jsonl is damaged: cut off in line 202"), "{warning}");
    assert_eq!(warning.lines().count(), 1, "{warning}");
    assert!(read(&directory, "cut.html").contains("the record is damaged: cut off in line 202"));
}

#[test]
fn what_is_no_record_and_invalid_output_are_refused() {
    let directory = directory();
    let path = directory.path();
    let whole = record(true);
    let newer = whole.replacen(r#""version":1"#, r#""version":999"#, 1);
    let files: [(&str, &[u8]); 5] = [
        ("empty.jsonl", b""),
        ("binary.jsonl", b"\x00\xff\x7fELF\n\x00"),
        ("other.jsonl", b"{\"some\":\"json\"}\n"),
        ("newer.jsonl", newer.as_bytes()),
        ("record.html", whole.as_bytes()),
    ];
    for (name, content) in files {
        fs::write(path.join(name), content).unwrap();
    }
    fs::create_dir(path.join("directory.svg")).unwrap();
    for (args, code, words) in [
        ("missing.jsonl", 66, &["missing.jsonl", "No such file"][..]),
        ("directory.svg", 66, &["is a directory"]),
        ("empty.jsonl", 65, &["empty.jsonl is empty"]),
        ("binary.jsonl", 65, &["binary.jsonl is no record"]),
        ("other.jsonl", 65, &["other.jsonl is no record"]),
        ("newer.jsonl", 65, &["version 999", "update longhaul"]),
        ("a.jsonl empty.jsonl", 65, &["empty.jsonl is empty"]),
        ("a.jsonl -o a.pdf", 64, &["a.pdf", ".html, .svg or .png"]),
        ("a.jsonl -o a", 64, &[".html, .svg or .png"]),
        ("a.jsonl -o missing/a.svg", 73, &["cannot write missing/a.svg"]),
        ("a.jsonl -o directory.svg", 73, &["cannot write directory.svg"]),
        ("a.jsonl --name x --name y", 64, &["more names than records"]),
        ("record.html", 64, &["record.html is a record", "-o"]),
        ("a.jsonl -o ./../", 64, &[".html"]),
    ] {
        fails(path, args, code, words);
    }
    assert_eq!(read(&directory, "record.html"), record(true));
    assert_eq!(report(path, &[]).status.code(), Some(64));
}

/// A full disk leaves no partial file.
#[test]
fn failed_write_keeps_the_earlier_file() {
    let directory = directory();
    fs::write(directory.path().join("a.svg"), "what stood there before").unwrap();
    let args = ["a.jsonl", "-o", "a.svg"];
    limited(directory.path(), "ulimit -f 4; trap '' XFSZ", &args).fails(73, &[]);
    assert_eq!(read(&directory, "a.svg"), "what stood there before");
    assert_eq!(names(directory.path()), ["a.jsonl", "a.svg"], "and nothing beside it");
}

#[test]
fn a_time_far_off_is_damage_and_no_endless_chart() {
    let directory = directory();
    // The second is the maximum that is accepted.
    for (time, args, warned) in [
        ("1e12", &["b.jsonl"][..], "line 201 is more than ten years after the start"),
        ("3e8", &["b.jsonl", "-o", "late.svg", "-o", "late.html"], ""),
    ] {
        let far = record(true).replacen(r#"{"at":1.99,"#, &format!(r#"{{"at":{time},"#), 1);
        fs::write(directory.path().join("b.jsonl"), far).unwrap();
        let warning = limited(directory.path(), "ulimit -v 300000", args).ok().stderr;
        assert!(warning.contains(warned) && warning.is_empty() == warned.is_empty(), "{time}: {warning}");
    }
}

#[test]
fn records_of_one_time_share_its_axis() {
    let directory = directory();
    let server = record(true).replace(r#""side":"get""#, r#""side":"serve""#);
    fs::write(directory.path().join("far.jsonl"), server.replace("1795219200.0", "1795219199.0")).unwrap();
    let other = record(true).replace("1795219200.0", "1795300000.0");
    fs::write(directory.path().join("other.jsonl"), other).unwrap();
    report(directory.path(), &["a.jsonl", "far.jsonl", "other.jsonl"]).ok();
    let page = read(&directory, "a.html");
    for note in ["clocks: a, far; time counts from", "another time: other; time counts"] {
        assert!(page.contains(note), "{note}");
    }
}

/// Fetches 64 MiB at 160 Mbit/s, recorded each millisecond at both ends.
fn recorded_at_both_ends(directory: &Path) {
    fs::create_dir(directory.join("served")).unwrap();
    File::create(directory.join("served/f")).unwrap().set_len(64 << 20).unwrap();
    let program = |record: &str, args: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(args.split(' ')).args(["--record-interval", "1ms", "--record", record]);
        command.current_dir(directory);
        command
    };
    let mut serve = program("serve.jsonl", "serve served --listen 127.0.0.1:0 --pace 160Mbit");
    let (mut server, address) = Running::server(&mut serve);
    let mut get = program("get.jsonl", &format!("get --no-memory --quiet http://{address}/f -o f"));
    assert!(get.status().unwrap().success());
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn both_ends_of_a_transfer_are_averaged_over_a_millisecond_and_a_second() {
    let directory = tempfile::tempdir().unwrap();
    recorded_at_both_ends(directory.path());
    let records = ["get.jsonl", "serve.jsonl", "--json", "-o", "both.html"];
    let ended = report(directory.path(), &records).ok();
    assert_eq!(ended.stderr, "");
    for values in ended.json() {
        let value = |name: &str| values[name].as_f64().unwrap_or_else(|| panic!("no {name}: {values}"));
        // Of the file's bytes, at most at the pace; the bound allows for headers.
        assert!((1.0..170e6).contains(&value("mean_bps")) && value("steady_goodput_bps") > 0.0, "{values}");
        assert!(value("burstiness_1ms") >= 1.0 && value("seen_1ms_share") > 0.0, "{values}");
        assert!(value("peak_1ms_bps") >= value("mean_bps"), "{values}");
        assert_eq!(values["record"] == "get", values["duplicate_acks"].is_f64(), "{values}");
        assert_eq!(values["record"] == "serve", values["retransmits"].is_f64(), "{values}");
    }
    let page = fs::read_to_string(directory.path().join("both.html")).unwrap();
    for name in [
        "\"get: received\"",
        "\"serve: sent\"",
        "received, over 1 ms",
        "sent, over 1 ms",
        "acknowledged, over 1000 ms",
        "clocks: get, serve; time counts from",
    ] {
        assert!(page.contains(name), "{name}");
    }
}
