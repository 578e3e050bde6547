//! Bytes that change in transit.

use super::put;
use super::relay::{DataAction, Relay};
use crate::support::{Globus, content, same};

#[test]
fn wrong_bytes_are_found_and_only_their_piece_is_sent_again() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(24 << 20, 1);
    let relay = Relay::new(globus.port(), |number, offset, bytes| {
        // One byte of the second connection, within a block.
        if number == 1 && offset <= 700_000 && 700_000 < offset + bytes.len() as u64 {
            bytes[(700_000 - offset) as usize] ^= 1;
        }
        DataAction::Pass
    });
    let url = relay.url(&globus.url("g"));
    let ended = put(&bytes).args(["--streams", "2", "--limit", "100Mbit", "f", &url]).run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    same(globus.path("g"), &bytes);
    let repaired = globus.logged(1, |transfer| transfer.kind == "ESTO");
    assert!(repaired[0].bytes <= 2 << 20, "{repaired:?}");
}

#[test]
fn bytes_that_are_always_wrong_end_with_an_error_and_without_the_file() {
    let Some(globus) = Globus::start() else { return };
    let relay = Relay::new(globus.port(), |_, offset, bytes| {
        if offset <= 1000 && 1000 < offset + bytes.len() as u64 {
            bytes[(1000 - offset) as usize] ^= 1;
        }
        DataAction::Pass
    });
    let url = relay.url(&globus.url("g"));
    let ended = put(&content(2 << 20, 2)).args(["--streams", "1", "f", &url]).run();
    assert_eq!(ended.status.code(), Some(65), "{}", ended.stderr);
    assert!(ended.stderr.contains("after 4 attempts"), "{}", ended.stderr);
    assert!(!globus.path("g").exists());
}
