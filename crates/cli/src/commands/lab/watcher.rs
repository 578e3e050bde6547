//! Shows the progress of an experiment, and stops it.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_lab::scenario::{Execution, ExecutionPhase, ExecutionStart, RunResult, Watcher};
use longhaul_scope::figures;
use signal_hook::flag;

use crate::{exit, interrupt, say};

use super::estimate::{format_duration, time_left};

/// A stop signal: the first ends the experiment cleanly, the second ends the process at once;
/// waiting cleanup shells then run by themselves.
#[derive(Debug, Clone)]
pub(super) struct StopSignal {
    /// The signal's number; 0 without a signal.
    signal: Arc<AtomicUsize>,
}

impl StopSignal {
    /// Handles SIGINT, SIGTERM and SIGHUP, without a thread.
    ///
    /// # Errors
    /// Fails if the kernel refuses a handler.
    pub(super) fn listen() -> io::Result<Self> {
        let signal = Arc::<AtomicUsize>::default();
        let again = Arc::<AtomicBool>::default();
        for number in interrupt::unignored_signals() {
            // Registration order: the first signal arms the shutdown for the second.
            flag::register_conditional_shutdown(number, exit::of_signal(number).into(), Arc::clone(&again))?;
            flag::register(number, Arc::clone(&again))?;
            flag::register_usize(number, Arc::clone(&signal), usize::try_from(number).unwrap_or(1))?;
        }
        Ok(Self { signal })
    }

    fn is_requested(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Returns the exit code of a process killed by the signal, like a shell.
    pub(super) fn exit_code(&self) -> ExitCode {
        exit::of_signal(self.signal.load(Ordering::Relaxed)).into()
    }
}

/// Shows an experiment on stderr: a progress line on a terminal, and a line per execution.
pub(super) struct Terminal {
    stop: StopSignal,
    bar: ProgressBar,
    /// The running execution, as "3/18 longhaul recv_buffer=50MB (2)"; empty before the first.
    now: String,
    /// Expected duration of the remaining executions, including the whole current one.
    left: Option<Duration>,
}

impl Terminal {
    pub(super) fn new(stop: StopSignal) -> Self {
        // indicatif hides the bar if stderr is no terminal.
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
        // The estimate covers the durations of measured commands only.
        let (phase, of_command) = match phase {
            ExecutionPhase::Command => (None, elapsed),
            ExecutionPhase::Server => (Some("waiting for the server command"), Duration::ZERO),
            other => (Some(other.name()), Duration::ZERO),
        };
        let now = Some(self.now.as_str()).filter(|now| !now.is_empty()).into_iter();
        let runs = phase.map_or_else(
            || format_duration(elapsed),
            |phase| format!("{phase} {}", format_duration(elapsed)),
        );
        let left = self.left.map(|left| left.saturating_sub(of_command));
        let left = left.map(|left| format!("about {} left", format_duration(left)));
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
    fn execution_started(&mut self, begun: &ExecutionStart<'_>) {
        let ExecutionStart { number, total, left, results } = begun;
        if let Some(execution) = left.first() {
            self.now = format!("{number}/{total} {execution}");
        }
        self.left = time_left(&results.runs, left);
    }

    fn tick(&mut self, phase: ExecutionPhase, elapsed: Duration) -> ControlFlow<()> {
        self.bar.set_message(self.line(phase, elapsed));
        self.bar.tick();
        if self.stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn execution_ended(&mut self, _: &Execution<'_>, result: &RunResult) {
        let end = result.failure().unwrap_or_else(|| "ok".to_owned());
        self.bar.suspend(|| {
            say::line(format_args!("lab: {}: {:.2} s, {end}", self.now, result.times.wall_s));
            for infidelity in &result.path.infidelities {
                say::line(format_args!("lab: not exactly the path that was asked for: {infidelity}"));
            }
            for remark in &result.remarks {
                say::line(format_args!("lab: WARNING: {remark}"));
            }
        });
    }

    fn execution_repeated(&mut self, time: u32, limit: u32) {
        self.bar
            .suspend(|| say::line(format_args!("lab: running it again, {time} of {limit} times at most")));
    }

    fn read_record(&mut self, record: &Path) -> Result<Vec<(String, f64)>, String> {
        figures::values_of_file(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_execution_and_its_duration() {
        let mut terminal = Terminal::new(StopSignal { signal: Arc::default() });
        let seconds = Duration::from_secs;
        assert_eq!(terminal.line(ExecutionPhase::Prepare, seconds(41)), "prepare 41 s");
        terminal.now = "2/3 curl (1)".to_owned();
        terminal.left = Some(seconds(60));
        for (phase, passed, line) in [
            (ExecutionPhase::Setup, 5, "2/3 curl (1) · setup 5 s · about 60 s left"),
            (ExecutionPhase::Command, 5, "2/3 curl (1) · 5 s · about 55 s left"),
            (ExecutionPhase::Command, 99, "2/3 curl (1) · 99 s · about 0 s left"),
        ] {
            assert_eq!(terminal.line(phase, seconds(passed)), line);
        }
    }
}
