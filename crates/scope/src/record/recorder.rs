//! Writes a record while the transfer runs.

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

/// How often what happened is handed to the kernel: a crash costs no more of the record than this.
/// To wake up for each sample instead would double what recording costs.
const TURN: Duration = Duration::from_millis(100);

/// Memory for what happened and is not yet written: many seconds of one stream at 1 ms.
const QUEUE: usize = 8 << 20;

/// Writes events to a file, on a thread of its own: no caller waits for the disk.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    messages: Sender<Message>,
    shared: Arc<Shared>,
    waker: Thread,
    thread: Mutex<Option<JoinHandle<Result<(), RecordError>>>>,
}

#[derive(Debug)]
enum Message {
    Event(Reported),
    End,
}

/// An event as it was reported.
#[derive(Debug)]
struct Reported {
    /// When, by the clock of this host.
    now: Instant,
    job: JobTag,
    at: Duration,
    event: Event,
}

/// What the callers and the thread share.
#[derive(Debug, Default)]
struct Shared {
    /// Bytes of memory that wait for the thread.
    queued: AtomicUsize,
    dropped: AtomicU64,
    /// Samples taken, and the CPU time of that.
    sampled: Mutex<(u64, Duration)>,
}

impl Recorder {
    /// Creates the record at `path`, or replaces one that stands there, and begins to write.
    ///
    /// A transfer ([`Side::Get`], [`Side::Put`]) replaces an earlier record with [`Event::Opened`]: one that fails before
    /// leaves that of a better run alone.
    ///
    /// `what` is recorded as it is: it must hold no password and no key.
    ///
    /// # Errors
    /// [`RecordError`]: it cannot be created, something that is no record stands there, or another transfer
    /// is writing it.
    pub fn create(path: &Path, side: Side, what: &str, interval: Duration) -> Result<Self, RecordError> {
        let start = Instant::now();
        let earlier = match side {
            Side::Get | Side::Put => Earlier::Kept,
            Side::Serve => Earlier::Replaced,
        };
        let file = RecordFile::create(path, &header(side, what, interval), earlier)?;
        let (messages, received) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name("record".into())
            .spawn(move || run(start, file, &received, &theirs))
            .map_err(|source| RecordError::Thread { path: path.to_owned(), source })?;
        let waker = thread.thread().clone();
        Ok(Self { path: path.to_owned(), messages, shared, waker, thread: Mutex::new(Some(thread)) })
    }

    /// Writes the last line, with what recording has cost, and waits until all is on the disk.
    ///
    /// # Errors
    /// [`RecordError::Write`] where any line could not be written; the record then ends before that.
    pub fn finish(&self) -> Result<(), RecordError> {
        let Some(thread) = lock(&self.thread).take() else { return Ok(()) };
        // Fails only where the thread has ended, and then joining it reports why.
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
        let too_many = queued > QUEUE && event.is_frequent();
        let reported = || Reported { now: Instant::now(), job: job.clone(), at, event: event.clone() };
        if too_many || self.messages.send(Message::Event(reported())).is_err() {
            self.shared.queued.fetch_sub(weight, Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if queued > QUEUE / 2 {
            self.waker.unpark();
        }
    }
}

/// Returns about how much memory an event takes.
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

/// Writes until the end is reported, or the recorder is dropped.
fn run(
    start: Instant,
    mut file: RecordFile,
    messages: &Receiver<Message>,
    shared: &Shared,
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
                thread::park_timeout(TURN);
            }
            Err(TryRecvError::Disconnected) => return file.finish(),
        }
    }
}

/// When each job started, since the first did: the record's times count from there.
#[derive(Default)]
struct Starts(HashMap<JobId, Duration>);

impl Starts {
    /// Makes the line of an event; the first of a job has its URL.
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

/// Returns what recording has cost; called on the thread that writes.
fn cost(shared: &Shared, dropped: u64) -> Telemetry {
    let (samples, sampling) = *lock(&shared.sampled);
    let cpu = seconds::of(sampling + host::thread_cpu_time());
    Telemetry { samples, dropped: shared.dropped.load(Ordering::Relaxed) + dropped, cpu }
}

/// Locks, whatever happened to another thread that held it.
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

    fn tell(recorder: &Recorder, job: u64, at: Duration, event: &Event) {
        recorder.on(&JobTag::new(JobId::new(job), "http://host/file"), at, event);
    }

    fn done(path: &str) -> Event {
        Event::Done(Box::new(Done { path: path.into(), ..Done::default() }))
    }

