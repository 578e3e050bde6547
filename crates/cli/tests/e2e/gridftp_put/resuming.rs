//! Resuming after an earlier run or a broken connection, and repairing bytes that change in
//! transit.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use super::{held, leftovers, put};
use crate::support::{DataAction, Ended, FtpRelay, Get, Globus, content, same};

/// Slow enough to be interrupted midway.
const SLOW: [&str; 2] = ["--limit", "80Mbit"];

/// Starts an upload of `bytes` to `g`, and interrupts it after `part` bytes.
fn interrupted(globus: &Globus, bytes: &[u8], part: u64, signal: Signal) -> (Get, Ended) {
    let put = put(bytes).args(SLOW).args(["--streams", "3", "f", &globus.url("g")]);
    let ended = put.signalled(signal, "a part is stored", || held(globus) > part);
    assert!(!globus.path("g").exists(), "a part has the file's name");
    assert_eq!(leftovers(globus).len(), 1);
    (put, ended)
}

#[test]
fn killed_run_is_resumed_by_the_next() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(24 << 20, 1);
    let (put, _) = interrupted(&globus, &bytes, 8 << 20, Signal::KILL);
    put.again(["--json", "f", &globus.url("g")]).run().ok();
    same(globus.path("g"), &bytes);
    assert_eq!(leftovers(&globus), [""; 0]);
    let sent = globus.logged(1, |transfer| transfer.kind == "ESTO" && transfer.code == 226);
    assert!(sent[0].bytes < 22 << 20, "nearly all was sent again: {sent:?}");
}

#[test]
fn interrupted_run_reports_its_part_and_a_changed_source_or_no_resume_starts_anew() {
    let Some(globus) = Globus::start() else { return };
    let (old, new) = (content(16 << 20, 3), content(16 << 20, 4));
    let (put, ended) = interrupted(&globus, &old, 2 << 20, Signal::INT);
    assert!(ended.stderr.contains("run the same command to resume"), "{ended:?}");
    put.again(["--no-resume", "f", &globus.url("g")]).run().ok();
    same(globus.path("g"), &old);
    fs::remove_file(globus.path("g")).unwrap();
    let (put, _) = interrupted(&globus, &old, 2 << 20, Signal::KILL);
    fs::write(put.path("f"), &new).unwrap();
    put.again(["f", &globus.url("g")]).run().ok();
    same(globus.path("g"), &new);
}

#[test]
fn lost_control_connection_and_lost_data_connection_cost_no_bytes() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(16 << 20, 5);
    let is_cut = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&is_cut);
    let relay = FtpRelay::new(globus.port(), move |_, offset, _| {
        if offset > 1 << 20 && !once.swap(true, Ordering::SeqCst) {
            DataAction::Cut
        } else {
            DataAction::Pass
        }
    });
    let put = put(&bytes).args(SLOW).args(["--streams", "3", "f", &relay.url(&globus.url("g"))]);
    let mut running = put.start();
    running.until("a data connection is cut", || is_cut.load(Ordering::SeqCst));
    running.until("the upload goes on", || held(&globus) > 8 << 20);
    relay.cut_control();
    running.end().ok();
    same(globus.path("g"), &bytes);
    assert_eq!(leftovers(&globus), [""; 0]);
}

#[test]
fn two_runs_of_one_upload_at_once_both_end_well() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(12 << 20, 6);
    let put = put(&bytes).args(SLOW).args(["--streams", "2", "f", &globus.url("g")]);
    let mut first = put.start();
    first.until("a part is stored", || held(&globus) > 1 << 20);
    put.run().ok();
    first.end().ok();
    same(globus.path("g"), &bytes);
    assert_eq!(leftovers(&globus), [""; 0]);
}

/// Flips a bit of the byte at `at` if it is among `bytes`, which begin at `offset`.
fn flip(at: u64, offset: u64, bytes: &mut [u8]) -> DataAction {
    if let Some(byte) = at.checked_sub(offset).and_then(|index| bytes.get_mut(index as usize)) {
        *byte ^= 1;
    }
    DataAction::Pass
}

#[test]
fn wrong_bytes_are_found_and_only_their_piece_is_sent_again() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(12 << 20, 1);
    // Within a block of the second connection.
    let relay = FtpRelay::new(globus.port(), |number, offset, bytes| match number {
        1 => flip(700_000, offset, bytes),
        _ => DataAction::Pass,
    });
    let url = relay.url(&globus.url("g"));
    put(&bytes).args(["--streams", "2", "--limit", "100Mbit", "f", &url]).run().ok();
    same(globus.path("g"), &bytes);
    let repaired = globus.logged(1, |transfer| transfer.kind == "ESTO");
    assert!(repaired[0].bytes <= 2 << 20, "{repaired:?}");
}

#[test]
fn bytes_that_are_always_wrong_end_with_an_error_and_without_the_file() {
    let Some(globus) = Globus::start() else { return };
    let relay = FtpRelay::new(globus.port(), |_, offset, bytes| flip(1000, offset, bytes));
    let run = put(&content(2 << 20, 2)).args(["--streams", "1", "f", &relay.url(&globus.url("g"))]);
    run.run().fails(65, &["after 4 attempts"]);
    assert!(!globus.path("g").exists());
}
