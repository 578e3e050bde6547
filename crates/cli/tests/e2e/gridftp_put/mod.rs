//! End-to-end tests of `longhaul put` over FTP and GridFTP, against real servers, through a relay that changes bytes or cuts connections.

mod relay;

mod encrypted;
mod faulty_server;
mod globus;
mod plain;
mod repairing;
mod resuming;

/// Creates a `longhaul put` in an empty directory with the file `f`.
fn put(bytes: &[u8]) -> crate::support::Get {
    let put = crate::support::longhaul("put");
    std::fs::write(put.path("f"), bytes).unwrap();
    put
}

/// Returns the temporary files of uploads in a server's directory.
fn leftovers(path: &std::path::Path) -> Vec<String> {
    crate::support::partial_files(path.parent().unwrap())
}
