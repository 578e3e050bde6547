//! Writes a record during a transfer.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::event::{Event, JobEvent, JobId, JobTag, Observer};
use longhaul_core::telemetry::{Sample, StreamSample};
use longhaul_core::units::seconds;
use longhaul_sys::host;

use super::error::RecordError;
use super::file::{Earlier, RecordFile};
use super::schema::{End, Header, Host, MAGIC, Side, Telemetry, VERSION};

/// Flush interval: a crash loses at most this much of the record. A wake-up per sample would double the CPU time of recording.
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
    thread: Mutex<Option<JoinHandle<Result<(), RecordError>>>>,
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
    /// A transfer ([`Side::Get`], [`Side::Put`]) replaces an earlier record at [`Event::Opened`]: a transfer
    /// that fails before keeps the record of a better run.
    /// leaves that of a better run alone.
    ///
    /// `what` is recorded verbatim: it must contain no password and no key.
    ///
    /// # Errors
    /// [`RecordError`]: the path is not writable, holds no record, or another transfer writes to it.
    pub fn create(path: &Path, side: Side, what: &str, interval: Duration) -> Result<Self, RecordError> {
        let start = Instant::now();
        let earlier = match side {
            Side::Get | Side::Put => Earlier::Kept,
            Side::Serve => Earlier::Replaced,
        };
        let file = RecordFile::create(path, &header(side, what, interval), earlier)?;
        let (messages, received) = mpsc::channel();
        let shared = Arc::new(RecorderState::default());
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name("record".into())
            .spawn(move || run(start, file, &received, &theirs))
            .map_err(|source| RecordError::Thread { path: path.to_owned(), source })?;
        let waker = thread.thread().clone();
        Ok(Self { path: path.to_owned(), messages, shared, waker, thread: Mutex::new(Some(thread)) })
    }

    /// Writes the last line with the cost of recording, and waits until the file is synced.
    ///
    /// # Errors
    /// [`RecordError::Write`] if a line could not be written; the record ends before it.
    pub fn finish(&self) -> Result<(), RecordError> {
        let Some(thread) = lock(&self.thread).take() else { return Ok(()) };
        // Fails only if the thread has ended; joining it returns the cause.
        let _ = self.messages.send(Message::End);
        self.waker.unpark();
        thread.join().unwrap_or_else(|_| {
            let source = io::Error::other("its thread has failed");
            Err(RecordError::Write { path: self.path.clone(), source })
        })
    }
}

impl Observer for Recorder {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        match event {
            Event::Progress(_) => return,
            Event::Sampled { samples, cpu } => {
                let mut sampled = lock(&self.shared.sampled);
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
) -> Result<(), RecordError> {
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
                file.write(&End { at, telemetry: cost(shared, file.dropped()), outcome: None });
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
    let (samples, sampling) = *lock(&shared.sampled);
    let cpu = seconds::of(sampling + host::thread_cpu_time());
    Telemetry { samples, dropped: shared.dropped.load(Ordering::Relaxed) + dropped, cpu }
}

/// Locks a mutex, even if another thread panicked with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use longhaul_core::event::{Done, Warning};
    use longhaul_core::tcp_info::{SIZE, TcpInfo};
    use longhaul_core::telemetry::{PageCache, Sockets};
    use longhaul_core::units::Bytes;
    use std::fs;

    use super::super::{Record, RecordErrorKind};
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);

    fn create(path: &Path) -> Result<Recorder, RecordError> {
        Recorder::create(path, Side::Get, "http://host/file", INTERVAL)
    }

    fn sample(streams: usize) -> Event {
        sample_with(streams, TcpInfo::from_bytes(&[1; SIZE]))
    }

    fn sample_with(streams: usize, tcp: TcpInfo) -> Event {
        let tcp = Some(tcp);
        let stream = |stream| StreamSample { stream, unread: Bytes::new(7), tcp };
        let streams: Vec<_> = (0..streams).map(stream).collect();
        let page_cache = Some(PageCache { dirty: Bytes::new(4096), ..PageCache::default() });
        let sockets = Sockets::of(&streams, Default::default());
        Event::Sample(Box::new(Sample { sockets, streams, page_cache, ..Sample::default() }))
    }

