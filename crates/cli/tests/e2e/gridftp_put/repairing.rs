//! Bytes that change in transit.

use super::put;
use crate::support::{DataAction, FtpRelay, Globus, content, same};

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
