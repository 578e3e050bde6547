//! Probes find what a path and a server hold.
mod emulated;
mod loopback;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use crate::support::Ended;
use crate::support::held_path::{is_held, until_held};
use crate::support::lab::{exec_in, needs_lab, ran};

const SERVE: &str = "exec longhaul serve . --listen $LAB_SERVER:8080";
const MEASURE: &str = "exec longhaul serve . --listen $LAB_SERVER:8080 --measure";
const PROBE: &str = "exec longhaul probe http://$LAB_SERVER:8080/f --json --no-memory";

/// Runs a command on the client of a path beside one on the server, which listens on port 8080, in
/// a directory with the file `f` of `size` bytes, and judges the client's output. Repeats a run
/// that is wrong where this machine did not hold the path.
fn on_path(path: &str, server: &str, size: usize, client: &str, judge: impl Fn(&Value)) {
    let Some(()) = needs_lab() else { return };
    let attempt = || {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("f"), vec![7; size]).unwrap();
        let options = ["--strict", "--hosts", "tuned", "--server-port", "8080", "--server", server];
        let options: Vec<_> = path.split(' ').chain(options).collect();
        ran(exec_in(home.path(), &options, client))
    };
    let judge = |ended: &Ended| {
        assert!(ended.status.success() || !is_held(ended), "{ended:?}");
        judge(&serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}")));
    };
    let is_right = |ended: &Ended| catch_unwind(AssertUnwindSafe(|| judge(ended))).is_ok();
    until_held(&format!("a probe over {path}"), attempt, is_held, is_right).iter().for_each(judge);
}

fn within(value: &Value, bounds: std::ops::Range<f64>) -> bool {
    value.as_f64().is_some_and(|value| bounds.contains(&value))
}
