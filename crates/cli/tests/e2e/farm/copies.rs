//! Plans of local files: copied by several workers.

use std::fs;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use rustix::process::Signal;

use super::{Get, of_plan, plan, status, work};
use crate::support::lab::ran;
use crate::support::{
    age, assert_equal, content, fetched_and_unchanged, longhaul, make_tree, many_files, names, needs_root,
    public_copy, same, write_secret,
};

#[test]
fn local_tree_is_copied_by_three_workers_and_checked() {
    let run = plan().args(["-r", "--unit-files", "10", "-o", "p", "t", "here"]);
    make_tree(&run.path("t"));
    many_files(&run.path("t/many"), 120);
    let odd = run.path("t").join(std::ffi::OsStr::from_bytes(b"\xff\n%"));
    fs::write(odd, "odd").unwrap();
    age(&run.path("t"), 1_000_000_000);
    symlink("a b", run.path("t/link")).unwrap();
    let chmod = |name: &str, mode| fs::set_permissions(run.path(name), Permissions::from_mode(mode)).unwrap();
    let mode = |name: &str| fs::metadata(run.path(name)).unwrap().permissions().mode() & 0o777;
    for (name, mode) in [("t", 0o700), ("t/sub", 0o700), ("t/a b", 0o600)] {
        chmod(name, mode);
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, run.path("t/pipe"), rustix::fs::Mode::RUSR).unwrap();
    let made = run.run().ok();
    assert!(made.stdout.contains("units of 141 files"), "{made:?}");
    assert!(["t/link", "t/pipe"].iter().all(|name| made.stderr.contains(name)), "{made:?}");
    assert!(fs::read_to_string(run.path("p/plan.json")).unwrap().contains("\"version\": 3"));
    let workers = [(); 3].map(|()| work(run.dir(), &["-q"]));
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    fs::remove_file(run.path("t/link")).unwrap();
    fs::remove_file(run.path("t/pipe")).unwrap();
    assert_equal(&run.path("t"), &run.path("here"));
    assert_eq!(["here", "here/sub", "here/a b"].map(mode), [0o700, 0o700, 0o600]);
    assert_eq!(fs::metadata(run.path("here/a b")).unwrap().mtime(), 1_000_000_000);
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["bytes_done"]), (&now["units"], &now["bytes"]));
    of_plan(run.dir(), "verify", &[]).ok();
    // A new plan costs what differs only.
    fs::write(run.path("t/sub/zero"), "more").unwrap();
    let run = run.again(["-r", "-o", "q", "t", "here"]);
    run.run().ok();
    let again = longhaul("work").args([run.path("q").to_str().unwrap(), "--json"]).run().ok();
    let (copied, unchanged) = fetched_and_unchanged(&again);
    assert_eq!((copied, unchanged.len()), (vec!["zero".to_owned()], 140));
    assert_equal(&run.path("t"), &run.path("here"));
}

#[test]
fn huge_local_file_is_copied_by_one_worker_beside_other_sources() {
    let bytes = content((20 << 20) + 12_345, 5);
    let run = plan().args(["-r", "--unit-size", "1MiB", "-o", "p", "huge", "t", "here"]);
    let run = run.file("huge", &bytes).file("t/f", "f");
    age(run.dir(), 1_100_000_000);
    assert!(run.run().ok().stdout.contains("p: 2 units of 2 files"));
    let workers = [(); 3].map(|()| work(run.dir(), &["-q"]));
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    same(run.path("here/huge"), &bytes);
    assert_eq!(fs::metadata(run.path("here/huge")).unwrap().mtime(), 1_100_000_000);
    same(run.path("here/t/f"), b"f");
    assert_eq!(names(&run.path("here")), ["huge", "t"]);
}

/// Plans `f` of a MiB count, of content and time that do not change by themselves.
fn planned(mebibytes: usize) -> Get {
    let run = plan().args(["--unit-size", "1MiB", "-o", "p", "f", "here"]);
    let run = run.file("f", content(mebibytes << 20, 3));
    age(run.dir(), 1_100_000_000);
    run.run().ok();
    run
}

#[test]
fn local_source_that_was_changed_since_is_named_and_not_mixed() {
    for (change, word) in [
        ("echo >> f", "bytes instead of"),
        ("touch f", "instead of @1100000000"),
        ("rm f", "No such file"),
        ("mv f g && ln -s g f", "a symbolic link has this name"),
    ] {
        let run = planned(1);
        let changed = Command::new("sh").args(["-c", change]).current_dir(run.dir()).status();
        assert!(changed.unwrap().success());
        work(run.dir(), &[]).run().fails(1, &[]);
        let now = status(run.dir());
        let why = now["failures"][0]["why"].as_str().unwrap();
        assert!(why.contains(word) && why.contains("/f"), "{why}");
        assert!(!run.path("here/f").exists());
    }
}

