//! The program as a child process, stopped from outside as the schedule requires.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::faults::fault::{Stop, When};
use crate::faults::run::Ended;

/// Timeout without progress: retries, Retry-After and stall timeouts are shorter here.
const HANG: Duration = Duration::from_secs(25);

/// Creates the command of `longhaul` in `dir`, with its output in files of `logs`.
pub(crate) fn longhaul(dir: &Path, logs: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    for name in
        ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "NETRC", "LONGHAUL_LOG"]
    {
        command.env_remove(name);
    }
    command.current_dir(dir).env("HOME", logs).stdin(Stdio::null());
    command
        .stdout(File::create(logs.join("stdout")).unwrap())
        .stderr(File::create(logs.join("stderr")).unwrap());
    command
}

/// Returns the messages of the last run.
pub(crate) fn messages(logs: &Path) -> String {
    fs::read(logs.join("stderr"))
        .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
}

/// Monitors a run.
pub(crate) struct RunMonitor<'a> {
    /// Bytes of content moved.
    pub(crate) moved: &'a dyn Fn() -> u64,
    /// Counts all activity.
    pub(crate) activity: &'a dyn Fn() -> u64,
    /// Called periodically; returns whether something else blocks the client.
    pub(crate) tick: &'a mut dyn FnMut(u64, Duration) -> bool,
}

impl When {
    /// Returns whether the moment has come; a byte count becomes a point in time once it is reached.
    pub(crate) fn is_reached(&mut self, moved: u64, time: Duration) -> bool {
        if let Self::Later { bytes, millis } = *self
            && moved >= bytes
        {
            *self = Self::Millis(time.as_millis() as u64 + millis);
        }
        match *self {
            Self::Bytes(bytes) => moved >= bytes,
            Self::Millis(millis) => time >= Duration::from_millis(millis),
            Self::Later { .. } => false,
        }
    }
}

impl Stop {
    fn when(&mut self) -> &mut When {
        match self {
            Self::Kill(when) | Self::Interrupt(when) => when,
        }
    }
}

/// Runs `command` to its end, or to the moment of `stop`.
///
/// # Errors
/// The run hangs.
pub(crate) fn run(command: &mut Command, stop: Option<Stop>, watch: RunMonitor<'_>) -> Result<Ended, String> {
    let began = Instant::now();
    let mut child = KillOnDrop(command.spawn().map_err(|error| format!("cannot start: {error}"))?);
    let mut stop = stop;
    let (mut active, mut last) = (Instant::now(), 0);
    let mut killed = false;
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
        let comes = stop.as_mut().is_some_and(|stop| stop.when().is_reached(moved, time));
        match stop.filter(|_| comes) {
            Some(Stop::Kill(_)) => child.0.kill().unwrap(),
            Some(Stop::Interrupt(_)) => {
                let _ = kill_process(Pid::from_child(&child.0), Signal::INT);
            }
            None => {}
        }
        if comes {
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

/// Kills the child on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
