//! Repeating a tree transfer after an interruption.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Writable, assert_equal, content, get, many_files};

#[test]
fn killed_run_is_continued() {
    let server = Writable::start();
    many_files(&server.path("t"), 400);
    fs::write(server.path("t/large"), content(48 << 20, 5)).unwrap();
    let arguments = |rate: &'static str| ["-r".to_owned(), "--limit".into(), rate.into(), server.url("/t/")];
    let run = get().args(arguments("200Mbit"));
    for kill in 0..3 {
        let mut running = run.start();
        let is_under_way = || {
            let count = |name| fs::read_dir(run.path(format!("t/{name}"))).map_or(0, Iterator::count);
            ["d0", "d1", "d2"].map(count).iter().sum::<usize>() > 50 * kill
        };
        running.until("some files are there", is_under_way);
        std::thread::sleep(Duration::from_millis(100));
        running.signal(Signal::KILL);
        running.end();
    }
    let run = run.again(arguments("10Gbit"));
    run.run().ok();
    assert_equal(&server.path("t"), &run.path("t"));
}

#[test]
fn interrupted_run_is_reported() {
    let server = Writable::start();
    many_files(&server.path("t"), 300);
    let run = get().args(["-r", "--limit", "1Mbit", &server.url("/t/")]);
    let mut running = run.start();
    running.until("a file is there", || run.path("t/d0").exists());
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
}