    fn opened() -> Event {
        Event::Opened {
            path: "/f".into(),
            size: None,
            resumed: Bytes::ZERO,
            resumable: true,
            writer: "direct".into(),
        }
    }

    fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn report(recorder: &Recorder, job: u64, at: Duration, event: &Event) {
        recorder.on(&JobTag::new(JobId::new(job), "http://host/file"), at, event);
    }

    fn done(path: &str) -> Event {
        Event::Done(Box::new(Done { path: path.into(), ..Done::default() }))
    }

    #[test]
    fn written_events_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        report(
            &recorder,
            1,
            millis(1),
            &Event::Connected { stream: 0, peer: "[::1]:80".parse().unwrap(), rtt: None },
        );
        report(&recorder, 1, millis(2), &sample(2));
        report(&recorder, 1, millis(3), &Event::Progress(Default::default()));
        report(&recorder, 1, millis(4), &Event::Warning(Warning::NoRanges));
        let target = "/f?...".to_owned();
        let (method, sent, took) = ("GET".to_owned(), Bytes::new(5), millis(3));
        report(
            &recorder,
            1,
            millis(5),
            &Event::Replied { stream: 1, method, target, status: 206, sent, took },
        );
        report(&recorder, 1, millis(6), &Event::Sampled { samples: 1, cpu: millis(500) });
        report(&recorder, 1, millis(7), &done("/f"));
        recorder.finish().unwrap();
        recorder.finish().unwrap();
        report(&recorder, 1, millis(8), &sample(1));

