//! `longhaul explain` as a process.
mod emulated;
mod processes;
mod records;

use std::path::Path;

use serde_json::Value;

use crate::support::Ended;
use crate::support::lab::{longhaul_in, objects, ran};

fn explain(home: &Path, args: &[&str]) -> Ended {
    let mut command = longhaul_in(home);
    command.arg("explain").args(args);
    ran(command)
}

/// Returns the explanations that a command prints as JSON.
#[track_caller]
fn explained(home: &Path, args: &[&str]) -> Vec<Value> {
    let explained = objects(&explain(home, &[args, &["--json"]].concat()).ok());
    assert!(!explained.is_empty(), "{args:?}");
    explained
}

/// Checks that a command fails with `code` and an error that contains `words`, and prints no explanation.
#[track_caller]
fn fails(home: &Path, args: &[&str], code: i32, words: &[&str]) {
    let ended = explain(home, args);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(code), ""), "{args:?}: {ended:?}");
    assert!(words.iter().all(|word| ended.stderr.contains(word)), "{args:?}: {ended:?}");
}
