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

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use longhaul_core::advice::{Finding, LimitedBy, Shares};
    use longhaul_core::event::{ByteProgress, Done, JobId, Progress, RunDone, Warning};
    use longhaul_core::units::Bytes;
    use serde_json::Value;

    use super::*;

    /// Replaces the values of a JSON text by empty ones, and reduces arrays to their first element.
    pub(crate) fn without_values(value: Value) -> Value {
        match value {
            Value::Null => Value::Null,
            Value::Bool(_) => false.into(),
            Value::Number(_) => 0.into(),
            Value::String(_) => "".into(),
            Value::Array(values) => values.into_iter().take(1).map(without_values).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (name, without_values(value))).collect()
            }
        }
    }

    #[test]
    fn field_names_of_each_event() {
        let (path, size) = (PathBuf::from("/f"), Some(Bytes::new(1)));
        let shares = Shares::of([(LimitedBy::Path, Duration::from_secs(1))]);
        let advice = vec!["wider".to_owned()];
        let witness = r#"{"limit":"path","witness":"queue","seconds":1,"rate_bps":9,"min_rtt":1,"data_rtt":1,
                          "in_flight":9,"window":9,"lost":0}"#;
        let witnesses = vec![serde_json::from_str(witness).unwrap()];
        let finding = Finding { shares, witnesses, advice: advice.clone(), ..Finding::default() };
        let bytes = ByteProgress { size, ..ByteProgress::default() };
        let (stream, reason) = (0, "reset".to_owned());
        let events = [
            Event::Opened { path, size, resumed: Bytes::ZERO, resumable: true, writer: "direct".into() },
            Event::Connected { stream, peer: ([127, 0, 0, 1], 80).into(), rtt: None },
            Event::Retrying { stream, reason: reason.clone(), wait: Duration::ZERO },
            Event::Refused { stream, reason, open: 1 },
            Event::Warning(Warning::NoRanges),
            Event::Progress(Box::new(Progress { bytes, ..Progress::default() })),
            Event::Limited { by: LimitedBy::Path, ago: Duration::ZERO },
            Event::Verifying,
            Event::Dropped { lines: 1 },
            Event::Done(Box::new(Done { finding, ..Done::default() })),
            Event::Run(Box::new(RunDone { shares, advice, ..RunDone::default() })),
            Event::Error { message: "gone".to_owned(), exit_code: 66 },
        ];
        let shown = events.map(|event| {
            let job = if matches!(event, Event::Run(_)) {
                JobTag::of_all()
            } else {
                JobTag::new(JobId::new(1), "http://h/f")
            };
            let line = serde_json::to_value(JobEvent::new(&job, Duration::ZERO, &event)).unwrap();
            format!("{} {}", line["event"].as_str().unwrap(), without_values(line.clone()))
        });
        insta::assert_snapshot!(shown.join("\n"));
    }
}
