//! Plans that cannot be made, and plans that were edited.

use std::fs;

use super::{of_plan, plan, work};
use crate::support::Writable;

#[test]
fn command_lines_that_make_no_plan_are_refused() {
    let list = "http://127.0.0.1:1/f\n out=a\nhttp://127.0.0.1:1/g\n out=a\n";
    for (args, code, word) in [
        (&["-o", "p", "http://h/f"][..], 64, "the directory that receives"),
        (&["-o", "p", "here"], 64, "name the URLs"),
        (&["-o", "p", "http://ann:x@h/f", "here"], 64, "--user"),
        (&["-o", "p", "./f", "here"], 64, "./f"),
        (&["-o", "p", "file:///f", "here"], 64, "/f: there is no such file here"),
        (&["-o", "p", "example.org/f", "here"], 64, "https://example.org/f"),
        (&["-o", "p", "old", "here"], 64, "old is a directory: plan all below it by -r"),
        (&["-o", "p", "-r", "old", "old/x"], 64, "lies in"),
        (&["-o", "old/p", "-r", "old", "here"], 64, "the plan old/p lies in"),
        (&["-o", "p", "http://h/f", "http://h/d/"], 64, "fetch it into a directory first"),
        (&["-o", "p", "-i", "list", "http://h/d/"], 64, "fetch it into a directory first"),
        (&["-o", "p", "empty", "http://ann:x@h/d/"], 64, "--user"),
        (&["-o", "p", "empty", "http://h/d/?x"], 64, "a query"),
        (&["-o", "p", "empty", "http://127.0.0.1:1/d/", "--retries", "0"], 69, "cannot make the directory"),
        (&["-o", "p", "empty", "old/../empty", "here"], 64, "two files would get the path empty"),
        (&["-o", "p", "http://127.0.0.1:1/d/", "here"], 64, "-r"),
        (&["-o", "old", "http://127.0.0.1:1/f", "here"], 73, "exists"),
        (&["-o", "p", "-i", "list", "here"], 64, "two files would get the path a"),
        (&["-o", "p", "-i", "dir", "here"], 64, "out=DIR/NAME"),
        (&["-o", "p", "-i", "header", "here"], 64, "--header"),
        (&["-o", "p", "-i", "empty", "here"], 65, "nothing is planned"),
        (&["-o", "p", "http://127.0.0.1:1/f", "here", "--retries", "0"], 69, "127.0.0.1"),
    ] {
        let run = plan().file("list", list).file("old/x", "").file("empty", "");
        let run = run.file("dir", "http://h/f\n dir=x\n").file("header", "http://h/f\n header=X: y\n");
        let run = run.args(args);
        run.run().fails(code, &[word]);
        assert!(!run.path("p").exists(), "{args:?}");
    }
    for args in [&["http://h/f", "here"][..], &["-o", "p", "http://h/f", "here", "--lease", "1ms"]] {
        assert_eq!(plan().args(args).run().status.code(), Some(64), "{args:?}");
    }
}

#[test]
fn damaged_and_newer_plans_are_named_by_every_command() {
    let server = Writable::start();
    fs::write(server.path("f"), "f").unwrap();
    let run = plan().args(["-o", "p", &server.url("/f"), "here"]);
    run.run().ok();
    let read = |name: &str| fs::read_to_string(run.path("p").join(name)).unwrap();
    let newer = read("plan.json").replace("\"version\": 1", "\"version\": 9");
    for (name, text, code, word) in [
        ("plan.json", newer, 65, "version 9"),
        ("plan.json", read("plan.json").replace("here", "there"), 65, "plan.json was edited"),
        ("plan.json", String::new(), 65, "truncated"),
        ("units.jsonl", read("units.jsonl").replace("/f\"", "/g\""), 65, "unit 0 in units.jsonl was edited"),
        ("units.jsonl", "{".into(), 65, "units.jsonl has 1 bytes"),
    ] {
        let right = read(name);
        fs::write(run.path("p").join(name), text).unwrap();
        work(run.dir(), &[]).run().fails(code, &[word]);
        of_plan(run.dir(), "verify", &[]).fails(code, &[word]);
        fs::write(run.path("p").join(name), right).unwrap();
    }
    work(run.dir(), &[]).run().ok();
    of_plan(&run.path("none"), "status", &[]).fails(66, &["is no plan"]);
}
