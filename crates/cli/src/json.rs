//! `--json`: one event per line.

use std::io;
use std::time::Duration;

use longhaul_core::advice::{Finding, RunDiagnosis};
use longhaul_core::event::{Event, JobEvent, JobTag, Observer};
use longhaul_core::units::{Rate, seconds};
use serde_json::json;

use crate::line_queue::{self, LineQueue, Output};
use crate::say;

/// Writes events to stdout.
pub(crate) struct JsonLines {
    queue: LineQueue,
}

/// stdout.
struct Stdout;

impl Output for Stdout {
    fn write(&mut self, lines: &[u8], wrote: &dyn Fn()) -> io::Result<()> {
        let written = say::stdout().and_then(|stdout| line_queue::write_all(stdout, lines, wrote));
        let failed = written.as_ref().err().map(io::Error::kind);
        say::note_stdout(written);
        failed.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl JsonLines {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// Fails if the thread cannot be created.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { queue: LineQueue::start("json", Stdout, Duration::MAX)? })
    }

    /// Writes what limited the files of a command together.
    pub(crate) fn run(&self, time: Duration, run: &RunDiagnosis, finding: &Finding) {
        let line = json!({
            "at": seconds::of(time),
            "job": 0,
            "event": "run",
            "files": run.files(),
            "bytes": run.moved(),
            "seconds": seconds::of(time),
            "goodput_bps": Rate::over(run.moved(), time).as_bits_per_sec(),
            "limited_by": finding.limit,
            "shares": finding.shares,
            "advice": finding.advice,
        });
        self.queue.push(format!("{line}\n"));
    }

    /// Waits until all events are written, or until nothing was read for about a second.
    pub(crate) fn end(&self) {
        self.queue.drain();
    }

    fn line(&self, job: &JobTag, at: Duration, event: &Event) {
        // All events serialise except one that is only deserialised.
        let Ok(mut line) = serde_json::to_string(&JobEvent::new(job, at, event)) else { return };
        line.push('\n');
        if event.is_frequent() {
            self.queue.push_frequent(line);
        } else {
            self.queue.push(line);
        }
    }
}

impl Observer for JsonLines {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        match event {
            // These events are for records only.
            Event::Sample(_) | Event::Sampled { .. } | Event::Replied { .. } | Event::Closed { .. } => return,
            // The last line of a job must remain the last.
            Event::Done(_) | Event::Error { .. } => {
                let lines = self.queue.take_dropped();
                if lines > 0 {
                    self.line(job, at, &Event::Dropped { lines });
                }
            }
            _ => {}
        }
        self.line(job, at, event);
    }
}
