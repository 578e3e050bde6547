//! A scenario in its own directory, for `longhaul lab run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::lab::command::longhaul;

pub(crate) struct Scenario {
    /// Holds the results, and the scenario if it is written by the test; the programs' home.
    dir: TempDir,
    file: PathBuf,
}

impl Scenario {
    pub(crate) fn new(toml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scenario = Self { file: dir.path().join("small.toml"), dir };
        scenario.rewrite(toml);
        scenario
    }

    /// Uses one of Longhaul's scenarios in place.
    pub(crate) fn at(file: &Path) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), file: file.to_owned() }
    }

    pub(crate) fn rewrite(&self, toml: &str) {
        fs::write(&self.file, toml).unwrap();
    }

    /// Returns a path beside the scenario, in LAB_DIR.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a path in the results directory.
    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.path("out").join(name)
    }

    /// Returns an absolute path in the results directory, as in the program's messages.
    pub(crate) fn real_out(&self, name: &str) -> PathBuf {
        self.out(name).canonicalize().unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = longhaul(self.dir.path());
        command.args(["lab", "run"]).arg(&self.file).arg("--out").arg(self.path("out"));
        // Tests judge the path of a busy machine themselves.
        if !args.contains(&"--retries") {
            command.args(["--retries", "0"]);
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.out(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns the results of the executions.
    pub(crate) fn results(&self) -> Vec<Value> {
        let json: Value = serde_json::from_str(&self.read("results.json")).unwrap();
        json["runs"].as_array().unwrap().clone()
    }

    /// Returns the executions as "name repetition".
    pub(crate) fn executed(&self) -> Vec<String> {
        let label = |run: &Value| format!("{} {}", run["name"].as_str().unwrap(), run["repetition"]);
        self.results().iter().map(label).collect()
    }
}
