//! How an experiment shows itself while it runs, and how it is stopped.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_lab::scenario::{Begun, Execution, ExecutionPhase, RunResult, Watcher};
use signal_hook::flag;

use crate::{interrupt, say};

use super::estimate::{spoken, time_left};
use super::evidence;

/// A signal that asks for an end: the first ends the experiment cleanly, the second at once; cleanup commands then
/// run by themselves.
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
    /// The execution that runs, as "3/18 longhaul recv_buffer=50MB (2)"; empty before the first.
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
            now: String::new(),
            left: None,
        }
    }

    fn line(&self, phase: ExecutionPhase, elapsed: Duration) -> String {
        // What is left was estimated from how long commands ran.
        let (phase, of_command) = match phase {
            ExecutionPhase::Command => (None, elapsed),
            ExecutionPhase::Server => (Some("waiting for the server command"), Duration::ZERO),
            other => (Some(other.name()), Duration::ZERO),
        };
        let now = Some(self.now.as_str()).filter(|now| !now.is_empty()).into_iter();
        let runs = phase.map_or_else(|| spoken(elapsed), |phase| format!("{phase} {}", spoken(elapsed)));
        let left = self.left.map(|left| left.saturating_sub(of_command));
        let left = left.map(|left| format!("about {} left", spoken(left)));
        let parts: Vec<String> = now.map(str::to_owned).chain([runs]).chain(left).collect();
        parts.join(" · ")
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
        self.left = time_left(&results.runs, left);
    }

    fn ticks(&mut self, phase: ExecutionPhase, elapsed: Duration) -> ControlFlow<()> {
        self.bar.set_message(self.line(phase, elapsed));
        self.bar.tick();
        if self.stop.is_asked_for() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn ended(&mut self, _: &Execution<'_>, result: &RunResult) {
        let end = if result.succeeded() { "ok".to_owned() } else { failure(result) };
        self.bar.suspend(|| {
            say::line(format_args!("lab: {}: {:.2} s, {end}", self.now, result.wall_s));
            for infidelity in &result.infidelities {
                say::line(format_args!("lab: WARNING: not the path that was asked for: {infidelity}"));
            }
            for remark in &result.remarks {
                say::line(format_args!("lab: WARNING: {remark}"));
            }
        });
    }

    fn repeats(&mut self, time: u32, limit: u32) {
        self.bar
            .suspend(|| say::line(format_args!("lab: running it again, {time} of {limit} times at most")));
    }

    fn read_record(&mut self, record: &Path) -> Result<Vec<(String, f64)>, String> {
        evidence::values(record)
    }
}

fn failure(result: &RunResult) -> String {
    if let Some(error) = &result.error {
        return format!("FAILED: {error}");
    }
    let how = match (result.exit_code, result.signal) {
        _ if result.timed_out => "FAILED: its time was over".to_owned(),
        (Some(code), _) => format!("FAILED with exit status {code}"),
        (None, Some(signal)) => format!("FAILED by signal {signal}"),
        (None, None) => "FAILED".to_owned(),
    };
    let said = result.said.as_ref().map(|said| format!("; {said}"));
    how + &said.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_runs_for_how_long() {
        let mut terminal = Terminal::new(Stop { signal: Arc::default() });
        let seconds = Duration::from_secs;
        assert_eq!(terminal.line(ExecutionPhase::Prepare, seconds(41)), "prepare 41 s");
        terminal.now = "2/3 curl (1)".to_owned();
        terminal.left = Some(seconds(60));
        assert_eq!(
            terminal.line(ExecutionPhase::Setup, seconds(5)),
            "2/3 curl (1) · setup 5 s · about 60 s left"
        );
        assert_eq!(
            terminal.line(ExecutionPhase::Command, seconds(5)),
            "2/3 curl (1) · 5 s · about 55 s left"
        );
        assert_eq!(
            terminal.line(ExecutionPhase::Command, seconds(99)),
            "2/3 curl (1) · 99 s · about 0 s left"
        );
    }
}
