//! SIGTERM during a transfer: it completes within the grace period.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::serve::uploads::Place;
use crate::serve::{BIN, Serve, eventually, serve, site};

const SIZE: usize = 10 << 20;

/// The second word of the content; the first is zero.
const SECOND_WORD: u64 = 0x9e37_79b9_7f4a_7c15;

fn content() -> Vec<u8> {
    (0..SIZE as u64 / 8).flat_map(|n| n.wrapping_mul(SECOND_WORD).to_le_bytes()).collect()
}

/// Returns whether the first segment of the file has been written to `part`.
fn has_begun(part: &Path) -> bool {
    let mut word = [0; 8];
    File::open(part).is_ok_and(|part| part.read_exact_at(&mut word, 8).is_ok())
        && word == SECOND_WORD.to_le_bytes()
}

/// Stops the server during a transfer; fails unless both end successfully.
fn completes(mut transfer: Command, server: Serve, part: &Path) {
    let running = transfer.args(["--limit", "8MB/s", "--no-memory"]).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the transfer has begun", || has_begun(part));
    server.signal(Signal::TERM);
    let output = running.wait_with_output().unwrap();
    let (code, log) = server.end();
    assert!(output.status.success(), "{}\n{log}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn put_completes_after_sigterm() {
    let beside = site(content());
    for streams in ["1", "4"] {
        let place = Place::new();
        let server = Serve::start(place.command(&[]));
        let mut put = Command::new(BIN);
        put.args(["put", "--streams", streams, "--token"]).arg(place.token());
        put.arg(beside.path().join("f")).arg(format!("http://{}/", server.address));
        completes(put, server, &place.dir.path().join("f.longhaul-part"));
        assert!(std::fs::read(place.dir.path().join("f")).unwrap() == content(), "{streams} streams");
    }
}

#[test]
fn get_completes_after_sigterm() {
    let (from, to) = (site(content()), tempfile::tempdir().unwrap());
    for streams in ["1", "4"] {
        let server = Serve::start(serve(from.path(), &[]));
        let name = to.path().join(streams);
        let mut get = Command::new(BIN);
        get.args(["get", "--streams", streams, "-o"]).arg(&name).arg(format!("http://{}/f", server.address));
        completes(get, server, &to.path().join(format!("{streams}.longhaul-part")));
        assert!(std::fs::read(&name).unwrap() == content(), "{streams} streams");
    }
}