    #[test]
    fn what_was_told_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        tell(
            &recorder,
            1,
            millis(1),
            &Event::Connected { stream: 0, peer: "[::1]:80".parse().unwrap(), rtt: None },
        );
        tell(&recorder, 1, millis(2), &sample(2));
        tell(&recorder, 1, millis(3), &Event::Progress(Default::default()));
        tell(&recorder, 1, millis(4), &Event::Warning(Warning::NoRanges));
        let target = "/f?...".to_owned();
        let (method, sent, took) = ("GET".to_owned(), Bytes::new(5), millis(3));
        tell(&recorder, 1, millis(5), &Event::Replied { stream: 1, method, target, status: 206, sent, took });
        tell(&recorder, 1, millis(6), &Event::Sampled { samples: 1, cpu: millis(500) });
        tell(&recorder, 1, millis(7), &done("/f"));
        recorder.finish().unwrap();
        recorder.finish().unwrap();
        tell(&recorder, 1, millis(8), &sample(1));

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
        let told = fs::read_to_string(&path).unwrap();
        assert!(told.contains(r#""tcpi_rcv_wnd":16843009"#), "{told}");
        assert_eq!(record.events.len(), 4, "{told}");
        assert_eq!(record.outcome(), Some(&done("/f")));
        let with_url = told.lines().filter(|line| line.contains(r#""url":"http://host/file""#));
        assert_eq!((with_url.count(), told.matches(r#""job":1,"#).count()), (1, 5), "{told}");
        let end = record.end.unwrap();
        assert_eq!((end.telemetry.samples, end.telemetry.dropped), (1, 0));
        assert!((0.5..0.6).contains(&end.telemetry.cpu), "{end:?}");
    }

    #[test]
    fn a_later_job_stands_where_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        tell(&recorder, 1, millis(2), &sample(1));
        thread::sleep(millis(50));
        (0..3).for_each(|at| tell(&recorder, 2, millis(at), &sample(1)));
        tell(&recorder, 1, millis(60), &sample(1));
        recorder.finish().unwrap();
        let jobs = Record::load_jobs(&path).unwrap();
        let times = |job: usize| jobs[job].samples.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!((jobs.len(), times(0)), (2, vec![0.002, 0.06]));
        let second = times(1);
        assert!(second[0] >= 0.05 && (second[2] - second[0] - 0.002).abs() < 1e-5, "{second:?}");
    }

    #[test]
    fn lines_are_with_the_kernel_soon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        // The header at once, before anything happens.
        assert!(Record::load(&path).unwrap().damage.unwrap().contains("without an end"));
        tell(&recorder, 1, millis(1), &sample(1));
        thread::sleep(TURN * 3);
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
        (0..100).for_each(|at| tell(&recorder, 1, millis(at), &sample(1)));
        recorder.finish().unwrap();
        let next = create(&path).unwrap();
        tell(&next, 1, millis(1), &opened());
        next.finish().unwrap();
        assert_eq!(Record::load(&path).unwrap().samples.len(), 0);
        // Cut off by a crash, it is a record nevertheless.
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
        (0..100).for_each(|at| tell(&first, 1, millis(at), &sample(1)));
        tell(&first, 1, millis(100), &done("first"));
        first.finish().unwrap();
        let outcome = || Record::load(&path).unwrap().outcome().cloned();

        let failing = create(&path).unwrap();
        tell(&failing, 1, millis(1), &Event::Warning(Warning::NoRanges));
        thread::sleep(TURN * 2);
        assert_eq!(
            create(&path).unwrap_err().kind(),
            RecordErrorKind::CannotCreate,
            "it is locked all the same"
        );
        tell(&failing, 1, millis(2), &Event::Error { message: "failed".into(), exit_code: 69 });
        failing.finish().unwrap();
        assert_eq!(outcome(), Some(done("first")));
        let killed = create(&path).unwrap();
        tell(&killed, 1, millis(1), &sample(1));
        drop(killed);
        assert_eq!(outcome(), Some(done("first")));

        // Its thread lets go of the lock when it finds nobody left.
        let next = (0..50).find_map(|_| {
            thread::sleep(TURN);
            create(&path).ok()
        });
        let next = next.unwrap();
        tell(&next, 1, millis(1), &Event::Warning(Warning::NoRanges));
        tell(&next, 1, millis(2), &opened());
        thread::sleep(TURN * 3);
        assert_eq!(Record::load(&path).unwrap().events.len(), 2, "what came before is there, and soon");
        tell(&next, 1, millis(3), &sample(1));
        tell(&next, 1, millis(4), &done("next"));
        next.finish().unwrap();
        let record = Record::load(&path).unwrap();
        assert_eq!((record.damage, record.events.len(), record.samples.len()), (None, 3, 1));
        assert_eq!(outcome(), Some(done("next")));
    }

    /// Samples are dropped, and nothing else.
    #[test]
    fn never_waits_and_counts_what_it_drops() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let recorder = create(&path).unwrap();
        // More than any thread writes in this time: a line of 2,000 streams is 1 MB.
        let many = sample_with(2000, TcpInfo::from_bytes(&[1; 100]));
        let began = Instant::now();
        (0..50).for_each(|at| tell(&recorder, 1, millis(at), &many));
        tell(&recorder, 1, millis(50), &done("/f"));
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
