//! Runs in a terminal.

use std::process::{Command, Stdio};

use super::{
    program::{Ended, Get, Running},
    skip,
};

/// Runs a shell command in a terminal of 100 columns, in the directory of `run`; types the keys
/// once the prompt is shown.
pub(crate) fn terminal(
    run: &Get,
    line: &str,
    env: &[(&str, &str)],
    prompt_and_keys: Option<[&str; 2]>,
) -> Option<Ended> {
    if Command::new("script").arg("--version").output().is_err() {
        skip("script (util-linux) is not installed");
        return None;
    }
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty rows 24 cols 100; {line}"), "/dev/null"]).current_dir(run.dir());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").env("HOME", run.dir()).env("SHELL", "/bin/sh").envs(env.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if prompt_and_keys.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut running = Running::new(command);
    if let Some([prompt, keys]) = prompt_and_keys {
        running.until_printed(prompt);
        running.type_keys(keys);
    }
    Some(running.end())
}

/// Returns a command line of the program.
pub(crate) fn program(words: &str) -> String {
    format!("{} {words}", env!("CARGO_BIN_EXE_longhaul"))
}
