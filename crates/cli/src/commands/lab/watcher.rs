//! How an experiment shows itself while it runs, and how it is stopped.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_lab::scenario::{Begun, Execution, RunResult, Watcher};
use signal_hook::flag;

use crate::{interrupt, say};

use super::estimate::{spoken, time_left};
use super::evidence;

/// A signal that asks for an end: the first ends the experiment cleanly, the second at once.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    /// The signal's number; 0 where none came.
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens for SIGINT, SIGTERM and SIGHUP, without a thread.
    ///
    /// # Errors
    /// Fails where the kernel refuses.
    pub(super) fn listen() -> io::Result<Self> {
        let signal = Arc::<AtomicUsize>::default();
        let again = Arc::<AtomicBool>::default();
        for number in interrupt::heard() {
            // In this order: the first signal arms what the second meets.
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&again))?;
            flag::register(number, Arc::clone(&again))?;
            flag::register_usize(number, Arc::clone(&signal), usize::try_from(number).unwrap_or(1))?;
        }
        Ok(Self { signal })
    }

    fn is_asked_for(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Returns the exit code of a process that the signal ended, as shells report it.
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::try_from(128 + self.signal.load(Ordering::Relaxed)).unwrap_or(130))
    }
}

/// Shows an experiment on stderr: a line that moves where that is a terminal, and a line for each execution.
pub(super) struct Terminal {
    stop: Stop,
    bar: ProgressBar,
    /// The execution that runs, as "3/18 longhaul recv_buffer=50MB (2)".
    now: String,
    /// How long all that is left takes, the running execution from its start.
    left: Option<Duration>,
}

impl Terminal {
    pub(super) fn new(stop: Stop) -> Self {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        Self {
            stop,
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner())),
            now: "preparing".to_owned(),
            left: None,
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let left = self.left.map(|left| left.saturating_sub(elapsed));
        let left = left.map_or_else(String::new, |left| format!(" · about {} left", spoken(left)));
        format!("{} · {}{left}", self.now, spoken(elapsed))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Terminal {
    fn begins(&mut self, begun: &Begun<'_>) {
        let Begun { number, total, left, results } = begun;
        if let Some(execution) = left.first() {
            self.now = format!("{number}/{total} {execution}");
        }
        self.left = time_left(&results.runs, left, Duration::ZERO);
    }

    fn ticks(&mut self, elapsed: Duration) -> ControlFlow<()> {
        self.bar.set_message(self.line(elapsed));
        self.bar.tick();
        if self.stop.is_asked_for() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn ended(&mut self, _: &Execution<'_>, result: &RunResult) {
        let end = if result.succeeded() { "ok".to_owned() } else { failure(result) };
        self.bar.suspend(|| {
            say::line(format_args!("lab: {}: {:.2} s, {end}", self.now, result.wall_s));
            for warning in &result.warnings {
                say::line(format_args!("lab: WARNING: {warning}"));
            }
        });
    }

    fn read_record(&mut self, record: &Path) -> Result<Vec<(String, f64)>, String> {
        evidence::values(record)
    }
}

fn failure(result: &RunResult) -> String {
    if let Some(error) = &result.error {
        return format!("FAILED: {error}");
    }
    if result.timed_out {
        return "FAILED: its time was over".to_owned();
    }
    match (result.exit_code, result.signal) {
        (Some(code), _) => format!("FAILED with exit status {code}"),
        (None, Some(signal)) => format!("FAILED by signal {signal}"),
        (None, None) => "FAILED".to_owned(),
    }
}
