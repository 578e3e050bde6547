//! The program as a child process, stopped from outside as the schedule requires.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::faults::fault::{Stop, When};
use crate::support::running::Running;

/// Timeout without progress: retries, Retry-After and stall timeouts are shorter here.
const HANG: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(i32),
    Killed,
}

/// The options of a run's retries and timeouts, so that no verdict depends on the speed of this
/// machine. `is_judged` is whether the schedule determines the exit code, `times_out` whether
/// faults are noticed by the `timeout`, in seconds.
pub(crate) fn patience(retries: u32, timeout: u32, is_judged: bool, times_out: bool) -> [String; 3] {
    let (retries, timeout) = match (is_judged, times_out) {
        // Faults may end the run: a timeout on a busy machine may, too.
        (false, _) => (retries, timeout),
        // Nothing is silent, so that no timeout is to pass.
        (true, false) => (retries, 30),
        // On a busy machine the timeout may pass more often than the faults require.
        (true, true) => (retries + 20, timeout),
    };
    [
        "--connect-timeout=30s".to_owned(),
        format!("--stall-timeout={timeout}s"),
        format!("--retries={retries}"),
    ]
}

/// Creates the command of `longhaul` in `dir`, with its output in files of `logs`.
pub(crate) fn longhaul(dir: &Path, logs: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    for name in
        ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "NETRC", "LONGHAUL_LOG"]
    {
        command.env_remove(name);
    }
    let file = |name| File::create(logs.join(name)).unwrap();
    command.current_dir(dir).env("HOME", logs).stdin(Stdio::null());
    command.stdout(file("stdout")).stderr(file("stderr"));
    command
}

pub(crate) fn messages(logs: &Path) -> String {
    fs::read(logs.join("stderr"))
        .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
}

/// Adds a run's name and messages to what is wrong with it.
pub(crate) fn in_context(name: impl Into<String>, logs: &Path) -> impl Fn(String) -> String {
    let name = name.into();
    move |what| {
        format!("{name}: {what}\n  stderr: {}", messages(logs).trim_end().replace('\n', "\n          "))
    }
}

/// Checks for panics, unknown exit codes, and an end that nothing has asked for.
pub(crate) fn check_end(ended: Ended, stop: Option<Stop>, messages: &str) -> Result<(), String> {
    if let Some(line) = messages.lines().find(|line| line.contains("panicked at")) {
        return Err(format!("a thread panics: {line}"));
    }
    match ended {
        Ended::Exit(130) if stop.is_none() => Err("exit 130 without an interrupt".to_owned()),
        Ended::Exit(0 | 65..=69 | 71..=78 | 130) | Ended::Killed => Ok(()),
        Ended::Exit(code) => Err(format!("exit {code}, which is none of a failed transfer")),
    }
}

pub(crate) struct RunMonitor<'a> {
    pub(crate) moved: &'a dyn Fn() -> u64,
    pub(crate) activity: &'a dyn Fn() -> u64,
    /// Called periodically; returns whether something else blocks the client.
    pub(crate) tick: &'a mut dyn FnMut(u64, Duration) -> bool,
}

impl When {
    /// Returns whether the moment has come; a byte count becomes a point in time once it is
    /// reached.
    pub(crate) fn is_reached(&mut self, moved: u64, time: Duration) -> bool {
        if let Self::Later(bytes, millis) = *self
            && moved >= bytes
        {
            *self = Self::Millis(time.as_millis() as u64 + millis);
        }
        match *self {
            Self::Bytes(bytes) => moved >= bytes,
            Self::Millis(millis) => time >= Duration::from_millis(millis),
            Self::Later(..) => false,
        }
    }
}

/// Runs `command` to its end, or to the moment of `stop`; fails if it hangs.
pub(crate) fn run(command: &mut Command, stop: Option<Stop>, watch: RunMonitor<'_>) -> Result<Ended, String> {
    let began = Instant::now();
    let mut child = Running(command.spawn().map_err(|error| format!("cannot start: {error}"))?);
    let (mut active, mut last, mut stop, mut killed) = (Instant::now(), 0, stop, false);
    loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            // The run ended before it was killed.
            return match status.code() {
                Some(code) => Ok(Ended::Exit(code)),
                // An interrupt may arrive before the program handles it.
                None if killed => Ok(Ended::Killed),
                None => Err(format!("ended by a signal: {status}")),
            };
        }
        let (moved, time) = ((watch.moved)(), began.elapsed());
        if let Some(Stop::Kill(when) | Stop::Interrupt(when)) = &mut stop
            && when.is_reached(moved, time)
        {
            let signal = if matches!(stop, Some(Stop::Kill(_))) { Signal::KILL } else { Signal::INT };
            let _ = kill_process(Pid::from_child(&child.0), signal);
            (stop, killed) = (None, true);
        }
        let held_up = (watch.tick)(moved, time);
        let now = (watch.activity)();
        if now != last || held_up {
            (active, last) = (Instant::now(), now);
        }
        if active.elapsed() > HANG {
            return Err(format!("nothing moves for {HANG:?}, and it does not end"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
