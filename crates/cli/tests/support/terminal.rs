//! Runs in a terminal.

use std::fs;
use std::process::{Command, Stdio};

use super::{
    program::{Ended, Get, Running},
    skip::skip,
};

/// Runs a shell command in a terminal of 100 columns, in the directory of `run`, with `keys` as input.
pub(crate) fn terminal(run: &Get, line: &str, env: &[(&str, &str)], keys: Option<&str>) -> Option<Ended> {
    if Command::new("script").arg("--version").output().is_err() {
        skip("script (util-linux) is not installed");
        return None;
    }
    let line = format!("stty rows 24 cols 100; {line}");
    let mut command = match keys {
        None => Command::new("script"),
        Some(keys) => {
            fs::write(run.path("keys"), keys).unwrap();
            let mut typist = Command::new("sh");
            typist.args(["-c", "(sleep 1.5; cat keys; sleep 1.5) | script \"$@\"", "sh"]);
            typist
        }
    };
    command.args(["-qec", &line, "/dev/null"]).current_dir(run.dir());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").env("HOME", run.dir()).env("SHELL", "/bin/sh").envs(env.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    Some(Running::new(command).end())
}

/// Returns a command line of the program.
pub(crate) fn program(words: &str) -> String {
    format!("{} {words}", env!("CARGO_BIN_EXE_longhaul"))
}
