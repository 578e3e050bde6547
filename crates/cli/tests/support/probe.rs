//! `longhaul probe`, and its report.

use serde_json::Value;

use super::program::{Ended, longhaul};

pub(crate) fn probe(args: &[&str]) -> Ended {
    longhaul("probe").args(args).run()
}

/// Returns the object that `--json` prints.
#[track_caller]
pub(crate) fn report(ended: &Ended) -> Value {
    let [report] = &ended.json()[..] else { panic!("{ended:?}") };
    report.clone()
}

/// Returns whether a line reports the missing measurement.
pub(crate) fn misses(report: &Value, words: &str) -> bool {
    report["missing"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains(words))
}
