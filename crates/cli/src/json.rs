//! `--json`: one event a line.

use std::io;
use std::time::Duration;

use longhaul_core::event::{Event, JobEvent, JobTag, Observer};

use crate::line_queue::{self, LineQueue, Output};
use crate::say;

/// Writes events to stdout as they happen.
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
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// Fails where there is no thread to be had.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { queue: LineQueue::start("json", Stdout, Duration::MAX)? })
    }

    /// Waits until all is written, or for about a second nothing was read.
    pub(crate) fn end(&self) {
        self.queue.drain();
    }

    fn line(&self, job: &JobTag, at: Duration, event: &Event) {
        // Every event but one that is only read can be written as JSON.
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
            // For records alone.
            Event::Sample(_) | Event::Sampled { .. } | Event::Replied { .. } | Event::Closed { .. } => return,
            // The last line of a job stays the last.
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