        let record = Record::load(&path).unwrap();
        assert_eq!(
            (record.header.side, record.header.interval, record.damage.as_deref()),
            (Side::Get, 0.01, None)
        );
        assert_eq!((record.header.what.as_str(), record.header.version), ("http://host/file", VERSION));
        let (at, read) = &record.samples[0];
        assert_eq!((*at, record.samples.len(), read.streams.len()), (0.002, 1, 2));
        assert_eq!((read.sockets.unread.get(), read.page_cache.unwrap().dirty.get()), (14, 4096));
        assert_eq!(
            read.streams[1].tcp.as_ref().unwrap().get("tcpi_bytes_acked"),
            Some(0x0101_0101_0101_0101)
        );
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.contains(r#""tcpi_rcv_wnd":16843009"#), "{written}");
        assert_eq!(record.events.len(), 4, "{written}");
        assert_eq!(record.outcome(), Some(&done("/f")));
        let with_url = written.lines().filter(|line| line.contains(r#""url":"http://host/file""#));
        assert_eq!((with_url.count(), written.matches(r#""job":1,"#).count()), (1, 5), "{written}");
        let end = record.end.unwrap();
        assert_eq!((end.telemetry.samples, end.telemetry.dropped), (1, 0));
        assert!((0.5..0.6).contains(&end.telemetry.cpu), "{end:?}");
    }

    #[test]
    fn a_later_job_stands_where_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        report(&recorder, 1, millis(2), &sample(1));
        thread::sleep(millis(50));
        (0..3).for_each(|at| report(&recorder, 2, millis(at), &sample(1)));
        report(&recorder, 1, millis(60), &sample(1));
        recorder.finish().unwrap();
        let jobs = Record::load_jobs(&path).unwrap();
        let times = |job: usize| jobs[job].samples.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!((jobs.len(), times(0)), (2, vec![0.002, 0.06]));
        let second = times(1);
        assert!(second[0] >= 0.05 && (second[2] - second[0] - 0.002).abs() < 1e-5, "{second:?}");
    }

    #[test]
    fn lines_reach_kernel_within_flush_interval() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        // The header is written before any event.
        assert!(Record::load(&path).unwrap().damage.unwrap().contains("without an end"));
        report(&recorder, 1, millis(1), &sample(1));
        thread::sleep(FLUSH_INTERVAL * 3);
        assert_eq!(Record::load(&path).unwrap().samples.len(), 1);
    }

    #[test]
    fn replaces_a_record_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let fails = |path: &Path, word: &str| {
            let error = create(path).unwrap_err();
            assert_eq!(error.kind(), RecordErrorKind::CannotCreate, "{error}");
            let text = error.to_string();
            assert!(text.contains(word) && text.contains(path.to_str().unwrap()), "{text}");
        };
        fs::write(&path, "").unwrap();
        let recorder = create(&path).unwrap();
        fails(&path, "another transfer");
        (0..100).for_each(|at| report(&recorder, 1, millis(at), &sample(1)));
        recorder.finish().unwrap();
        let next = create(&path).unwrap();
        report(&next, 1, millis(1), &opened());
        next.finish().unwrap();
        assert_eq!(Record::load(&path).unwrap().samples.len(), 0);
        // A record truncated by a crash is a record nevertheless.
        fs::write(&path, r#"{"rec"#).unwrap();
        Recorder::create(&path, Side::Serve, "/srv", INTERVAL).unwrap().finish().unwrap();
        assert_eq!(Record::load(&path).unwrap().header.side, Side::Serve);

        fs::write(&path, "my thesis").unwrap();
        fails(&path, "something else");
        assert_eq!(fs::read_to_string(&path).unwrap(), "my thesis");
        fails(dir.path(), "a directory");
        fails(Path::new("/dev/null"), "a device");
        fails(&dir.path().join("none/r.jsonl"), "No such file");
        fails(&path.join("r.jsonl"), "Not a directory");
    }

    #[test]
    fn an_earlier_record_is_kept_until_the_file_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let first = create(&path).unwrap();
        (0..100).for_each(|at| report(&first, 1, millis(at), &sample(1)));
        report(&first, 1, millis(100), &done("first"));
        first.finish().unwrap();
        let outcome = || Record::load(&path).unwrap().outcome().cloned();

        let failing = create(&path).unwrap();
        report(&failing, 1, millis(1), &Event::Warning(Warning::NoRanges));
        thread::sleep(FLUSH_INTERVAL * 2);
        assert_eq!(
            create(&path).unwrap_err().kind(),
            RecordErrorKind::CannotCreate,
            "it is locked all the same"
        );
        report(&failing, 1, millis(2), &Event::Error { message: "failed".into(), exit_code: 69 });
        failing.finish().unwrap();
        assert_eq!(outcome(), Some(done("first")));
        let killed = create(&path).unwrap();
        report(&killed, 1, millis(1), &sample(1));
        drop(killed);
        assert_eq!(outcome(), Some(done("first")));

        // The writer thread releases the lock when its channel closes.
        let next = (0..50).find_map(|_| {
            thread::sleep(FLUSH_INTERVAL);
            create(&path).ok()
        });
        let next = next.unwrap();
        report(&next, 1, millis(1), &Event::Warning(Warning::NoRanges));
        report(&next, 1, millis(2), &opened());
        thread::sleep(FLUSH_INTERVAL * 3);
        assert_eq!(Record::load(&path).unwrap().events.len(), 2, "what came before is there, and soon");
        report(&next, 1, millis(3), &sample(1));
        report(&next, 1, millis(4), &done("next"));
        next.finish().unwrap();
        let record = Record::load(&path).unwrap();
        assert_eq!((record.damage, record.events.len(), record.samples.len()), (None, 3, 1));
        assert_eq!(outcome(), Some(done("next")));
    }

    /// Drops samples and no other events.
    #[test]
    fn never_waits_and_counts_what_it_drops() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        // More than a thread can write in this time: a line of 2,000 streams has 1 MB.
        let many = sample_with(2000, TcpInfo::from_bytes(&[1; 100]));
        let began = Instant::now();
        (0..50).for_each(|at| report(&recorder, 1, millis(at), &many));
        report(&recorder, 1, millis(50), &done("/f"));
        assert!(began.elapsed() < millis(500), "{:?}", began.elapsed());
        recorder.finish().unwrap();
        let record = Record::load(&path).unwrap();
        assert_eq!(record.outcome(), Some(&done("/f")));
        let dropped = record.end.unwrap().telemetry.dropped;
        assert!(dropped > 0, "nothing had to be dropped");
        assert_eq!(record.samples.len() as u64 + dropped, 50);
        assert_eq!(recorder.shared.queued.load(Ordering::Relaxed), 0);
    }
}
