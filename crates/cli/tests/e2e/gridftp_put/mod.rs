//! End-to-end tests of `longhaul put` over FTP and GridFTP, against real servers, through a relay
//! that changes bytes or cuts connections.

mod faulty_server;
mod globus;
mod resuming;

use std::os::unix::fs::MetadataExt;

use crate::support::{FtpSite, partial_files};

fn put(bytes: &[u8]) -> crate::support::Get {
    crate::support::put().file("f", bytes)
}

/// Returns the temporary files of uploads into a server's directory.
fn leftovers(server: &FtpSite) -> Vec<String> {
    partial_files(&server.path(""))
}

/// Returns the bytes allocated to the temporary file of an upload: ranges arrive in any order.
fn held(server: &FtpSite) -> u64 {
    leftovers(server)
        .first()
        .map_or(0, |name| std::fs::metadata(server.path(name)).map_or(0, |metadata| metadata.blocks() * 512))
}
