//! The program as a child process.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A process that is killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates a command of the program with its own home: the user's path memory is unaffected.
pub(crate) fn longhaul(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("HOME", home).env_remove("XDG_STATE_HOME").current_dir(home).stdin(Stdio::null());
    command
}

pub(crate) fn explain(home: &Path, args: &[&str]) -> Output {
    longhaul(home).arg("explain").args(args).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Returns the JSON objects that a command printed, one per line.
#[track_caller]
pub(crate) fn objects(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Checks that a command fails with `code` and an error of one line that contains `words`.
#[track_caller]
pub(crate) fn fails(home: &Path, args: &[&str], code: i32, words: &[&str]) {
    let output = explain(home, args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{args:?}: {message}");
    assert!(output.stdout.is_empty(), "{args:?}");
}