#[test]
fn worker_that_is_continued_after_its_source_was_edited_does_not_change_the_complete_file() {
    let run = plan().args(["--unit-size", "1MiB", "--lease", "1s", "-o", "p", "f", "here"]);
    let bytes = content(40 << 20, 3);
    let run = run.file("f", &bytes);
    age(run.dir(), 1_100_000_000);
    run.run().ok();
    let mut late = work(run.dir(), &["-q", "--limit", "50Mbit"]).start();
    let receives = || status(run.dir())["workers"][0]["rate"].as_u64().is_some_and(|rate| rate > 0);
    late.until("it copies", receives);
    late.signal(Signal::STOP);
    work(run.dir(), &["-q"]).run().ok();
    let edited = fs::File::options().write(true).open(run.path("f")).unwrap();
    edited.write_all_at(&content(40 << 20, 4), 0).unwrap();
    late.signal(Signal::CONT);
    late.end();
    same(run.path("here/f"), &bytes);
    assert_eq!(fs::metadata(run.path("here/f")).unwrap().mtime(), 1_100_000_000);
}

#[test]
fn links_within_the_target_are_not_followed_and_those_that_name_sources_are() {
    let run = plan().args(["-r", "-o", "p", "t", "here"]).file("t/d/e/f", "f").file("else/x", "");
    fs::create_dir(run.path("here")).unwrap();
    symlink("../else", run.path("here/d")).unwrap();
    run.run().fails(73, &["cannot make the directory", "here/d: a symbolic link", "another target"]);
    assert_eq!(names(&run.path("else")), ["x"]);
    assert!(!run.path("p").exists());
    symlink("t", run.path("to-t")).unwrap();
    symlink("else/x", run.path("to-x")).unwrap();
    let run = run.again(["-r", "-o", "p", "to-t", "to-x", "there"]);
    run.run().ok();
    work(run.dir(), &[]).run().ok();
    same(run.path("there/to-t/d/e/f"), b"f");
    same(run.path("there/to-x"), b"");
}

#[test]
fn lists_name_local_files_and_demand_sizes_and_checksums() {
    let listed =
        |run: &Get, options: &str| format!("file://{}\n out=d/g\n{options}", run.path("f").display());
    let run = plan().file("f", "abc").args(["-i", "list", "-o", "p", "here"]);
    fs::write(run.path("list"), listed(&run, " size=4\n")).unwrap();
    run.run().fails(64, &["/f has 3 bytes"]);
    // Plans the file under a name, and executes the plan.
    let worked = |name: &str, options: &str| {
        fs::write(run.path("list"), listed(&run, options)).unwrap();
        let [list, made, target] = ["list", name, "here"].map(|name| run.path(name).display().to_string());
        plan().args(["-i", &list, "-o", &made, &target]).run().ok();
        longhaul("work").args([&*made, "--json"]).run()
    };
    let right = " checksum=md5=900150983cd24fb0d6963f7d28e17f72\n";
    for (name, options, is_right) in [("wrong", &*right.replace("=9", "=8"), false), ("right", right, true)] {
        let worked = worked(name, options);
        let told = worked.stderr.contains("instead of md5:8");
        assert_eq!((worked.status.success(), told), (is_right, !is_right), "{worked:?}");
        assert_eq!(run.path("here/d/g").exists(), is_right);
    }
    // Another file of equal size and time is there.
    let there = run.path("here/d/g");
    let modified = fs::metadata(&there).unwrap().modified().unwrap();
    fs::write(&there, "xyz").unwrap();
    fs::File::options().write(true).open(&there).unwrap().set_modified(modified).unwrap();
    for (name, options, content, unchanged) in
        [("unstated", "", "xyz", 1), ("replaced", right, "abc", 0), ("equal", right, "abc", 1)]
    {
        let worked = worked(name, options).ok();
        assert_eq!(fetched_and_unchanged(&worked).1.len(), unchanged, "{name}: {worked:?}");
        same(&there, content.as_bytes());
    }
}

#[test]
fn local_files_that_cannot_be_read_are_named_and_left_out() {
    let Some(()) = needs_root("becoming another user") else { return };
    let (dir, program) = public_copy();
    let at = |name: &str| dir.path().join(name);
    let plan = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("plan");
        command.args(args).current_dir(dir.path());
        ran(command)
    };
    fs::create_dir_all(at("t/closed")).unwrap();
    fs::write(at("t/f"), "abc").unwrap();
    write_secret(at("t/secret"), "secret");
    fs::set_permissions(at("t/closed"), Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let made = plan(&["-r", "-o", "p", "t", "here"]);
    assert!(made.stdout.contains("1 unit of 1 file"), "{made:?}");
    for words in ["t/secret: Permission denied (os error 13); permit it", "t/closed: "] {
        assert!(made.stderr.contains(words), "{made:?}");
    }
    made.fails(77, &["not planned: cannot read"]);
    assert_eq!(status(dir.path())["left_out"], 2);
    // One that is named is not left out of its plan.
    plan(&["-o", "q", "t/f", "t/secret", "here"]).fails(77, &["cannot read", "t/secret: Permission denied"]);
    assert!(!at("q").exists());
}
