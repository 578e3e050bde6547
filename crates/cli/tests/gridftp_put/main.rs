//! `longhaul put` over FTP and GridFTP from end to end: the real program against real servers, through a relay where bytes are to be
//! changed or connections cut.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod relay;
#[path = "../gridftp/support/mod.rs"]
mod support;

mod encrypted;
mod globus;
mod lying;
mod plain;
mod repairing;
mod resuming;

/// Makes a `longhaul put` in an empty directory, with `f` of these bytes.
fn put(bytes: &[u8]) -> support::Get {
    let put = support::longhaul("put");
    std::fs::write(put.path("f"), bytes).unwrap();
    put
}

/// Returns the names in a server's directory that an upload has left there.
fn leftovers(path: &std::path::Path) -> Vec<String> {
    support::partial_files(path.parent().unwrap())
}
