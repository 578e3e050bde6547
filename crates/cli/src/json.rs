//! `--json`: one event per line.

use std::io;
use std::time::Duration;

use longhaul_core::event::{Event, JobEvent, JobTag, Observer};
use parking_lot::Mutex;

use crate::line_queue::{self, LineQueue, Output};
use crate::stdout;

/// Writes events to stdout.
pub(crate) struct JsonLines {
    queue: LineQueue,
    /// The last line of a job until another one follows: the last one of the command follows what
    /// is of all jobs.
    last: Mutex<Option<String>>,
}

/// stdout.
struct Stdout;

impl Output for Stdout {
    fn write(&mut self, lines: &[u8], wrote: &dyn Fn()) -> io::Result<()> {
        let written = stdout::open().and_then(|stdout| line_queue::write_all(stdout, lines, wrote));
        let failed = written.as_ref().err().map(io::Error::kind);
        stdout::note(written);
        failed.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl JsonLines {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// Fails if the thread cannot be created.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { queue: LineQueue::start("json", Stdout, Duration::MAX)?, last: Mutex::default() })
    }

    /// Waits until all events are written, or until nothing was read for about a second.
    pub(crate) fn end(&self) {
        self.last.lock().take().into_iter().for_each(|line| self.queue.push(line));
        self.queue.drain();
    }

    fn line(&self, job: &JobTag, at: Duration, event: &Event) {
        // All events serialise except one that is only deserialised.
        let Ok(mut line) = serde_json::to_string(&JobEvent::new(job, at, event)) else { return };
        line.push('\n');
        let mut last = self.last.lock();
        let before = if let Event::Run(_) = event { None } else { last.take() };
        before.into_iter().for_each(|line| self.queue.push(line));
        match event {
            Event::Done(_) | Event::Error { .. } => *last = Some(line),
            _ if event.is_frequent() => self.queue.push_frequent(line),
            _ => self.queue.push(line),
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
