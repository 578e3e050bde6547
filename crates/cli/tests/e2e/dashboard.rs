//! The agent's dashboard in real browsers: `dashboard/test/run.mjs` drives Firefox and Chromium.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::skip;

/// The script's exit status if a browser is missing.
const SKIPPED: i32 = 77;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard")
}

/// Directory of dashboard screenshots: `dashboard-screenshots` beside the program's build directory.
fn pictures() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    binary.ancestors().nth(2).unwrap().join("dashboard-screenshots")
}

#[test]
fn dashboard_works_in_firefox_and_chromium() {
    if !sources().join("node_modules/puppeteer-core").is_dir() {
        return skip("dashboard/node_modules is missing: run scripts/setup.sh test");
    }
    let run = Command::new("node")
        .arg(sources().join("test/run.mjs"))
        .arg(pictures())
        .env("LONGHAUL_BIN", env!("CARGO_BIN_EXE_longhaul"))
        .output();
    let Output { status, stdout, stderr } = match run {
        Ok(output) => output,
        Err(error) => return skip(&format!("node cannot be run: {error}")),
    };
    let text = String::from_utf8_lossy(&stdout);
    println!("{text}");
    if status.code() == Some(SKIPPED) {
        return skip(text.trim());
    }
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}
