//! One click in real browsers: `browser/` is built, checked, and driven in headless Firefox and Chromium against nginx.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::skip;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../browser")
}

/// Directory of popup screenshots: `browser-screenshots` beside the program's build directory.
fn pictures() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    binary.ancestors().nth(2).unwrap().join("browser-screenshots")
}

/// Returns whether a requirement is missing; that is a failure under CI.
fn skipped() -> bool {
    let missing = ["node", "npm", "firefox-esr", "chromium", "nginx"].into_iter().find(|program| {
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        !std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    let installed = sources().join("node_modules/esbuild").is_dir();
    let why = match missing {
        Some(program) => format!("{program} is missing"),
        None if installed => return false,
        None => "browser/node_modules is missing: run scripts/setup.sh test".to_owned(),
    };
    skip(&why);
    true
}

fn npm(script: &str) {
    let output = Command::new("npm")
        .args(["run", "--silent", script])
        .current_dir(sources())
        .env("LONGHAUL", env!("CARGO_BIN_EXE_longhaul"))
        .env("SCREENSHOTS", pictures())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "npm run {script}: {text}{}", String::from_utf8_lossy(&output.stderr));
}

/// One test, as each step depends on the previous one.
#[test]
fn extension_is_clean_and_takes_downloads_over_in_firefox_and_chromium() {
    if skipped() {
        return;
    }
    for script in ["check", "unit", "build", "lint", "package", "e2e"] {
        npm(script);
    }
}
