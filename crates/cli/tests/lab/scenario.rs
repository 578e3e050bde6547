//! A scenario in a directory of its own, for `longhaul lab run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::longhaul;

pub(crate) struct Scenario {
    /// For the results, and the scenario where it is made here; the programs' home.
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

    /// Takes one of ours, where it stands.
    pub(crate) fn ours(file: &Path) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), file: file.to_owned() }
    }

    pub(crate) fn rewrite(&self, toml: &str) {
        fs::write(&self.file, toml).unwrap();
    }

    /// Returns a path beside the scenario, which is LAB_DIR.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a path in the directory of the results.
    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.path("out").join(name)
    }

    /// The same from the root, as the program tells of it.
    pub(crate) fn real_out(&self, name: &str) -> PathBuf {
        self.out(name).canonicalize().unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = longhaul(self.dir.path());
        command.args(["lab", "run"]).arg(&self.file).arg("--out").arg(self.path("out"));
        // A test judges a busy machine's path by itself, where it does.
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
        let told = |run: &Value| format!("{} {}", run["name"].as_str().unwrap(), run["repetition"]);
        self.results().iter().map(told).collect()
    }
}
