//! The program as a child process.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::support::held_path::{is_held, repeat_until_held};
pub(crate) use crate::support::running::Running;
pub(crate) use crate::support::skip;

/// Creates a command of the program with its own home: the user's path memory is unaffected.
pub(crate) fn longhaul(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.env("HOME", home).env_remove("XDG_STATE_HOME").current_dir(home).stdin(Stdio::null());
    command
}

/// Lets the shell commands of a command find the program by its name.
pub(crate) fn with_program(mut command: Command) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
    command.env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap()));
    command
}

/// Creates a home with a file of `size` bytes in `served`.
pub(crate) fn transfer_home(size: u64) -> TempDir {
    // In memory, if there is room: the disk must not be the limit.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let home = tempfile::tempdir_in(place).unwrap();
    fs::create_dir(home.path().join("served")).unwrap();
    fs::File::create(home.path().join("served/file")).unwrap().set_len(size).unwrap();
    home
}

/// Returns whether a lab can be built.
pub(crate) fn has_lab(home: &Path) -> bool {
    let output = longhaul(home).args(["lab", "exec", "--", "true"]).output().unwrap();
    if !output.status.success() {
        let why = text(&output.stderr);
        assert!(output.status.code() == Some(77), "{why}");
        skip(&why);
    }
    output.status.success()
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
    objects_of(output)
}

/// Returns the JSON objects that a command printed, whatever its status.
pub(crate) fn objects_of(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout);
    lines
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the first JSON object that a command printed.
#[track_caller]
pub(crate) fn first_object(output: &Output) -> Value {
    let first = objects(output).into_iter().next();
    first.unwrap_or_else(|| panic!("no object: {} {}", text(&output.stdout), text(&output.stderr)))
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
