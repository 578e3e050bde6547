//! End-to-end tests of `longhaul get` over FTP and GridFTP, against real servers and a scripted server with faults.

mod addresses;
mod checksums;
mod faulty;
mod logins;
mod probing;
mod real_servers;
mod servers;

/// Returns whether the journal of an unfinished `f` in `directory` lists committed ranges.
fn has_committed(directory: &std::path::Path) -> bool {
    let journal = std::fs::read(directory.join("f.longhaul-journal")).ok();
    let journal = journal.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    journal.is_some_and(|journal| journal["committed"].as_array().is_some_and(|ranges| !ranges.is_empty()))
}
