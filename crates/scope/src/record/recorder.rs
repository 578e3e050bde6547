//! Writes a record during a transfer.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::event::{Event, JobEvent, JobId, JobTag, Observer};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::telemetry::{Sample, StreamSample};
use longhaul_core::units::{Rate, seconds};
use longhaul_sys::host;
use parking_lot::Mutex;

use super::file::{Earlier, RecordFile, not_written};
use super::schema::{End, Header, Host, MAGIC, Side, Telemetry, VERSION};

/// Flush interval: a crash loses at most this much of the record. A wake-up per sample would double
/// the CPU time of recording.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of unwritten events in memory: many seconds of one stream sampled every 1 ms.
const QUEUE_BYTES: usize = 8 << 20;

/// Writes events to a file on its own thread; callers never wait for the disk.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    messages: Sender<Message>,
    shared: Arc<RecorderState>,
    waker: Thread,
    thread: Mutex<Option<JoinHandle<Result<(), Failure>>>>,
}

#[derive(Debug)]
enum Message {
    Event(Reported),
    End,
}

/// An event with its origin.
#[derive(Debug)]
struct Reported {
    /// The time on the host's clock.
    now: Instant,
    job: JobTag,
    at: Duration,
    event: Event,
}

/// State shared between callers and the writer thread.
#[derive(Debug, Default)]
struct RecorderState {
    /// Bytes of queued events.
    queued: AtomicUsize,
    dropped: AtomicU64,
    /// Number of samples and their CPU time.
    sampled: Mutex<(u64, Duration)>,
}

impl Recorder {
    /// Creates the record at `path`, or replaces an earlier one, and starts the writer thread.
    ///
    /// A transfer ([`Side::Get`], [`Side::Put`]) replaces an earlier record at [`Event::Opened`]: a
    /// run that fails before it has opened the file does not overwrite the record of an earlier
    /// run.
    ///
    /// `what` is recorded verbatim: it must contain no password and no key. `pace` is that of the
    /// header.
    ///
    /// # Errors
    /// The path is not writable, holds no record, or another transfer writes to it.
    pub fn create(
        path: &Path,
        side: Side,
        what: &str,
        pace: Option<Rate>,
        interval: Duration,
    ) -> Result<Self, Failure> {
        let start = Instant::now();
        let earlier = match side {
            Side::Get | Side::Put => Earlier::Kept,
            Side::Serve => Earlier::Replaced,
        };
        let file = RecordFile::create(path, &Header { pace, ..header(side, what, interval) }, earlier)?;
        let (messages, received) = mpsc::channel();
        let shared = Arc::new(RecorderState::default());
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name("record".into())
            .spawn(move || run(start, file, &received, &theirs))
            .map_err(|error| {
                let message = format!("cannot start a thread for the record {}: {error}", path.display());
                Failure::new(FailureKind::Host, message)
            })?;
        let waker = thread.thread().clone();
        Ok(Self { path: path.to_owned(), messages, shared, waker, thread: Mutex::new(Some(thread)) })
    }

    /// Writes the last line with the cost of recording, and waits until the file is synced.
    ///
    /// # Errors
    /// A line could not be written; the record ends before it.
    pub fn finish(&self) -> Result<(), Failure> {
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        // Fails only if the thread has ended; joining it returns the cause.
        let _ = self.messages.send(Message::End);
        self.waker.unpark();
        thread
            .join()
            .unwrap_or_else(|_| Err(not_written(&self.path, &io::Error::other("its thread has failed"))))
    }
}

impl Observer for Recorder {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        match event {
            Event::Progress(_) => return,
            Event::Sampled { samples, cpu } => {
                let mut sampled = self.shared.sampled.lock();
                *sampled = (sampled.0 + samples, sampled.1 + *cpu);
                return;
            }
            _ => {}
        }
        let weight = weight(event);
        let queued = self.shared.queued.fetch_add(weight, Ordering::Relaxed) + weight;
        let too_many = queued > QUEUE_BYTES && event.is_frequent();
        let reported = || Reported { now: Instant::now(), job: job.clone(), at, event: event.clone() };
        if too_many || self.messages.send(Message::Event(reported())).is_err() {
            self.shared.queued.fetch_sub(weight, Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if queued > QUEUE_BYTES / 2 {
            self.waker.unpark();
        }
    }
}

/// Returns the approximate bytes of an event in memory.
fn weight(event: &Event) -> usize {
    let more = match event {
        Event::Sample(sample) => size_of::<Sample>() + size_of::<StreamSample>() * sample.streams.len(),
        Event::Replied { method, target, .. } => method.len() + target.len(),
        Event::Retrying { reason, .. } | Event::Refused { reason, .. } => reason.len(),
        _ => 0,
    };
    size_of::<Message>() + more
}

fn header(side: Side, what: &str, interval: Duration) -> Header {
    let system = rustix::system::uname();
    Header {
        record: MAGIC.to_owned(),
        version: VERSION,
        side,
        what: what.to_owned(),
        pace: None,
        program: concat!("longhaul ", env!("CARGO_PKG_VERSION")).to_owned(),
        started: seconds::of(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        interval: seconds::of(interval),
        host: Host {
            name: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
        },
    }
}

/// Writes events until the end message, or until the recorder is dropped.
fn run(
    start: Instant,
    mut file: RecordFile,
    messages: &Receiver<Message>,
    shared: &RecorderState,
) -> Result<(), Failure> {
    let mut starts = Starts::default();
    loop {
        match messages.try_recv() {
            Ok(Message::Event(reported)) => {
                shared.queued.fetch_sub(weight(&reported.event), Ordering::Relaxed);
                file.write(&starts.line(start, &reported));
                if matches!(reported.event, Event::Opened { .. }) {
                    file.replace();
                }
            }
            Ok(Message::End) => {
                let at = seconds::of(start.elapsed());
                file.write(&End { at, telemetry: cost(shared, file.dropped), outcome: None });
                return file.finish();
            }
            Err(TryRecvError::Empty) => {
                file.flush();
                thread::park_timeout(FLUSH_INTERVAL);
            }
            Err(TryRecvError::Disconnected) => return file.finish(),
        }
    }
}

/// The start of each job, relative to the first job's start, which is the record's time zero.
#[derive(Default)]
struct Starts(HashMap<JobId, Duration>);

impl Starts {
    /// Returns the line of an event; the first line of a job includes its URL.
    fn line<'a>(&mut self, start: Instant, reported: &'a Reported) -> JobEvent<'a> {
        let is_first_job = self.0.is_empty();
        let mut is_new = false;
        let started = self.0.entry(reported.job.id()).or_insert_with(|| {
            is_new = true;
            let since_start = reported.now.saturating_duration_since(start).saturating_sub(reported.at);
            if is_first_job { Duration::ZERO } else { since_start }
        });
        let line = JobEvent::new(&reported.job, reported.at + *started, &reported.event);
        if is_new { line } else { JobEvent { url: None, ..line } }
    }
}

/// Returns the cost of recording; must run on the writer thread.
fn cost(shared: &RecorderState, dropped: u64) -> Telemetry {
    let (samples, sampling) = *shared.sampled.lock();
    let cpu = seconds::of(sampling + host::thread_cpu_time());
    Telemetry { samples, dropped: shared.dropped.load(Ordering::Relaxed) + dropped, cpu }
}

#[cfg(test)]
mod tests;
