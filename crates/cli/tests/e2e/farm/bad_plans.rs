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
        (&["-o", "p", "-r", "old", "new/../old/x"], 66, "cannot use the target new/../old/x"),
        (&["-o", "p", "-r", "old/sub", "old"], 64, "lies in the target"),
        (&["-o", "p", "empty", "."], 64, "lies in the target"),
        (&["-o", "p", "-i", "both", "here"], 64, "a file and a directory would get the path a"),
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
        let run = run.file("old/sub/sub/f", "").file("both", "http://h/f\n out=a/b\nhttp://h/g\n out=a\n");
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
    let read = |name: &str| fs::read(run.path("p").join(name)).unwrap();
    let with = |name: &str, from: &str, to: &str| {
        String::from_utf8(read(name)).unwrap().replace(from, to).into_bytes()
    };
    // Of an edited unit, those that read units.
    let (reading, all) =
        (&["verify", "manifest"][..], &["verify", "manifest", "status", "retry", "limit"][..]);
    for (name, bytes, commands, word) in [
        ("plan.json", with("plan.json", "\"version\": 1", "\"version\": 9"), all, "version 9"),
        ("plan.json", with("plan.json", "here", "there"), all, "plan.json was edited"),
        ("plan.json", Vec::new(), all, "truncated"),
        ("units.index", read("units.index")[..8].to_vec(), all, "units.index has 8 bytes"),
        ("units.index", vec![0; read("units.index").len()], all, "units.index was edited"),
        ("units.jsonl", b"{".to_vec(), all, "units.jsonl has 1 bytes"),
        ("units.jsonl", with("units.jsonl", "/f\"", "/g\""), reading, "unit 0 in units.jsonl was edited"),
    ] {
        let right = read(name);
        fs::write(run.path("p").join(name), bytes).unwrap();
        work(run.dir(), &[]).run().fails(65, &[word]);
        commands.iter().for_each(|command| drop(of_plan(run.dir(), command, &[]).fails(65, &[word])));
        fs::write(run.path("p").join(name), right).unwrap();
    }
    work(run.dir(), &[]).run().ok();
    of_plan(&run.path("none"), "status", &[]).fails(66, &["is no plan"]);
}
