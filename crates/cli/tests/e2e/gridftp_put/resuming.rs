//! Resuming after an earlier run or a broken connection.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use super::relay::{DataAction, Relay};
use super::{leftovers, put};
use crate::support::{Globus, content, same};

/// Returns the bytes allocated to the temporary file beside `path`.
fn held(globus: &Globus) -> u64 {
    let names = leftovers(&globus.path("g"));
    names.first().map_or(0, |name| {
        use std::os::unix::fs::MetadataExt;
        // Ranges arrive in any order: allocated blocks count, not the length.
        fs::metadata(globus.path(name)).map_or(0, |metadata| metadata.blocks() * 512)
    })
}

#[test]
fn a_killed_run_is_resumed_by_the_next() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(48 << 20, 1);
    let put = put(&bytes).args(["--streams", "3", "--limit", "80Mbit", "f", &globus.url("g")]);
    let mut running = put.start();
    running.until("a part is stored", || held(&globus) > 16 << 20);
    running.signal(Signal::KILL);
    running.end();
    assert!(!globus.path("g").exists(), "a part has the file's name");
    let put = put.again(["--json", "f", &globus.url("g")]);
    let ended = put.run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    same(globus.path("g"), &bytes);
    assert_eq!(leftovers(&globus.path("g")), [""; 0]);
    let sent = globus.logged(1, |transfer| transfer.kind == "ESTO" && transfer.code == 226);
    assert!(sent[0].bytes < 44 << 20, "nearly all was sent again: {sent:?}");
}

#[test]
fn interrupted_run_keeps_its_part_and_reports_it() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(32 << 20, 2);
    let put = put(&bytes).args(["--limit", "80Mbit", "f", &globus.url("g")]);
    let mut running = put.start();
    running.until("a part is stored", || held(&globus) > 4 << 20);
    running.signal(Signal::INT);
    let ended = running.end();
    assert!(ended.stderr.contains("run the same command to resume"), "{}", ended.stderr);
    assert_eq!(leftovers(&globus.path("g")).len(), 1);
    let ended = put.again(["--no-resume", "f", &globus.url("g")]).run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    same(globus.path("g"), &bytes);
}

#[test]
fn a_source_that_has_changed_since_is_sent_anew() {
    let Some(globus) = Globus::start() else { return };
    let (old, new) = (content(32 << 20, 3), content(32 << 20, 4));
    let put = put(&old).args(["--limit", "80Mbit", "f", &globus.url("g")]);
    let mut running = put.start();
    running.until("a part is stored", || held(&globus) > 4 << 20);
    running.signal(Signal::KILL);
    running.end();
    fs::write(put.path("f"), &new).unwrap();
    let ended = put.again(["f", &globus.url("g")]).run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    same(globus.path("g"), &new);
}

#[test]
fn a_lost_control_connection_and_a_lost_data_connection_cost_no_bytes() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(24 << 20, 5);
    let cut = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&cut);
    let relay = Relay::new(globus.port(), move |_, offset, _| {
        if offset > 3 << 20 && !once.swap(true, Ordering::SeqCst) {
            DataAction::Cut
        } else {
            DataAction::Pass
        }
    });
    let url = relay.url(&globus.url("g"));
    let put = put(&bytes).args(["--streams", "3", "--limit", "80Mbit", "f", &url]);
    let mut running = put.start();
    running.until("a data connection is cut", || cut.load(Ordering::SeqCst));
    running.until("the upload goes on", || held(&globus) > 14 << 20);
    relay.cut_control();
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    same(globus.path("g"), &bytes);
    assert_eq!(leftovers(&globus.path("g")), [""; 0]);
}

#[test]
fn two_runs_of_one_upload_at_once_both_end_well() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(16 << 20, 6);
    let put = put(&bytes).args(["--streams", "2", "--limit", "80Mbit", "f", &globus.url("g")]);
    let mut first = put.start();
    first.until("a part is stored", || held(&globus) > 1 << 20);
    let second = put.run();
    assert_eq!(second.status.code(), Some(0), "{}", second.stderr);
    let first = first.end();
    assert_eq!(first.status.code(), Some(0), "{}", first.stderr);
    same(globus.path("g"), &bytes);
    assert_eq!(leftovers(&globus.path("g")), [""; 0]);
}
