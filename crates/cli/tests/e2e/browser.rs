//! One click and the agent's dashboard in real browsers: `browser/` is built, checked, and driven
//! in headless Firefox and Chromium against nginx; `dashboard/test/run.mjs` drives both.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::skip;

/// Returns why the scripts of a folder of this repository cannot run, if so: a program or its node
/// packages are missing.
pub(crate) fn missing(folder: &Path, programs: &[&str]) -> Option<String> {
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let is_missing = |program: &&&str| !std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if let Some(program) = programs.iter().find(is_missing) {
        return Some(format!("{program} is missing"));
    }
    let packages = folder.join("node_modules");
    (!packages.is_dir()).then(|| format!("{} is missing: run scripts/setup.sh test", packages.display()))
}

/// Runs a script of a folder's package.json, with the program and a directory for screenshots
/// beside its build directory.
pub(crate) fn npm(folder: &Path, script: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    let pictures = program
        .ancestors()
        .nth(2)
        .unwrap()
        .join(format!("{}-screenshots", folder.file_name().unwrap().to_str().unwrap()));
    let mut command = Command::new("npm");
    command.args(["run", "--silent", script]).current_dir(folder);
    let output = command.env("LONGHAUL", program).env("SCREENSHOTS", pictures).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "npm run {script}: {text}{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name).canonicalize().unwrap()
}

/// One test, as each step depends on the previous one.
#[test]
fn extension_is_clean_and_takes_downloads_over_in_firefox_and_chromium() {
    let folder = folder("browser");
    if let Some(why) = missing(&folder, &["node", "npm", "firefox-esr", "chromium", "nginx"]) {
        return skip(&why);
    }
    for script in ["check", "unit", "build", "lint", "package", "e2e"] {
        npm(&folder, script);
    }
}

#[test]
fn dashboard_works_in_firefox_and_chromium() {
    let folder = folder("dashboard");
    match missing(&folder, &["node", "npm", "firefox-esr", "chromium"]) {
        Some(why) => skip(&why),
        None => npm(&folder, "e2e"),
    }
}
